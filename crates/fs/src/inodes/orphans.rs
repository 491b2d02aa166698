//! Orphans: inodes whose last name is gone. They live until nobody uses them, over a crash as long as it takes to
//! reclaim them.
//!
//! Numbered invariants:
//! 1. An inode has an orphan record if and only if its link count is 0; both change in one commit group.
//! 2. `Orphans` holds the orphans of this mount, so that forgetting any other inode costs no look-up.

use std::collections::HashSet;

use parking_lot::Mutex;

use crate::Ino;

/// The orphans that this mount made and has not reclaimed.
#[derive(Default)]
pub(crate) struct Orphans(Mutex<HashSet<Ino>>);

impl Orphans {
    /// Whether every inode without a name is reclaimed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Adds the inode that lost its last name, if one did.
    pub(crate) fn add(&self, orphaned: Option<Ino>) {
        self.0.lock().extend(orphaned);
    }

    /// Takes an orphan out. False: the inode is none of this mount.
    pub(crate) fn take(&self, ino: Ino) -> bool {
        self.0.lock().remove(&ino)
    }
}
