//! Holds `docs/life-of-a-block.md` to the code: its headings are the stages, its functions and counters exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod docs;

use std::collections::BTreeSet;

use docs::{quoted, text};
use oncefs_engine::{Counters, Stage};

const PAGE: &str = "docs/life-of-a-block.md";

/// Figures in the page's sentences, and the constants that they repeat.
const FIGURES: [(&str, &str, &str); 8] = [
    ("up to 16 blocks per call", "crates/engine/src/hash.rs", "LANES: usize = 16;"),
    ("names up to 16 pbns", "crates/dedup/src/hints.rs", "HOLDERS_MAX: usize = 16;"),
    ("At least 32 of them", "crates/engine/src/write.rs", "DIRECT_BLOCKS_MIN: usize = 32;"),
    ("when 4 MiB have gathered", "crates/engine/src/write.rs", "STAGED_BYTES_MAX: u64 = 4 << 20;"),
    (
        "5 seconds after a group's first change",
        "crates/engine/src/threads.rs",
        "COMMIT_AFTER: Duration = Duration::from_secs(5);",
    ),
    (
        "after 100 ms without one",
        "crates/engine/src/threads.rs",
        "COMMIT_AFTER_QUIET: Duration = Duration::from_millis(100);",
    ),
    ("at most 128 KiB", "crates/engine/src/commit.rs", "LOG_DATA_BYTES_MAX: usize = 128 << 10;"),
    ("Half a log full", "crates/engine/src/commit.rs", "CHECKPOINT_FULLNESS: f64 = 0.5;"),
];

/// The lines that begin with this word, without it.
fn lines<'a>(page: &'a str, word: &str) -> Vec<&'a str> {
    page.lines().filter_map(|line| line.strip_prefix(word)).collect()
}

#[test]
fn the_headings_are_the_stages_in_order() {
    let page = text(PAGE);
    let expected: Vec<String> =
        Stage::ALL.iter().enumerate().map(|(at, stage)| format!("{}. {}", at + 1, stage.name())).collect();
    assert_eq!(lines(&page, "## "), expected);
}

#[test]
fn every_stage_says_its_code_its_crash_and_its_counters() {
    let page = text(PAGE);
    for part in page.split("\n## ").skip(1) {
        for word in ["Code: ", "Crash: ", "Counters: "] {
            assert_eq!(lines(part, word).len(), 1, "lines with {word:?} in {:?}", part.lines().next());
        }
    }
}

#[test]
fn every_function_is_where_the_page_says() {
    let page = text(PAGE);
    let mut found = 0;
    for group in lines(&page, "Code: ").iter().flat_map(|line| line.split("; ")) {
        let names = quoted(group);
        let (path, functions) = names.split_last().expect("functions and a path");
        let source = text(path);
        for function in functions {
            let is_there =
                [format!("fn {function}("), format!("fn {function}<")].iter().any(|start| source.contains(start));
            assert!(is_there, "{path} has no function {function}");
            found += 1;
        }
    }
    assert!(found > 30, "only {found} functions were looked for");
}

#[test]
fn the_page_names_every_counter_and_no_other() {
    let page = text(PAGE);
    let named: BTreeSet<&str> =
        lines(&page, "Counters: ").iter().flat_map(|line| quoted(line.split("; the cache").next().unwrap())).collect();
    let counters = Counters::default().snapshot();
    assert_eq!(named, counters.keys().map(String::as_str).collect());
}

#[test]
fn every_figure_is_that_of_the_code() {
    let page = text(PAGE);
    for (sentence, path, constant) in FIGURES {
        assert!(page.contains(sentence), "{PAGE} does not say {sentence:?} any more");
        assert!(text(path).contains(constant), "{path} has no {constant:?}, but {PAGE} says {sentence:?}");
    }
}
