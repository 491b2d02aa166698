//! The files of the checkout: its packages, their sources, and its pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Where packages are: those of the product, those that measure it, and those that only test.
const PLACES: [&str; 3] = ["crates", "lab", "tests"];

/// Folders of a package that hold sources.
const PARTS: [&str; 4] = ["src", "tests", "benches", "examples"];

/// The checkout: where cargo runs the test, which need not be where it was built.
pub fn root() -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..")
}

/// The text of a file, by its path from the root of the checkout.
///
/// # Panics
/// If it cannot be read.
pub fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The names in a folder, sorted; none if there is no such folder.
pub fn names_in(dir: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(root().join(dir)) else { return Vec::new() };
    let names = entries.map(|entry| entry.expect("a folder that is read").file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().expect("names are ASCII")).collect();
    names.sort();
    names
}

/// A package of ours, in whichever workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// Its name, as `oncefs-engine`.
    pub name: String,
    /// Its folder, as `crates/engine`.
    pub dir: String,
}

/// All packages of the checkout, by folder.
pub fn packages() -> Vec<Package> {
    let dirs = PLACES.iter().flat_map(|place| names_in(place).into_iter().map(move |name| format!("{place}/{name}")));
    let dirs = dirs.filter(|dir| root().join(dir).join("Cargo.toml").exists());
    dirs.map(|dir| Package { name: value_of(&format!("{dir}/Cargo.toml"), "name"), dir }).collect()
}

/// The value of the first line `name = "value"` of a manifest.
///
/// # Panics
/// If there is no such line.
pub fn value_of(file: &str, name: &str) -> String {
    let text = text(file);
    let line = text.lines().find(|line| line.starts_with(&format!("{name} = ")));
    let value = line.and_then(|line| line.split('"').nth(1));
    value.unwrap_or_else(|| panic!("{file} has no line {name} = \"...\"")).to_owned()
}

/// The sources below a folder, sorted, by path from the root of the checkout.
pub fn sources_below(dir: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in names_in(&dir).into_iter().map(|name| format!("{dir}/{name}")) {
            if root().join(&path).is_dir() {
                dirs.push(path);
            } else if path.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All sources of all packages with their texts, by path from the root of the checkout.
pub fn sources() -> BTreeMap<String, String> {
    let dirs = packages().into_iter().flat_map(|package| PARTS.map(|part| format!("{}/{part}", package.dir)));
    let paths = dirs.flat_map(|dir| sources_below(&dir));
    paths.map(|path| (path.clone(), text(&path))).collect()
}

/// The pages in Markdown: at the root, in `docs` and in its folders.
pub fn pages() -> Vec<String> {
    let pages_in = |dir: &str| {
        let names = names_in(dir).into_iter().filter(|name| name.ends_with(".md"));
        let path = |name: String| if dir == "." { name } else { format!("{dir}/{name}") };
        names.map(path).collect::<Vec<_>>()
    };
    [".", "docs", "docs/decisions", "docs/results"].into_iter().flat_map(pages_in).collect()
}
