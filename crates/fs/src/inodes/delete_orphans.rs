//! Deletes orphans that are no longer in use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use oncefs_engine::{Change, FilePolicy};

use crate::attributes::policy::{COMPRESS_ATTRIBUTE, POLICY_ATTRIBUTE};
use crate::format::codec::after;
use crate::format::{inode, orphan, symlink, xattr};
use crate::inodes::cache::Inode;
use crate::inodes::orphans::Nameless;
use crate::inodes::staged::Staged;
use crate::trees::TreeProgress;
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// Attributes deleted in one publication. Bounds its part of a commit group to 20 KiB.
const PORTION_ATTRIBUTES: usize = 64;
/// Orphan records fetched at a time.
const PAGE_RECORDS: usize = 256;

impl FileSystem {
    /// Deletes the inode if it has no name. Called when the inode is no longer in use. Its blocks are freed in the
    /// background. After an error the inode stays an orphan, and the next mount tries again.
    ///
    /// # Errors
    ///
    /// - `NoSpace`: the host's file system is full.
    /// - `ReadOnly`: an earlier failure made the volume read-only.
    /// - `Engine`: the store failed.
    pub fn forget(&self, ino: Ino) -> Result<()> {
        // Removed first, so that only one of two calls for an inode reclaims it.
        let Some(why) = self.orphans.take(ino) else { return Ok(()) };
        self.reclaim(ino).inspect_err(|_| self.orphans.add(ino, why))
    }

    /// Adds an orphan record to the change that takes the last name of an inode.
    pub(crate) fn put_orphan(&self, change: &mut Change, ino: Ino) {
        change.put(orphan::key(ino), orphan::encode(ino, self.numbers.epoch()));
    }

    /// Publishes a change that may take the last name of an inode.
    pub(crate) fn publish_orphaning(&self, staged: Staged, change: Change, orphaned: Option<Ino>) -> Result<()> {
        if let Some(ino) = orphaned {
            assert_eq!(staged.get(ino).nlink, 0, "inode {} became an orphan, but has names", ino.0);
        }
        staged.publish(&self.store, change)?;
        if let Some(ino) = orphaned {
            self.orphans.add(ino, Nameless::Removed);
        }
        Ok(())
    }

    /// Deletes an orphan. Its attributes are deleted in portions, the last portion together with the inode. A crash
    /// between two portions leaves an orphan with fewer attributes, which the next mount deletes.
    fn reclaim(&self, ino: Ino) -> Result<()> {
        let inode = self.inode(ino)?;
        let xattrs = self.delete_all_but_last_attributes(&inode)?;
        let record = inode.lock().clone();
        let delete = |change: &mut Change| {
            xattrs.into_iter().for_each(|key| change.delete(key));
            change.delete(inode::key(ino));
            change.delete(orphan::key(ino));
            if record.kind == FileKind::Symlink {
                change.delete(symlink::key(ino));
            }
        };
        if record.kind == FileKind::Regular && (record.size, record.blocks) != (0, 0) {
            self.store.detach(record.map, delete)?;
        } else {
            let _room = self.store.room_for_records();
            let mut change = Change::new();
            delete(&mut change);
            if record.kind == FileKind::Regular {
                self.store.first_policy(&mut change, record.map, FilePolicy::default());
            }
            self.store.publish(change)?;
        }
        self.inodes.remove(ino);
        self.ranker.queues().count_gone(ino, &record);
        Ok(())
    }

    /// Deletes the attributes of an orphan except for the last portion, and returns the keys of that portion.
    fn delete_all_but_last_attributes(&self, inode: &Arc<Inode>) -> Result<Vec<Vec<u8>>> {
        if inode.lock().xattrs == 0 {
            return Ok(Vec::new());
        }
        let (mut from, to) = xattr::range(inode.ino);
        loop {
            let portion = self.store.scan(&from, &to, PORTION_ATTRIBUTES)?;
            let keys: Vec<Vec<u8>> = portion.into_iter().map(|(key, _)| key).collect();
            match keys.last() {
                Some(last) if keys.len() == PORTION_ATTRIBUTES => from = after(last),
                _ => return Ok(keys),
            }
            self.delete_attributes(inode, keys)?;
        }
    }

    fn delete_attributes(&self, inode: &Arc<Inode>, keys: Vec<Vec<u8>>) -> Result<()> {
        let _room = self.store.room_for_records();
        let (ino, inodes) = (inode.ino, [inode.clone()]);
        let mut staged = Staged::lock(&inodes);
        let record = staged.edit(ino);
        record.xattrs = record.xattrs.saturating_sub(keys.len() as u32);
        let mut change = Change::new();
        let deleted =
            [POLICY_ATTRIBUTE, COMPRESS_ATTRIBUTE].into_iter().filter(|name| keys.contains(&xattr::key(ino, name)));
        self.attributes_changed(&mut change, staged.get(ino), deleted.map(|name| (name, None)));
        keys.into_iter().for_each(|key| change.delete(key));
        staged.publish(&self.store, change)
    }

    /// Starts the thread that reclaims orphans of earlier mounts. None: there are none.
    pub(crate) fn start_reclaiming(file_system: &Arc<Self>) -> Result<Option<JoinHandle<()>>> {
        let (from, to) = orphan::range(Ino(0));
        if file_system.store.scan(&from, &to, 1)?.is_empty() {
            return Ok(None);
        }
        let file_system = file_system.clone();
        let work = move || {
            if let Err(error) = file_system.reclaim_left_behind() {
                log::warn!("cannot free all deleted files of earlier mounts, the next mount tries again: {error}");
            }
        };
        let thread = thread::Builder::new().name("reclaim".to_owned()).spawn(work);
        thread
            .map(Some)
            .map_err(|error| Error::Engine(oncefs_engine::Error::io("cannot start the thread 'reclaim'", error)))
    }

    /// Deletes the inodes that earlier mounts left without a name, a directory with all that is in it. Returns early when the file system is closed.
    ///
    /// # Errors
    ///
    /// - `NoSpace`: the host's file system is full.
    /// - `ReadOnly`: an earlier failure made the volume read-only.
    /// - `Stale`: an orphan record has no inode; `oncefs fsck` fixes that.
    /// - `Engine`: the store failed, or an orphan record is damaged.
    pub fn reclaim_left_behind(&self) -> Result<()> {
        let (mut from, to) = orphan::range(Ino(0));
        loop {
            let page = self.store.scan(&from, &to, PAGE_RECORDS)?;
            for (key, value) in &page {
                if self.closing.load(Ordering::Relaxed) {
                    return Ok(());
                }
                let damaged = || Error::corrupt("an orphan", "its key has the wrong form");
                let ino = orphan::ino_of_key(key).ok_or_else(damaged)?;
                if orphan::decode(ino, value)? != self.numbers.epoch() {
                    self.remove_orphan_tree(ino, &|_| false, &TreeProgress::default())?;
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_RECORDS => from = after(key),
                _ => return Ok(()),
            }
        }
    }
}
