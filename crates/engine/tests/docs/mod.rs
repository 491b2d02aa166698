//! Reads the pages in `docs/` for the tests that hold them to the code.

#![allow(dead_code, reason = "each test program uses some of it")]

use std::fs;
use std::path::{Path, PathBuf};

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The checkout: where cargo runs the test, which need not be where it was built.
pub fn root() -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..")
}

/// The text of a file of the checkout.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What stands in backticks.
pub fn quoted(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// A part of a page, from a heading to the next one of any level.
pub struct Section {
    name: String,
    lines: Vec<String>,
}

/// The section with this heading.
pub fn section(page: &str, heading: &str) -> Section {
    let text = text(page);
    let is_heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').trim() == heading;
    let mut lines = text.lines().skip_while(|line| !is_heading(line));
    lines.next().unwrap_or_else(|| panic!("{page} has no section {heading:?}"));
    let lines = lines.take_while(|line| !line.starts_with('#')).map(str::to_owned).collect();
    Section { name: format!("{page}, {heading}"), lines }
}

impl Section {
    /// The cells of each row of its table, head and rule left out.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let rows = self.lines.iter().filter(|line| line.starts_with('|')).skip(2);
        let cells = |line: &String| {
            let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
            inner.split('|').map(|cell| cell.trim().to_owned()).collect()
        };
        rows.map(cells).collect()
    }

    /// Holds `bytes` to the table of offsets: every byte belongs to one field, in this order and with these values.
    /// `n` is the size of what has no fixed one.
    pub fn assert_layout(&self, bytes: &[u8], n: usize, fields: &[(&str, Vec<u8>)]) {
        let rows = self.rows();
        let named: Vec<&str> = rows.iter().map(|row| row[2].as_str()).collect();
        let expected: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
        assert_eq!(named, expected, "{}: the fields", self.name);
        let mut end = 0;
        for (row, (name, value)) in rows.iter().zip(fields) {
            let (offset, size) = (evaluate(&row[0], n), evaluate(&row[1], n));
            assert_eq!(offset, end, "{}: {name} does not begin where the field before ends", self.name);
            end = offset + size;
            assert_eq!(bytes[offset..end], value[..], "{}: {name}", self.name);
        }
        assert_eq!(end, bytes.len(), "{}: the table ends before the structure", self.name);
    }

    /// The checksum that the section's line `Checksum: bytes A to B, seed S.` gives for `bytes`.
    pub fn checksum(&self, bytes: &[u8], n: usize) -> u64 {
        let line = self.lines.iter().find_map(|line| line.strip_prefix("Checksum: bytes "));
        let line = line.unwrap_or_else(|| panic!("{} says nothing of its checksum", self.name));
        let (range, seed) = line.trim_end_matches('.').split_once(", seed ").expect("range and seed");
        let (from, to) = range.split_once(" to ").expect("two ends");
        xxh3_64_with_seed(&bytes[evaluate(from, n)..evaluate(to, n)], hexadecimal(seed))
    }

    /// The seed named in running text.
    pub fn seed(&self) -> u64 {
        let line = self.lines.iter().find_map(|line| line.split_once("seed 0x")).expect("a seed");
        let digits: String = line.1.chars().take_while(char::is_ascii_hexdigit).collect();
        hexadecimal(&format!("0x{digits}"))
    }

    /// All its lines.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}

/// The value of `12`, `n` or `12+n`.
fn evaluate(sum: &str, n: usize) -> usize {
    let term = |term: &str| if term == "n" { n } else { term.parse().unwrap_or_else(|_| panic!("{sum:?} is no size")) };
    sum.split('+').map(str::trim).map(term).sum()
}

/// The value of `0x12_34`.
pub fn hexadecimal(number: &str) -> u64 {
    let digits = number.trim().trim_start_matches("0x").replace('_', "");
    u64::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("{number:?} is not hexadecimal"))
}

/// Holds a key to its row in the table of keys.
pub fn assert_key(name: &str, key: &[u8], numbers: &[u64], rest: &[u8]) {
    let rows = section("docs/format.md", "Keys").rows();
    let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no key {name:?} in docs/format.md"));
    assert_eq!(row[2].split(", ").filter(|number| !number.is_empty()).count(), numbers.len(), "numbers of key {name}");
    assert_eq!(row[3].is_empty(), rest.is_empty(), "rest of key {name}");
    let mut expected = vec![hexadecimal(&row[1]) as u8];
    numbers.iter().for_each(|number| expected.extend(number.to_be_bytes()));
    expected.extend(rest);
    assert_eq!(key, expected, "key {name}");
}
