//! `docs/promises.md`: every promise names what shows it, and that exists. Tests are looked up by name, wherever they are.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;

use oncefs_words::checkout::{root, text};
use oncefs_words::declared::all_tests;
use oncefs_words::page::quoted;

use super::assert_none;

const PAGE: &str = "docs/promises.md";

/// The rows of all tables of the page but their heads, each with the title of its section.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let (mut title, mut above) = ("", "");
    let mut rows = Vec::new();
    for line in page.lines() {
        title = line.strip_prefix("## ").unwrap_or(title);
        if line.starts_with('|') && above.starts_with('|') && !line.starts_with("|---") {
            rows.push((title, line));
        }
        above = line;
    }
    rows
}

fn is_test_name(word: &str) -> bool {
    word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn is_script(path: &str) -> bool {
    let meta = root().join(path).metadata();
    meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// What is wrong with the cells that say what shows a promise, and how many things they name that do.
fn look_up(cells: &str, tests: &BTreeSet<String>) -> Result<usize, String> {
    let mut named = 0;
    for word in quoted(cells) {
        let script = word.split(' ').next().unwrap();
        named += match word {
            _ if word.starts_with("cargo test ") => 1,
            _ if word.starts_with("scripts/") && !is_script(script) => return Err(format!("{script} is no script")),
            _ if word.starts_with("scripts/") => 1,
            _ if is_test_name(word) && !tests.contains(word) => return Err(format!("there is no test {word}")),
            _ if is_test_name(word) => 1,
            _ => 0,
        };
    }
    Ok(named)
}

#[test]
fn every_promise_names_tests_and_scripts_that_exist() {
    let tests = all_tests();
    let page = text(PAGE);
    let rows = rows(&page);
    assert!(rows.len() > 30, "only {} rows are seen", rows.len());
    let wrong = rows.into_iter().filter_map(|(title, row)| {
        let shown_by = row.trim_matches('|').split_once('|').expect("a row has two cells").1;
        let what = match look_up(shown_by, &tests) {
            Err(what) => what,
            Ok(0) if !shown_by.trim_start().starts_with("the same") => "nothing shows it".to_owned(),
            Ok(_) => return None,
        };
        Some(format!("{title}: {row}\n    {what}"))
    });
    assert_none("promises that nothing shows", wrong.collect());
}

#[test]
fn a_promise_whose_test_or_script_does_not_exist_is_noticed() {
    let tests = ["there_is_one".to_owned()].into();
    for cell in ["`there_is_none`", "`there_is_one` and `there_is_none`", "`scripts/no-such`", "`scripts/lib.sh`"] {
        look_up(cell, &tests).expect_err(cell);
    }
    assert_eq!(look_up("its own words alone", &tests), Ok(0));
    assert_eq!(look_up("engine: `there_is_one`; `scripts/check`", &tests), Ok(2));
}
