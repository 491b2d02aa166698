//! Files that import each other can be read only together: which may, and why.

use std::collections::BTreeSet;

use super::docs::root;
use super::structure::circles::{Imports, circles};
use super::structure::crate_sources::CrateSources;
use super::structure::module_tree::ModuleTree;

/// A crate whose files may import each other, and which of them do.
struct Together {
    name: &'static str,
    files_max: usize,
    /// Each with its reason.
    files: &'static [(&'static str, &'static str)],
}

const TOGETHER: [Together; 2] = [
    Together {
        name: "dedup",
        files_max: 9,
        files: &[
            ("detect.rs", "has the question and the answer, and calls the two steps between them"),
            ("detect/choice.rs", "weighs sequences by the rule of `detect`"),
            ("detect/sequences.rs", "keeps with each sequence the choice that led to it"),
            ("disk_level.rs", "names pages, and calls the parts that find them"),
            ("disk_level/directory.rs", "maps tags to pages by the names of `disk_level`"),
            ("disk_level/page_table.rs", "hands out pages by the names of `disk_level`"),
            ("hints.rs", "has the nouns and the interface of both stores, and chooses one of them"),
            ("hints/grouped.rs", "is one store behind the interface of `hints`"),
            ("single_hints.rs", "is the other store behind the interface of `hints`"),
        ],
    },
    Together {
        name: "engine",
        files_max: 8,
        files: &[
            ("settings/values.rs", "has the settings as values, and reads and prints them by the table"),
            ("settings/values/table.rs", "says of each setting which of the values it reads and changes"),
        ],
    },
];

/// Crates that are looked at.
const CRATES: [&str; 7] = ["dedup", "engine", "fs", "fuse", "cli", "sim", "bench"];

/// The sources of one of our crates.
pub fn sources_of(name: &str) -> CrateSources {
    CrateSources::read(&root().join("crates").join(name).join("src"))
}

/// Which file of a crate imports which.
pub fn imports(name: &str) -> Imports {
    ModuleTree::new(&sources_of(name)).imports()
}

#[test]
fn files_import_each_other_only_with_a_reason() {
    for name in CRATES {
        let found: BTreeSet<String> = circles(&imports(name)).into_iter().flatten().collect();
        let together = TOGETHER.iter().find(|together| together.name == name);
        let allowed = together.map_or(&[][..], |together| together.files);
        let allowed: BTreeSet<String> = allowed.iter().map(|(file, _)| (*file).to_owned()).collect();
        assert_eq!(found, allowed, "{name}: files that import each other, and those that may");
        let most = together.map_or(0, |together| together.files_max);
        assert!(found.len() <= most, "{name}: {} files import each other, {most} may", found.len());
    }
}
