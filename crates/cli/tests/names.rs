//! No source of the commands prints a name in another way than `names.rs` does: a name that a user chose reaches root's
//! terminal escaped, also from the next command.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

use std::fs;
use std::path::{Path, PathBuf};

/// What turns the bytes of a name into text, or a value into JSON, past `names.rs`.
const WORDS: [&str; 7] =
    [".display()", "to_string_lossy", "from_utf8_lossy", "from_utf8_unchecked", ":?}", ":#}", "to_string_pretty"];

/// The sources that may, with the word and why.
const ALLOWED: [(&str, &str, &str); 4] = [
    ("names.rs", ":?}", "quotes what is not printable"),
    ("names.rs", "to_string_pretty", "escapes what a terminal would obey"),
    ("command_line.rs", "to_string_lossy", "is the name under which root called the program"),
    ("daemon/logging.rs", "from_utf8_lossy", "is a time, which strftime wrote"),
];

fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] }).collect()
}

/// The part of a source that is not its tests.
fn without_tests(text: &str) -> &str {
    text.find("#[cfg(test)]\nmod tests").map_or(text, |end| &text[..end])
}

#[test]
fn names_are_printed_by_one_printer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut found, mut used) = (Vec::new(), Vec::new());
    let sources: Vec<PathBuf> = sources(&root).into_iter().filter(|path| !path.ends_with("tests.rs")).collect();
    assert!(sources.len() > 50, "only {} sources were found", sources.len());
    for path in sources {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        for word in WORDS.into_iter().filter(|word| without_tests(&text).contains(word)) {
            match ALLOWED.iter().find(|(source, allowed, _)| (*source, *allowed) == (&name, word)) {
                Some(allowed) => used.push(allowed),
                None => found.push(format!("{name}: {word}")),
            }
        }
    }
    assert!(found.is_empty(), "names past names.rs: {found:?}");
    assert_eq!(used.len(), ALLOWED.len(), "some exceptions are not used");
}
