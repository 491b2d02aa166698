//! What pages and scripts say of the sources is so.

use std::collections::BTreeSet;

use oncefs_words::checkout::text;
use oncefs_words::code_map;
use oncefs_words::declared::all_tests;
use oncefs_words::packages::sources;
use oncefs_words::page::{Section, quoted};

use super::assert_none;

#[test]
fn the_code_map_is_what_the_sources_say() {
    let (page, expected) = (text(code_map::PAGE), code_map::code_map());
    let lines = |one: &str, other: &str| {
        let other: BTreeSet<&str> = other.lines().collect();
        one.lines().filter(|line| !other.contains(line)).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_none("old lines: run scripts/code-map", lines(&page, &expected));
    assert_none("missing lines: run scripts/code-map", lines(&expected, &page));
    assert_eq!(page, expected, "run scripts/code-map");
}

#[test]
fn the_quick_check_leaves_out_tests_that_exist() {
    let script = text("scripts/check");
    let list = |name: &str| script.split(&format!("\n{name}=(\n")).nth(1).unwrap().split("\n)").next().unwrap();
    let names = ["slow", "rooted"].into_iter().flat_map(|name| list(name).lines()).map(|line| line.trim().to_owned());
    let tests = all_tests();
    assert_none(
        "tests that scripts/check leaves out and are not there",
        names.filter(|n| !tests.contains(n)).collect(),
    );
}

#[test]
fn the_threads_on_the_page_are_those_that_are_started() {
    let all: String = sources().into_iter().filter(|(path, _)| path.contains("/src/")).map(|(_, text)| text).collect();
    let rows = Section::of("docs/architecture.md", "Threads").rows();
    // The threads of the first row have numbers in their names.
    let names: BTreeSet<&str> = rows.iter().skip(1).flat_map(|row| quoted(&row[0])).collect();
    let missing = names.into_iter().filter(|name| !all.contains(&format!("\"{name}\"")));
    assert_none("threads that no source starts", missing.map(str::to_owned).collect());
}

#[test]
fn every_step_of_a_block_says_its_crash_and_its_counters() {
    let page = text("docs/life-of-a-block.md");
    for part in page.split("\n## ").skip(1) {
        for word in ["Crash: ", "Counters: "] {
            let lines = part.lines().filter(|line| line.starts_with(word)).count();
            assert_eq!(lines, 1, "lines with {word:?} in {:?}", part.lines().next());
        }
    }
}
