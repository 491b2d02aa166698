//! The files of the checkout: any file as text, all sources below a folder, and the pages.

use std::fs;
use std::path::{Path, PathBuf};

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

/// The pages in Markdown: at the root, in `docs` and in its folders.
pub fn pages() -> Vec<String> {
    let pages_in = |dir: &str| {
        let names = names_in(dir).into_iter().filter(|name| name.ends_with(".md"));
        let path = |name: String| if dir == "." { name } else { format!("{dir}/{name}") };
        names.map(path).collect::<Vec<_>>()
    };
    [".", "docs", "docs/decisions", "docs/results", "docs/results/older"].into_iter().flat_map(pages_in).collect()
}
