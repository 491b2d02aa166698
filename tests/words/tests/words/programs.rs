//! Every source of tests belongs to a program: one that no program has as a module is compiled by nobody, and no test of
//! it can fail.

use std::collections::BTreeMap;

use oncefs_words::checkout::{sources_below, text};
use oncefs_words::packages::packages;

use super::assert_none;

/// Whether cargo makes a program of a source below `tests`, by its path below the package.
fn is_program(path: &str, manifest: &str) -> bool {
    let name = path.strip_prefix("tests/").expect("a path below tests");
    let found_by_cargo = !name.contains('/') || name.ends_with("/main.rs") && name.matches('/').count() == 1;
    let is_listed = manifest.contains(&format!("path = \"{path}\""));
    is_listed || found_by_cargo && !manifest.contains("autotests = false")
}

/// The module that a source is, by its path.
fn module(path: &str) -> &str {
    let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
    path.rsplit('/').next().expect("a name is never empty")
}

/// The sources that are neither programs nor modules of others, of these with their texts.
fn orphans<'a>(sources: &'a BTreeMap<String, String>, manifest: &str) -> Vec<&'a String> {
    let is_declared = |path: &str| {
        let declared = format!("mod {};", module(path));
        sources.iter().any(|(other, text)| other != path && text.contains(&declared))
    };
    sources.keys().filter(|path| !is_program(path, manifest) && !is_declared(path)).collect()
}

#[test]
fn every_source_of_tests_belongs_to_a_program() {
    let found = packages().into_iter().flat_map(|package| {
        let below = |path: &str| path[package.dir.len() + 1..].to_owned();
        let sources = sources_below(&format!("{}/tests", package.dir));
        let sources = sources.into_iter().map(|path| (below(&path), text(&path))).collect();
        let manifest = text(&format!("{}/Cargo.toml", package.dir));
        orphans(&sources, &manifest).into_iter().map(|path| format!("{}/{path}", package.dir)).collect::<Vec<_>>()
    });
    assert_none("sources of tests that no program has", found.collect());
}

#[test]
fn a_source_that_no_program_has_is_noticed() {
    let sources: BTreeMap<String, String> = [
        ("tests/all.rs", "mod common;\nmod one;"),
        ("tests/common/mod.rs", ""),
        ("tests/one.rs", "mod part;"),
        ("tests/one/part.rs", ""),
        ("tests/two.rs", ""),
    ]
    .map(|(path, text)| (path.to_owned(), text.to_owned()))
    .into();
    let one_program = "autotests = false\n[[test]]\npath = \"tests/all.rs\"";
    assert_eq!(orphans(&sources, one_program), ["tests/two.rs"]);
    assert!(orphans(&sources, "").is_empty(), "cargo makes a program of each source on top");
}
