//! Circles of imports: files that can be understood only all together.

use std::collections::{BTreeMap, BTreeSet};

/// Who imports whom, by file.
pub type Imports = BTreeMap<String, BTreeSet<String>>;

/// The groups of files that reach each other, the largest first.
pub fn circles(imports: &Imports) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|file| (file, reached_from(file, imports))).collect();
    let circle_of = |file: &String| -> BTreeSet<String> {
        reached[file].iter().filter(|other| reached[*other].contains(file)).map(|other| (*other).clone()).collect()
    };
    let circles: BTreeSet<BTreeSet<String>> = imports.keys().map(circle_of).filter(|circle| circle.len() > 1).collect();
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

/// Files that a file reaches by at least one import.
fn reached_from<'a>(file: &'a String, imports: &'a Imports) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut waiting = vec![file];
    while let Some(file) = waiting.pop() {
        waiting.extend(imports[file].iter().filter(|other| reached.insert(*other)));
    }
    reached
}

/// Who imports whom, by the first part of the path: folders, and files that are in none. The crate's root, which only
/// says what others may use, is left out.
pub fn between_rooms(imports: &Imports) -> Imports {
    let mut rooms = Imports::new();
    for (file, others) in imports.iter().filter(|(file, _)| !is_root(file)) {
        let room = room_of(file);
        let found = others.iter().filter(|other| !is_root(other)).map(|other| room_of(other)).filter(|to| *to != room);
        rooms.entry(room.clone()).or_default().extend(found);
    }
    rooms
}

fn is_root(file: &str) -> bool {
    ["lib.rs", "main.rs"].contains(&file)
}

fn room_of(file: &str) -> String {
    file.split('/').next().expect("a split has a first part").trim_end_matches(".rs").to_owned()
}
