//! `docs/promises.md` against the sources: every promise names what shows it, and that exists.

#![allow(clippy::unwrap_used, reason = "a step that fails is a test that fails, and the panic says where")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where cargo runs the test, which need not be where it was built: checkouts share a target directory.
fn repository() -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).ancestors().nth(2).unwrap().to_owned()
}

/// The rows of all tables of the page but their heads, each with the title of its section.
fn rows(page: &str) -> Vec<(&str, &str)> {
    let mut title = "";
    let mut rows = Vec::new();
    let mut above = "";
    for line in page.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            title = heading;
        }
        if line.starts_with('|') && above.starts_with('|') && !line.starts_with("|---") {
            rows.push((title, line));
        }
        above = line;
    }
    rows
}

/// What stands between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn is_test_name(word: &str) -> bool {
    word.contains('_') && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// Whether a source declares this test: its name right below the attribute.
fn declares(source: &str, test: &str) -> bool {
    source.split("#[test]\n").skip(1).any(|rest| rest.trim_start().starts_with(&format!("fn {test}(")))
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// What is wrong with a row's last cells, and how many tests, scripts and runs of tests they name.
fn look_up(cell: &str) -> Result<usize, String> {
    let mut source = None;
    let mut named = 0;
    for word in quoted(cell) {
        if word.starts_with("cargo test ") {
            named += 1;
        } else if word.ends_with(".rs") {
            source = Some(fs::read_to_string(repository().join(word)).map_err(|error| format!("{word}: {error}"))?);
        } else if word.starts_with("scripts/") {
            let script = word.split(' ').next().expect("never empty");
            named += usize::from(is_executable(&repository().join(script)));
            if !is_executable(&repository().join(script)) {
                return Err(format!("{script} is no script"));
            }
        } else if is_test_name(word) {
            let source = source.as_ref().ok_or_else(|| format!("{word} is named without its source"))?;
            if !declares(source, word) {
                return Err(format!("{word} is not declared there"));
            }
            named += 1;
        }
    }
    Ok(named)
}

#[test]
fn every_promise_names_tests_and_scripts_that_exist() {
    let page = fs::read_to_string(repository().join("docs/promises.md")).unwrap();
    let rows = rows(&page);
    assert!(rows.len() > 30, "only {} rows are seen", rows.len());
    for (title, row) in &rows {
        let shown_by = row.trim_matches('|').split_once('|').expect("a row has two cells").1;
        match look_up(shown_by) {
            Err(what) => panic!("{title}: {row}\n{what}"),
            Ok(0) if !shown_by.trim_start().starts_with("the same") => panic!("{title}: {row}\nnothing shows it"),
            Ok(_) => {}
        }
    }
}

#[test]
fn a_promise_whose_test_or_script_does_not_exist_is_noticed() {
    for cell in [
        "`tests/system/tests/kill9.rs`: `what_was_acknowledged_survives_everything`",
        "`tests/system/tests/no_such.rs`: `what_was_acknowledged_survives_killing_the_daemon`",
        "`what_was_acknowledged_survives_killing_the_daemon`",
        "`scripts/no-such`",
        "`scripts/lib.sh`",
    ] {
        look_up(cell).expect_err(cell);
    }
    assert_eq!(look_up("`tests/system/tests/fsx.rs` alone"), Ok(0));
}
