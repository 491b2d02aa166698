//! Holds `tests/planted` to the code: every planted bug still applies to the sources, and the test that has to catch it
//! exists. `scripts/planted-bugs` plants them, which takes too long for every run of the tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod docs;

use std::fs;

use docs::{root, text};

/// What the drill has to plant, each at least once: the beginning of a patch's name, without its number.
const BUGS: [&str; 38] = [
    "flag-before-lock",
    "share-of-a-freed-block",
    "release-before-commit",
    "hint-trusted",
    "torn-page-accepted",
    "early-acknowledgement",
    "count-wraps",
    "remap-without-second-look",
    "trim-before-table",
    "punch-of-a-reused-block",
    "reader-not-waited-for",
    "reuse-before-trim",
    "reuse-before-trim-after-a-crash",
    "redo-ignores-age",
    "redo-by-age-of-the-page",
    "checkpoint-record-first",
    "flush-skipped",
    "orphan-record-missing",
    "detach-record-dropped-early",
    "group-gate-not-taken",
    "counted-before-it-grew",
    "remap-without-release",
    "map-ids-again",
    "stale-read-cache",
    "dropped-shard-redone",
    "rank-told-by-itself",
    "two-files-locked-as-they-come",
    "look-up-not-repeated",
    "hole-over-a-damaged-sector",
    "crowd-not-counted",
    "part-held-shared",
    "copy-over-the-file",
    "zeros-pay-for-blocks",
    "attributes-not-counted",
    "salvage-not-finished",
    "closed-without-its-copies",
    "budget-not-spent",
    "page-read-before-a-checkpoint",
];

/// The names of the patches, and their texts.
fn patches() -> Vec<(String, String)> {
    let names = fs::read_dir(root().join("tests/planted")).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names.into_iter().map(|name| (name.clone(), text(&format!("tests/planted/{name}")))).collect()
}

fn field<'a>(patch: &'a str, name: &str) -> &'a str {
    let line = patch.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("a patch has no line {name}: {patch}"))
}

/// The source of a test, by the command that runs it: that of a program of tests, or the deepest file of a crate that the
/// test's path names.
fn source_of(test: &str, command: &str) -> String {
    let after = |option: &str| command.split(' ').skip_while(|word| *word != option).nth(1);
    let name = after("-p").and_then(|package| package.strip_prefix("oncefs-"));
    let name = name.unwrap_or_else(|| panic!("{command} names none of our crates"));
    if let Some(program) = after("--test") {
        return text(&format!("crates/{name}/tests/{program}.rs"));
    }
    let mut modules: Vec<&str> = test.split("::").collect();
    while modules.pop().is_some() {
        let path = format!("crates/{name}/src/{}.rs", modules.join("/"));
        if root().join(&path).exists() {
            return text(&path);
        }
    }
    panic!("{test} is in no file");
}

/// For each hunk the file that it changes and what stands there before and after.
fn hunks(patch: &str) -> Vec<(String, String, String)> {
    let mut file = String::new();
    let mut hunks: Vec<(String, String, String)> = Vec::new();
    for line in patch.lines().skip_while(|line| !line.starts_with("--- ")) {
        let (sign, rest) = line.split_at(line.len().min(1));
        match sign {
            _ if line.starts_with("--- a/") => line[6..].clone_into(&mut file),
            _ if line.starts_with("+++ b/") => assert_eq!(line[6..], file),
            "@" => hunks.push((file.clone(), String::new(), String::new())),
            _ => {
                let (_, before, after) = hunks.last_mut().expect("a hunk begins with @@");
                let is_in = |signs: &str| sign.is_empty() || signs.contains(sign);
                assert!(is_in(" -+"), "{line}");
                for (_, text) in [(" -", before), (" +", after)].into_iter().filter(|(signs, _)| is_in(signs)) {
                    text.push_str(rest);
                    text.push('\n');
                }
            }
        }
    }
    hunks
}

#[test]
fn every_planted_bug_applies_to_the_sources() {
    for (name, patch) in patches() {
        let hunks = hunks(&patch);
        assert!(!hunks.is_empty(), "{name} changes nothing");
        for (file, before, after) in hunks {
            assert_ne!(before, after, "{name} changes nothing in {file}");
            let found = text(&file).matches(before.as_str()).count();
            assert_eq!(found, 1, "{name}: places in {file} that look like\n{before}");
        }
    }
}

#[test]
fn every_planted_bug_names_a_test_and_the_command_that_runs_it() {
    for (name, patch) in patches() {
        let (test, command) = (field(&patch, "Test"), field(&patch, "Command"));
        assert!(field(&patch, "Bug").ends_with('.'), "{name}: the bug in a sentence");
        let short = test.rsplit("::").next().unwrap();
        let source = source_of(test, command);
        let is_there =
            ["", "    "].iter().any(|indent| source.contains(&format!("{indent}#[test]\n{indent}fn {short}()")));
        assert!(is_there, "{name}: there is no test {test}");
        let programs: &[&str] = match test {
            test if test.starts_with("tests::schedule::") => &["oncefs-engine --features schedules --lib"],
            test if test.starts_with("tests::lock_order::") => &["oncefs-engine --features checked --lib"],
            _ => &[
                "oncefs-engine --lib",
                "oncefs-fs --lib",
                "oncefs-fs --test crowding",
                "oncefs-explore --test explore",
            ],
        };
        let is_it = |program: &&str| command == format!("cargo test --release -p {program} {test} -- --exact");
        assert!(programs.iter().any(is_it), "{name}: {command}");
    }
}

#[test]
fn every_kind_of_bug_is_planted() {
    let planted: Vec<String> = patches().into_iter().map(|(name, _)| name).collect();
    for bug in BUGS {
        let is_it = |name: &String| name.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-').starts_with(bug);
        assert!(planted.iter().any(is_it), "no patch plants {bug}");
    }
}
