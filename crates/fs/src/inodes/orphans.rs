//! Orphans: inodes whose last name is gone. They live as long as they are in use. After a crash the next mount reclaims
//! them.
//!
//! Numbered invariants:
//! 1. An inode has an orphan record if and only if its link count is 0; both change in one commit group.
//! 2. `Orphans` has the orphans of this mount, so that forgetting any other inode costs no lookup.

use std::collections::HashMap;
use std::sync::Arc;

use oncefs_engine::sync::Mutex;

use crate::Ino;
use crate::inodes::cache::Inode;

/// Why an inode has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nameless {
    /// It lost its last one.
    Removed,
    /// It never had one, and may get one (O_TMPFILE).
    NeverNamed,
}

/// The orphans that this mount made and has not reclaimed.
#[derive(Default)]
pub(crate) struct Orphans(Mutex<HashMap<Ino, Orphan>>);

struct Orphan {
    why: Nameless,
    /// Keeps the inode in memory, because its times are stored nowhere else.
    held: Option<Arc<Inode>>,
}

impl Orphans {
    /// Whether all orphans of this mount are reclaimed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Adds an inode without a name.
    pub(crate) fn add(&self, ino: Ino, why: Nameless) {
        // On a damaged volume a directory may lose its last name twice. It becomes one orphan.
        self.0.lock().insert(ino, Orphan { why, held: None });
    }

    /// Whether an inode without a name may get one.
    pub(crate) fn may_be_named(&self, ino: Ino) -> bool {
        self.0.lock().get(&ino).is_some_and(|orphan| orphan.why == Nameless::NeverNamed)
    }

    /// Removes an orphan, and says why it had no name. None: the inode is not an orphan of this mount.
    pub(crate) fn take(&self, ino: Ino) -> Option<Nameless> {
        self.0.lock().remove(&ino).map(|orphan| orphan.why)
    }

    /// Keeps an orphan in memory until it is taken. False: the inode is not an orphan of this mount.
    pub(crate) fn hold(&self, inode: &Arc<Inode>) -> bool {
        let mut orphans = self.0.lock();
        let Some(orphan) = orphans.get_mut(&inode.ino) else { return false };
        orphan.held.get_or_insert_with(|| inode.clone());
        true
    }
}
