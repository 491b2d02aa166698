//! Which package may depend on which, and on what of others.

use std::collections::BTreeSet;

use oncefs_words::checkout::text;
use oncefs_words::manifest::{Build, dependencies, value_of};
use oncefs_words::packages::packages;
use oncefs_words::page::quoted;

use super::assert_none;

/// Which of our packages each may depend on, wherever it is; tests may use more.
const ARROWS: [(&str, &[&str]); 19] = [
    ("oncefs-toolbox", &[]),
    ("oncefs-transport", &[]),
    ("oncefs-compress", &[]),
    ("oncefs-rados", &[]),
    ("oncefs-dedup", &[]),
    ("oncefs-estimate", &["oncefs-compress", "oncefs-dedup"]),
    ("oncefs-engine", &["oncefs-compress", "oncefs-dedup", "oncefs-rados", "oncefs-toolbox"]),
    ("oncefs-fs", &["oncefs-engine"]),
    ("oncefs-fuse", &["oncefs-fs", "oncefs-engine", "oncefs-toolbox", "oncefs-transport"]),
    (
        "oncefs",
        &[
            "oncefs-fuse",
            "oncefs-fs",
            "oncefs-engine",
            "oncefs-estimate",
            "oncefs-plot",
            "oncefs-stream",
            "oncefs-toolbox",
        ],
    ),
    ("oncefs-plot", &[]),
    ("oncefs-stream", &[]),
    ("oncefs-sim", &["oncefs-compress", "oncefs-dedup", "oncefs-plot", "oncefs-toolbox"]),
    ("oncefs-explore", &["oncefs-fs", "oncefs-engine", "oncefs-rados", "oncefs-toolbox"]),
    ("oncefs-bench", &["oncefs-plot", "oncefs-rados", "oncefs-sim", "oncefs-toolbox", "oncefs-transport"]),
    (
        "oncefs-fuzz",
        &["oncefs-compress", "oncefs-fs", "oncefs-engine", "oncefs-stream", "oncefs-toolbox", "oncefs-transport"],
    ),
    ("oncefs-system-tests", &["oncefs-toolbox"]),
    ("oncefs-words", &[]),
    ("oncefs-planted", &[]),
];

/// Crates of others that only these packages may use.
const KEPT_TO: [(&str, &[&str]); 3] = [
    ("rocksdb", &["oncefs-engine"]),
    ("blake3", &["oncefs-engine", "oncefs-stream"]),
    ("libloading", &["oncefs-rados"]),
];

fn is_ours(name: &str) -> bool {
    name.starts_with("oncefs")
}

#[test]
fn packages_depend_on_each_other_only_along_the_arrows() {
    let mut found = Vec::new();
    for package in packages() {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            found.push(format!("{} has no arrows in tests/words/tests/words/arrows.rs", package.name));
            continue;
        };
        let used = dependencies(&package.dir, Build::Product).into_iter().filter(|name| is_ours(name));
        let used = used.filter(|name| !allowed.contains(&name.as_str()));
        found.extend(used.map(|name| format!("{} depends on {name}", package.name)));
    }
    assert_none("arrows that are not allowed", found);
}

#[test]
fn nothing_of_the_product_depends_on_the_lab() {
    let (lab, product): (Vec<_>, Vec<_>) = packages().into_iter().partition(|package| package.dir.starts_with("lab/"));
    let lab: BTreeSet<String> = lab.into_iter().map(|package| package.name).collect();
    let used = product.iter().flat_map(|package| {
        let used = dependencies(&package.dir, Build::WithTests);
        lab.intersection(&used).map(|name| format!("{} depends on {name}", package.name)).collect::<Vec<_>>()
    });
    assert_none("dependencies on the lab", used.collect());
}

#[test]
fn some_crates_of_others_are_kept_to_one_package_and_dedup_has_none() {
    assert_eq!(dependencies("crates/dedup", Build::WithTests), BTreeSet::new(), "dedup is pure");
    let users = KEPT_TO.iter().flat_map(|(name, allowed)| {
        let users = packages().into_iter().filter(|package| !allowed.contains(&package.name.as_str()));
        let users = users.filter(|package| dependencies(&package.dir, Build::WithTests).contains(*name));
        users.map(move |package| format!("{} depends on {name}", package.name))
    });
    assert_none("crates that only others may use", users.collect());
}

#[test]
fn every_dependency_has_its_reason_in_the_decisions_and_none_is_left_over() {
    let page = text("docs/decisions/0008-dependencies.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let named: BTreeSet<String> = rows.map(|row| quoted(row)[0].to_owned()).collect();
    let used = packages().into_iter().flat_map(|package| dependencies(&package.dir, Build::WithTests));
    let used: BTreeSet<String> = used.filter(|name| !is_ours(name)).collect();
    assert_eq!(used, named, "dependencies in the manifests, and on the page");
}

#[test]
fn the_pinned_toolchain_is_of_the_version_that_the_workspace_asks_for() {
    let (pinned, wanted) = (value_of("rust-toolchain.toml", "channel"), value_of("Cargo.toml", "rust-version"));
    assert!(
        pinned.starts_with(&format!("{wanted}.")),
        "rust-toolchain.toml pins {pinned}, Cargo.toml asks for {wanted}"
    );
}
