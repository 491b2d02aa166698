//! Files that import each other can be read only together: which may, and why.

use std::collections::BTreeSet;

use oncefs_words::checkout::root;
use oncefs_words::packages::packages;
use oncefs_words::structure::circles::{Imports, circles};
use oncefs_words::structure::crate_sources::CrateSources;
use oncefs_words::structure::module_tree::ModuleTree;

use super::assert_none;

/// The files of each package that may import each other, with the reason of each.
const TOGETHER: [(&str, &[(&str, &str)]); 3] = [
    (
        "crates/dedup",
        &[
            ("detect.rs", "has the question and the answer, and calls the two steps between them"),
            ("detect/choice.rs", "weighs sequences by the rule of `detect`"),
            ("detect/sequences.rs", "keeps with each sequence the choice that led to it"),
            ("disk_level.rs", "names pages, and calls the parts that find them"),
            ("disk_level/prefix_directory.rs", "maps tags to pages by the names of `disk_level`"),
            ("disk_level/page_table.rs", "hands out pages by the names of `disk_level`"),
            ("hints.rs", "has the nouns and the interface of both stores, and chooses one of them"),
            ("hints/grouped.rs", "is one store behind the interface of `hints`"),
            ("single_hints.rs", "is the other store behind the interface of `hints`"),
        ],
    ),
    (
        "crates/engine",
        &[
            ("settings/values.rs", "has the settings as values, and reads and prints them by the table"),
            ("settings/values/table.rs", "says of each setting which of the values it reads and changes"),
        ],
    ),
    (
        "crates/fuzz",
        &[
            ("lib.rs", "lists the targets, and has the model that it borrows from `fs`"),
            ("calls.rs", "is a target that compares with that model"),
        ],
    ),
];

/// Which file of a package imports which.
pub fn imports(dir: &str) -> Imports {
    ModuleTree::new(&CrateSources::read(&root().join(dir).join("src"))).imports()
}

#[test]
fn files_import_each_other_only_with_a_reason() {
    let mut found = Vec::new();
    for package in packages() {
        let allowed = TOGETHER.iter().find(|(dir, _)| *dir == package.dir).map_or(&[][..], |(_, files)| files);
        let allowed: BTreeSet<&str> = allowed.iter().map(|(file, _)| *file).collect();
        for circle in circles(&imports(&package.dir)) {
            let is_allowed = circle.iter().all(|file| allowed.contains(file.as_str()));
            let files: Vec<String> = circle.into_iter().collect();
            found.extend((!is_allowed).then(|| format!("{}: {}", package.dir, files.join(" "))));
        }
    }
    assert_none("files that import each other", found);
}
