//! Holds the bugs to the sources: every one can be planted, and the test that has to catch it is there. It compiles
//! none of them; `scripts/planted-bugs` does, and runs their tests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use oncefs_planted::Plant;

/// The checkout: where cargo runs the test, which need not be where it was built.
fn root() -> PathBuf {
    Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap()).join("../..")
}

/// Everything in a directory, in order.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The bugs with the names of their files.
fn bugs() -> Vec<(String, Plant)> {
    let read = |path: PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        assert!(name.ends_with(".plant"), "{name} is no file of a bug");
        let plant = Plant::parse(&fs::read_to_string(&path).unwrap());
        (name.clone(), plant.unwrap_or_else(|error| panic!("{name}: {error}")))
    };
    entries(&root().join("tests/planted/bugs")).into_iter().map(read).collect()
}

/// The directory of a package of the workspace.
fn directory_of(package: &str) -> PathBuf {
    let dirs = ["crates", "tests"].into_iter().flat_map(|place| entries(&root().join(place)));
    let line = format!("name = \"{package}\"");
    let is_it = |dir: &PathBuf| fs::read_to_string(dir.join("Cargo.toml")).is_ok_and(|text| text.contains(&line));
    dirs.into_iter().find(is_it).unwrap_or_else(|| panic!("there is no package {package}"))
}

/// The names of all tests in the sources below a directory.
fn tests_below(dir: &Path) -> Vec<String> {
    let (dirs, files): (Vec<PathBuf>, Vec<PathBuf>) = entries(dir).into_iter().partition(|path| path.is_dir());
    let sources = files.iter().filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let here = sources.flat_map(|path| tests_in(&fs::read_to_string(path).unwrap()));
    here.chain(dirs.iter().flat_map(|dir| tests_below(dir))).collect()
}

fn tests_in(source: &str) -> Vec<String> {
    let parts = source.split("#[test]\n").skip(1);
    parts.map(|part| part.split_once("fn ").unwrap().1.split_once('(').unwrap().0.into()).collect()
}

#[test]
fn every_bug_can_be_planted() {
    let fails = |(name, plant): (String, Plant)| plant.planted(&root()).err().map(|error| format!("{name}: {error}"));
    let failures: Vec<String> = bugs().into_iter().filter_map(fails).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn every_bug_has_one_test_and_the_command_that_runs_it() {
    let mut tests_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, Plant { bug, test, command, .. }) in bugs() {
        assert!(bug.ends_with('.'), "{name}: the bug in a sentence");
        let words: Vec<&str> = command.split(' ').collect();
        let ["cargo", "test", "-p", package, options @ .., last] = &words[..] else { panic!("{name}: {command}") };
        assert!(options.iter().any(|option| ["--lib", "--tests"].contains(option)), "{name}: {command}");
        assert_eq!(*last, test, "{name}: {command}");
        let tests = tests_of.entry((*package).into()).or_insert_with(|| tests_below(&directory_of(package)));
        let found: Vec<&String> = tests.iter().filter(|found| found.contains(&test)).collect();
        assert_eq!(found, [&test], "{name}: tests of {package} that the command runs");
    }
}
