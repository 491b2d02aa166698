//! Checks that the path up from every directory leads to the root.
//!
//! Directories come in the order of their numbers, and a parent is nearly always older than its subdirectories. So one bit
//! of the parent settles nearly every directory at once, and only moved directories must be remembered.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::Ino;

/// Numbers in one entry of the set.
const CHUNK: u64 = 512;

/// A set of inode numbers: one bit for each, in chunks.
#[derive(Default)]
struct InoSet(HashMap<u64, [u64; CHUNK as usize / 64]>);

impl InoSet {
    fn insert(&mut self, ino: u64) {
        self.0.entry(ino / CHUNK).or_default()[(ino % CHUNK / 64) as usize] |= 1 << (ino % 64);
    }

    fn contains(&self, ino: u64) -> bool {
        self.0.get(&(ino / CHUNK)).is_some_and(|bits| bits[(ino % CHUNK / 64) as usize] & (1 << (ino % 64)) != 0)
    }
}

/// Directories seen so far.
#[derive(Default)]
pub struct Tree {
    below_root: InoSet,
    open: BTreeMap<u64, u64>,
}

impl Tree {
    /// Adds a directory and the parent that it records.
    pub fn add(&mut self, ino: Ino, parent: Ino) {
        if ino == Ino::ROOT || self.below_root.contains(parent.0) {
            self.below_root.insert(ino.0);
        } else {
            self.open.insert(ino.0, parent.0);
        }
    }

    /// Adds a directory without a name. What is below it goes with it, and is not cut off.
    pub fn add_orphan(&mut self, ino: Ino) {
        self.below_root.insert(ino.0);
    }

    /// The topmost directories that are not below the root, with their parents. A cycle gives the one with the lowest
    /// number. To be called after all directories were added.
    pub fn cut_off(self) -> Vec<(Ino, Ino)> {
        let Self { below_root, open } = self;
        let mut done = HashSet::new();
        let mut tops = Vec::new();
        for &start in open.keys() {
            let (mut way, mut places) = (Vec::new(), HashMap::new());
            let mut at = start;
            while !done.contains(&at) && !below_root.contains(at) {
                if let Some(&from) = places.get(&at) {
                    tops.extend(way[from..].iter().min().copied());
                    break;
                }
                let Some(parent) = open.get(&at) else {
                    tops.extend(way.last().copied());
                    break;
                };
                places.insert(at, way.len());
                way.push(at);
                at = *parent;
            }
            done.extend(way);
        }
        debug_assert!(tops.iter().collect::<HashSet<_>>().len() == tops.len(), "a top is named twice: {tops:?}");
        tops.into_iter().map(|top: u64| (Ino(top), Ino(open[&top]))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_topmost_detached_directories_are_named() {
        let mut tree = Tree::default();
        // 2 below the root, 9 below 600 below 2; 5 in a cycle with 7, 6 below it; 8 below one that does not exist.
        for (ino, parent) in [(1, 1), (2, 1), (5, 7), (6, 5), (7, 5), (8, 400), (9, 600), (10, 8), (600, 2)] {
            tree.add(Ino(ino), Ino(parent));
        }
        assert_eq!(tree.cut_off(), [(Ino(5), Ino(7)), (Ino(8), Ino(400))]);
    }

    #[test]
    fn what_is_below_an_orphan_is_not_detached() {
        let mut tree = Tree::default();
        for (ino, parent) in [(1, 1), (4, 20), (5, 4)] {
            tree.add(Ino(ino), Ino(parent));
        }
        tree.add_orphan(Ino(20));
        assert_eq!(tree.cut_off(), []);
    }
}
