//! The removal of a whole tree whose top has no name: unfinished copies, also those of earlier mounts, and snapshots.
//!
//! Some names of a directory go in one publication. A subdirectory becomes an orphan of its own with it, so the tree
//! falls apart from above, and every state between two publications is sound. The next mount removes what a crash left.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use oncefs_engine::Change;

use crate::inodes::cache::Inode;
use crate::inodes::orphans::Nameless;
use crate::inodes::staged::Staged;
use crate::names::name_change::NameChange;
use crate::trees::plan::Listed;
use crate::trees::work::TreeProgress;
use crate::{Error, FileFlags, FileSystem, Ino, Result};

/// Names removed in one publication.
const NAMES_MAX: usize = 64;

/// Whether an inode is in use, so that it stays until it is forgotten.
pub(crate) type IsInUse<'a> = &'a dyn Fn(Ino) -> bool;

impl FileSystem {
    /// Removes a snapshot with everything in it. `unnamed` is called once its name is gone: from then on no program
    /// finds it, and a crash does not bring it back. The rest takes as long as it has files; what is left when the file
    /// system is closed goes at the next mount. Inodes for which `is_in_use` is true stay until they are forgotten.
    ///
    /// # Errors
    ///
    /// - `NotFound`: the directory has no such name.
    /// - `Invalid`: the name is not that of a snapshot.
    /// - `NotADirectory`, `Stale`: `parent` is not a directory, or does not exist.
    /// - `InSnapshot`, `OperationNotPermitted`: `parent` is itself in a snapshot, or is immutable or append-only.
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn remove_snapshot(
        &self,
        parent: Ino,
        name: &[u8],
        unnamed: impl FnOnce(),
        is_in_use: &dyn Fn(Ino) -> bool,
        progress: &TreeProgress,
    ) -> Result<()> {
        self.check_writable()?;
        let _under_way = self.tree_work.begin();
        let top = self.unname_snapshot(parent, name)?;
        unnamed();
        self.remove_orphan_tree(top, is_in_use, progress)
    }

    /// Takes the name of a snapshot, whose top becomes an orphan with names in it.
    fn unname_snapshot(&self, parent: Ino, name: &[u8]) -> Result<Ino> {
        let _room = self.begin_change()?;
        let directory = self.directory(parent)?;
        let found = self.find(parent, name)?.ok_or(Error::NotFound)?;
        let top = self.inode_of(parent, &found)?.ok_or(Error::NotFound)?;
        let inodes = [directory, top];
        let mut staged = Staged::lock(&inodes);
        if self.find(parent, name)?.as_ref() != Some(&found) {
            return Err(Error::NotFound);
        }
        staged.get(parent).check_changeable()?;
        let record = staged.get(found.ino);
        if !record.is_directory() || !record.flags.contains(FileFlags::SNAPSHOT) {
            return Err(Error::Invalid("it is not a snapshot"));
        }
        let mut names = NameChange::new(self);
        names.remove(parent, name)?;
        let mut change = Change::new();
        names.finish(&mut change);
        staged.entries_changed(parent, self.clock.now());
        staged.remove_entry(parent)?;
        staged.remove_link(parent)?;
        staged.edit(found.ino).nlink = 0;
        self.put_orphan(&mut change, found.ino);
        staged.publish(&self.store, change)?;
        Ok(found.ino)
    }

    /// Removes an orphan and everything below it. Returns early when the file system is closed.
    pub(crate) fn remove_orphan_tree(&self, top: Ino, is_in_use: IsInUse<'_>, progress: &TreeProgress) -> Result<()> {
        if !self.inode(top)?.lock().is_directory() {
            return self.release_orphan(top, is_in_use);
        }
        // Each with the cookie of the last name that was removed.
        let mut stack = vec![(top, 0)];
        while let Some((directory, cookie)) = stack.last_mut() {
            if self.closing.load(Relaxed) {
                return Ok(());
            }
            let (ino, listed) = (*directory, self.names_after(*directory, *cookie, NAMES_MAX)?);
            let Some(last) = listed.last() else {
                stack.pop();
                self.release_orphan(ino, is_in_use)?;
                continue;
            };
            *cookie = last.cookie;
            progress.names.fetch_add(listed.len() as u64, Relaxed);
            for orphan in self.remove_names(ino, &listed)? {
                let is_directory = orphan.lock().is_directory();
                if is_directory {
                    stack.push((orphan.ino, 0));
                } else {
                    self.release_orphan(orphan.ino, is_in_use)?;
                }
            }
        }
        Ok(())
    }

    /// Removes names of an orphan directory. Returns the inodes that have no name now.
    fn remove_names(&self, directory: Ino, listed: &[Listed]) -> Result<Vec<Arc<Inode>>> {
        let mut inodes = vec![self.inode(directory)?];
        for name in listed {
            match self.inode(name.ino) {
                // Damage: a name without an inode. The name goes all the same.
                Err(Error::Stale) => {}
                inode => inodes.push(inode?),
            }
        }
        let _room = self.begin_change()?;
        // Reads the places before anything is locked. Nothing else changes the names of an orphan.
        let mut names = NameChange::new(self);
        for name in listed {
            names.entry(directory, &name.name)?;
        }
        let mut staged = Staged::lock(&inodes);
        let mut change = Change::new();
        let mut orphaned = Vec::new();
        for name in listed {
            names.remove(directory, &name.name)?;
            staged.remove_entry(directory)?;
            let Some(inode) = inodes.iter().find(|inode| inode.ino == name.ino) else { continue };
            let record = staged.edit(name.ino);
            record.nlink = if record.is_directory() { 0 } else { record.nlink.saturating_sub(1) };
            if record.nlink == 0 {
                self.put_orphan(&mut change, name.ino);
                orphaned.push(inode.clone());
            }
        }
        names.finish(&mut change);
        staged.publish(&self.store, change)?;
        Ok(orphaned)
    }

    /// Deletes an orphan without names in it, at once or when it is forgotten.
    fn release_orphan(&self, ino: Ino, is_in_use: IsInUse<'_>) -> Result<()> {
        // Added first, so that a concurrent `forget` finds it.
        self.orphans.add(ino, Nameless::Removed);
        if is_in_use(ino) { Ok(()) } else { self.forget(ino) }
    }
}
