//! Several inodes locked together, whose edited records take effect when they are published.

use std::sync::Arc;

use oncefs_engine::sync::MutexGuard;
use oncefs_engine::{Change, Store};

use crate::format::inode::InodeRecord;
use crate::format::inode::put_inode;
use crate::inodes::cache::Inode;
use crate::{Error, Ino, Result, Timestamp};

/// Locked inodes. Edits become visible when they are published, and are dropped otherwise.
pub(crate) struct Staged<'a> {
    locked: Vec<Locked<'a>>,
}

struct Locked<'a> {
    ino: Ino,
    current: MutexGuard<'a, InodeRecord>,
    edited: Option<InodeRecord>,
}

impl<'a> Staged<'a> {
    /// Locks the inodes in ascending order, each once.
    pub(crate) fn lock(inodes: &'a [Arc<Inode>]) -> Self {
        let mut sorted: Vec<&Inode> = inodes.iter().map(Arc::as_ref).collect();
        sorted.sort_by_key(|inode| inode.ino);
        sorted.dedup_by_key(|inode| inode.ino);
        debug_assert!(sorted.is_sorted_by(|a, b| a.ino < b.ino), "{} inodes to lock are not in order", sorted.len());
        let locked = sorted.into_iter().map(|inode| Locked { ino: inode.ino, current: inode.lock(), edited: None });
        Self { locked: locked.collect() }
    }

    fn at(&self, ino: Ino) -> usize {
        let found = self.locked.binary_search_by_key(&ino, |locked| locked.ino);
        found.expect("callers ask only for inodes that they gave to `lock`")
    }

    /// The record with its edits.
    pub(crate) fn get(&self, ino: Ino) -> &InodeRecord {
        let locked = &self.locked[self.at(ino)];
        locked.edited.as_ref().unwrap_or(&locked.current)
    }

    /// The record, for editing.
    pub(crate) fn edit(&mut self, ino: Ino) -> &mut InodeRecord {
        let at = self.at(ino);
        let locked = &mut self.locked[at];
        locked.edited.get_or_insert_with(|| locked.current.clone())
    }

    /// Sets the times of a directory whose entries change.
    pub(crate) fn entries_changed(&mut self, ino: Ino, now: Timestamp) -> &mut InodeRecord {
        let record = self.edit(ino);
        debug_assert!(record.is_directory(), "entries of inode {} changed, but it is a {:?}", ino.0, record.kind);
        (record.mtime, record.ctime) = (now, now);
        record
    }

    /// Counts one entry fewer in a directory. A count of zero means damage.
    pub(crate) fn remove_entry(&mut self, ino: Ino) -> Result<()> {
        let record = self.edit(ino);
        record.entries = record.entries.checked_sub(1).ok_or_else(|| too_many(ino, "entries"))?;
        Ok(())
    }

    /// Counts one link fewer. A count of zero means damage.
    pub(crate) fn remove_link(&mut self, ino: Ino) -> Result<()> {
        let record = self.edit(ino);
        record.nlink = record.nlink.checked_sub(1).ok_or_else(|| too_many(ino, "names and subdirectories"))?;
        Ok(())
    }

    /// Publishes the edited records together with `change`.
    pub(crate) fn publish(mut self, store: &Store, mut change: Change) -> Result<()> {
        for locked in &self.locked {
            if let Some(edited) = &locked.edited {
                debug_assert_eq!(
                    edited.kind, locked.current.kind,
                    "an edit changed the kind of inode {}",
                    locked.ino.0
                );
                put_inode(&mut change, locked.ino, edited);
            }
        }
        store.publish(change)?;
        for locked in &mut self.locked {
            if let Some(edited) = locked.edited.take() {
                *locked.current = edited;
            }
        }
        Ok(())
    }
}

fn too_many(ino: Ino, what: &str) -> Error {
    Error::corrupt(format!("inode {}", ino.0), format!("it has more {what} than its record counts; run oncefs fsck"))
}
