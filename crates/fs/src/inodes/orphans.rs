//! Orphans: inodes whose last name is gone. They live until nothing uses them. After a crash the next mount reclaims them.
//!
//! Numbered invariants:
//! 1. An inode has an orphan record if and only if its link count is 0; both change in one commit group.
//! 2. `Orphans` has the orphans of this mount, so that forgetting any other inode costs no lookup.

use std::collections::HashSet;

use oncefs_engine::sync::Mutex;

use crate::Ino;

/// The orphans that this mount made and has not reclaimed.
#[derive(Default)]
pub(crate) struct Orphans(Mutex<HashSet<Ino>>);

impl Orphans {
    /// Whether all orphans of this mount are reclaimed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Adds the inode that lost its last name, if one did.
    pub(crate) fn add(&self, orphaned: Option<Ino>) {
        // On a damaged volume a directory may lose its last name twice: it is an orphan once.
        self.0.lock().extend(orphaned);
    }

    /// Removes an orphan. False: the inode is not an orphan of this mount.
    pub(crate) fn take(&self, ino: Ino) -> bool {
        self.0.lock().remove(&ino)
    }
}
