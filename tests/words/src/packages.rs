//! Our packages and their sources, in whichever workspace they are.

use std::collections::BTreeMap;

use crate::checkout::{names_in, root, sources_below, text};
use crate::manifest::value_of;

/// Where packages are: those of the product, those that measure it, and those that only test.
const PLACES: [&str; 3] = ["crates", "lab", "tests"];

/// Folders of a package that hold sources.
const PARTS: [&str; 4] = ["src", "tests", "benches", "examples"];

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

/// All sources of all packages with their texts, by path from the root of the checkout.
pub fn sources() -> BTreeMap<String, String> {
    let dirs = packages().into_iter().flat_map(|package| PARTS.map(|part| format!("{}/{part}", package.dir)));
    let paths = dirs.flat_map(|dir| sources_below(&dir));
    paths.map(|path| (path.clone(), text(&path))).collect()
}
