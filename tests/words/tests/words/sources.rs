//! What every source must begin with and must not hold.

use oncefs_words::packages::sources;

use super::assert_none;

/// Lines that a source may have.
const LINES_MAX: usize = 600;

/// Lines of all sources for which something holds, each with its place.
fn lines(holds: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().enumerate().filter(|(_, line)| holds(line));
        found.extend(lines.map(|(at, line)| format!("{path}:{}: {line}", at + 1)));
    }
    found
}

#[test]
fn every_source_begins_with_what_it_owns() {
    let sources = sources();
    assert!(sources.len() > 300, "only {} sources are seen", sources.len());
    let without = sources.into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path);
    assert_none("sources without a module doc in their first line", without.collect());
}

#[test]
fn every_source_is_ascii() {
    assert_none("lines that are not ASCII", lines(|line| !line.is_ascii()));
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not find itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|halves| halves.concat());
    assert_none("marks of unfinished work", lines(|line| words.iter().any(|word| line.contains(word.as_str()))));
}

#[test]
fn no_source_is_too_long_to_be_read_at_once() {
    let long = sources().into_iter().map(|(path, text)| (path, text.lines().count()));
    let long = long.filter(|(_, lines)| *lines > LINES_MAX).map(|(path, lines)| format!("{path}: {lines} lines"));
    assert_none(&format!("sources of more than {LINES_MAX} lines"), long.collect());
}
