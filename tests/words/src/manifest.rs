//! What a `Cargo.toml` says, as far as tests ask for it.

use std::collections::BTreeSet;

use crate::checkout::text;

/// The value of the first line `name = "value"`.
///
/// # Panics
/// If there is no such line.
pub fn value_of(file: &str, name: &str) -> String {
    let text = text(file);
    let line = text.lines().find(|line| line.starts_with(&format!("{name} = ")));
    let value = line.and_then(|line| line.split('"').nth(1));
    value.unwrap_or_else(|| panic!("{file} has no line {name} = \"...\"")).to_owned()
}

/// What is built of a package, as far as its dependencies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// What others use, and the script that builds it.
    Product,
    /// Its tests as well.
    WithTests,
}

/// The names of the dependencies of the package in this folder.
///
/// # Panics
/// If one has a table of its own, which is not read here.
pub fn dependencies(dir: &str, of: Build) -> BTreeSet<String> {
    let manifest = text(&format!("{dir}/Cargo.toml"));
    let mut is_inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#') && !line.is_empty()) {
        if let Some(table) = line.strip_prefix('[') {
            assert!(!table.contains("dependencies."), "{dir}/Cargo.toml: give each dependency a line, not a table");
            is_inside = matches!(table, "dependencies]" | "build-dependencies]")
                || table == "dev-dependencies]" && of == Build::WithTests;
        } else if is_inside {
            found.extend(line.split(['.', ' ', '=']).next().map(str::to_owned));
        }
    }
    found
}
