//! Tables of offsets in `docs/format.md`, and the bytes that follow them.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::page::Section;

impl Section {
    /// Holds `bytes` to the table of offsets: every byte belongs to one field, in this order and with these values.
    /// `n` is the size of what has no fixed one.
    ///
    /// # Panics
    /// If they differ, or the table is no table of offsets.
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
    ///
    /// # Panics
    /// If there is no such line.
    pub fn checksum(&self, bytes: &[u8], n: usize) -> u64 {
        let line = self.lines.iter().find_map(|line| line.strip_prefix("Checksum: bytes "));
        let line = line.unwrap_or_else(|| panic!("{} says nothing of its checksum", self.name));
        let (range, seed) = line.trim_end_matches('.').split_once(", seed ").expect("range and seed");
        let (from, to) = range.split_once(" to ").expect("two ends");
        xxh3_64_with_seed(&bytes[evaluate(from, n)..evaluate(to, n)], hexadecimal(seed))
    }

    /// The seed named in running text.
    ///
    /// # Panics
    /// If there is none.
    pub fn seed(&self) -> u64 {
        let line = self.lines.iter().find_map(|line| line.split_once("seed 0x")).expect("a seed");
        let digits: String = line.1.chars().take_while(char::is_ascii_hexdigit).collect();
        hexadecimal(&format!("0x{digits}"))
    }
}

/// The value of `12`, `n` or `12+n`.
fn evaluate(sum: &str, n: usize) -> usize {
    let term = |term: &str| if term == "n" { n } else { term.parse().unwrap_or_else(|_| panic!("{sum:?} is no size")) };
    sum.split('+').map(str::trim).map(term).sum()
}

/// The value of `0x12_34`.
///
/// # Panics
/// If it is not hexadecimal.
pub fn hexadecimal(number: &str) -> u64 {
    let digits = number.trim().trim_start_matches("0x").replace('_', "");
    u64::from_str_radix(&digits, 16).unwrap_or_else(|_| panic!("{number:?} is not hexadecimal"))
}

/// Holds a key to its row in the table of keys.
///
/// # Panics
/// If they differ, or there is no such row.
pub fn assert_key(name: &str, key: &[u8], numbers: &[u64], rest: &[u8]) {
    let rows = Section::of("docs/format.md", "Keys").rows();
    let row = rows.iter().find(|row| row[0] == name).unwrap_or_else(|| panic!("no key {name:?} in docs/format.md"));
    assert_eq!(row[2].split(", ").filter(|number| !number.is_empty()).count(), numbers.len(), "numbers of key {name}");
    assert_eq!(row[3].is_empty(), rest.is_empty(), "rest of key {name}");
    let mut expected = vec![u8::try_from(hexadecimal(&row[1])).expect("a kind has one byte")];
    numbers.iter().for_each(|number| expected.extend(number.to_be_bytes()));
    expected.extend(rest);
    assert_eq!(key, expected, "key {name}");
}
