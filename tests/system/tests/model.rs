//! Random operations on a mount and on a model of a file system in memory: every result must be the same, and so
//! must every name, content and attribute afterwards, through remounts and `kill -9`.
//!
//! Left out: access times (`posix.rs`), permissions (`pjdfstest.rs`), several processes at once (`kill9.rs`).

mod compare;
mod operation;
mod tree;

use std::fs::File;

use compare::{assert_equal, difference};
use operation::{Operation, perform};
use tree::Tree;

use oncefs_system_tests::{Mount, Random, seed};

const ROUNDS: u64 = 6;
const OPERATIONS_PER_ROUND: u64 = 250;
const UNSYNCED_OPERATIONS: u64 = 60;

/// A mount and the model of what it must hold.
struct Pair {
    mount: Mount,
    tree: Tree,
    random: Random,
}

impl Pair {
    fn new(seed: u64) -> Self {
        Pair { mount: Mount::new("2G"), tree: Tree::new(), random: Random::new(seed) }
    }

    /// Performs an operation on both, and requires the same result.
    fn step(&mut self, operation: &Operation) {
        let wanted = self.tree.apply(operation);
        let got = perform(&self.mount.dir(), operation);
        assert_eq!(got, wanted, "errno of the mount and of the model after {operation:?}");
    }

    fn random_steps(&mut self) {
        for _ in 0..OPERATIONS_PER_ROUND {
            let operation = Operation::random(&mut self.random, &self.tree);
            self.step(&operation);
        }
    }

    /// Makes everything durable: data by an fsync of each file, names by one of the root.
    fn sync(&self) {
        for path in self.tree.regular_files() {
            File::open(self.mount.join(path)).unwrap().sync_all().unwrap();
        }
        File::open(self.mount.dir()).unwrap().sync_all().unwrap();
    }

    fn assert_equal(&self, when: &str) {
        assert_equal(&self.mount.dir(), &self.tree, when);
    }

    /// Changes of names and attributes reach oncefs in the order they are made, so after a crash
    /// exactly a prefix of them is there, and at least what was synced.
    fn crash_among_name_changes(&mut self) {
        self.sync();
        let mut prefixes = vec![self.tree.clone()];
        for _ in 0..UNSYNCED_OPERATIONS {
            let operation = Operation::random_name_change(&mut self.random, &self.tree);
            self.step(&operation);
            prefixes.push(self.tree.clone());
        }
        self.mount.crash();
        let differences: Vec<String> = prefixes.iter().map_while(|tree| difference(&self.mount.dir(), tree)).collect();
        assert!(
            differences.len() < prefixes.len(),
            "the mount equals no prefix; it differs from the first in:\n{}",
            differences[0]
        );
        println!(
            "the crash kept {} of {UNSYNCED_OPERATIONS} unsynced changes, or as many as look the same",
            differences.len()
        );
        self.tree = prefixes.swap_remove(differences.len());
    }
}

fn follow_the_model(seed: u64) {
    println!("seed {seed}");
    let mut pair = Pair::new(seed);
    for round in 0..ROUNDS {
        pair.random_steps();
        pair.assert_equal("while mounted");
        match round % 3 {
            0 => {
                pair.mount.remount();
                pair.assert_equal("after a remount");
            }
            1 => {
                pair.sync();
                pair.mount.crash();
                pair.assert_equal("after syncing everything and kill -9");
            }
            _ => pair.crash_among_name_changes(),
        }
    }
    pair.mount.check();
    pair.assert_equal("at the end");
}

#[test]
fn the_mount_does_what_the_model_does_with_seed_1() {
    follow_the_model(1);
}

#[test]
fn the_mount_does_what_the_model_does_with_seed_2() {
    follow_the_model(2);
}

#[test]
fn the_mount_does_what_the_model_does_with_a_new_seed() {
    follow_the_model(seed());
}
