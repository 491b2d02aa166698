//! Removal of names. An inode without a name is an orphan as long as it is in use (`inodes/orphans`).

use std::sync::Arc;

use oncefs_engine::Change;

use crate::format::dirent::{self, Dirent, Place};
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::names::directory::check_name;
use crate::names::name_change::NameChange;
use crate::{Error, FileKind, FileSystem, Ino, Result, Timestamp};

/// The kind of name to remove: `unlink` refuses directories, `rmdir` everything else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    File,
    Directory,
}

impl FileSystem {
    /// Removes a name of a file. Returns the inode if this was its last name. The caller counts uses of inodes, and calls
    /// [`FileSystem::forget`] once this one has none.
    ///
    /// # Errors
    ///
    /// - `NotFound`: the directory has no such name.
    /// - `OperationNotPermitted`: the directory or the file is immutable or append-only.
    /// - `IsADirectory`: the name is that of a directory.
    /// - `NotADirectory`, `Stale`: `parent` is not a directory, or does not exist.
    /// - `NameTooLong`, `Invalid`: `name` cannot be a name.
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `NoSpace`: the host's file system is full.
    /// - `Engine`: the store failed, or metadata is damaged.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove(parent, name, Wanted::File)
    }

    /// Removes an empty directory. Returns its inode, as [`FileSystem::unlink`] does.
    ///
    /// # Errors
    ///
    /// - `NotFound`: the directory `parent` has no such name.
    /// - `NotEmpty`: the directory has entries.
    /// - `NotADirectory`: `parent` or the inode with this name is not a directory.
    /// - Otherwise as [`FileSystem::unlink`].
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove(parent, name, Wanted::Directory)
    }

    fn remove(&self, parent: Ino, name: &[u8], wanted: Wanted) -> Result<Option<Ino>> {
        let _room = self.begin_change()?;
        check_name(name)?;
        let directory = self.directory(parent)?;
        loop {
            let found = self.find(parent, name)?.ok_or(Error::NotFound)?;
            check_wanted(&found, wanted)?;
            let Some(target) = self.inode_of(parent, &found)? else { continue };
            // Permission errors come before the check for an empty directory.
            directory.lock().check_changeable()?;
            target.lock().check_changeable()?;
            let entry = self.first_entry(&target)?;
            let inodes = [directory.clone(), target];
            let mut staged = Staged::lock(&inodes);
            let mut names = NameChange::new(self);
            // The name may have changed before the directory was locked.
            if names.entry(parent, name)? != Some(&found) {
                continue;
            }
            staged.get(parent).check_changeable()?;
            staged.get(found.ino).check_changeable()?;
            if !self.is_still_empty(&staged, found.ino, entry)? {
                continue;
            }
            let mut change = Change::new();
            names.remove(parent, name)?;
            names.finish(&mut change);
            let now = self.clock.now();
            staged.entries_changed(parent, now);
            staged.remove_entry(parent)?;
            let orphaned = self.drop_name(&mut staged, &mut change, parent, found.ino, now)?;
            self.publish_orphaning(staged, change, orphaned)?;
            return Ok(orphaned);
        }
    }

    /// The inode of an entry that was read without a lock. None: it was deleted meanwhile. A name is removed before its
    /// inode, so a name without an inode means damage, and a retry would never end.
    pub(crate) fn inode_of(&self, parent: Ino, dirent: &Dirent) -> Result<Option<Arc<Inode>>> {
        match self.inode(dirent.ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Stale) if self.find(parent, &dirent.name)?.as_ref() == Some(dirent) => Err(Error::corrupt(
                format!("directory {}", parent.0),
                format!("it has a name for inode {}, which does not exist; run oncefs fsck", dirent.ino.0),
            )),
            Err(Error::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts one name fewer for the inode `ino`, whose name was in `parent`. Returns the inode if it was the last. A
    /// directory is empty: see [`FileSystem::is_still_empty`].
    pub(crate) fn drop_name(
        &self,
        staged: &mut Staged,
        change: &mut Change,
        parent: Ino,
        ino: Ino,
        now: Timestamp,
    ) -> Result<Option<Ino>> {
        if staged.get(ino).is_directory() {
            assert_eq!(staged.get(ino).entries, 0, "directory {} is removed with entries", ino.0);
            staged.remove_link(parent)?;
            staged.edit(ino).nlink = 0;
        } else {
            staged.remove_link(ino)?;
        }
        let target = staged.edit(ino);
        target.ctime = now;
        if target.nlink > 0 {
            return Ok(None);
        }
        self.put_orphan(change, ino);
        Ok(Some(ino))
    }

    /// The key of an entry of a directory whose count is 0, which means damage or a removal under way. None: the
    /// directory has no entry, or the inode is not a directory. Called without a lock: after many removals, this lookup
    /// takes as long as reading the removed entries.
    pub(crate) fn first_entry(&self, inode: &Inode) -> Result<Option<Vec<u8>>> {
        {
            let record = inode.lock();
            if !record.is_directory() {
                return Ok(None);
            }
            if record.entries != 0 {
                return Err(Error::NotEmpty);
            }
        }
        let (from, to) = (dirent::key(inode.ino, Place::of_cookie(0)), dirent::end(inode.ino));
        Ok(self.store.scan(&from, &to, 1)?.pop().map(|(key, _)| key))
    }

    /// Refuses a directory with entries. The count decides, and the entry that [`FileSystem::first_entry`] found
    /// verifies it before anything is lost. An entry that was added after that lookup is counted, so an entry that is
    /// neither counted nor gone is damage. False: the entry is gone, and the lookup must be repeated. True also for an
    /// inode that is not a directory.
    pub(crate) fn is_still_empty(&self, staged: &Staged, ino: Ino, entry: Option<Vec<u8>>) -> Result<bool> {
        let record = staged.get(ino);
        if record.is_directory() && record.entries != 0 {
            return Err(Error::NotEmpty);
        }
        match entry {
            None => Ok(true),
            Some(key) if self.store.get(&key)?.is_none() => Ok(false),
            Some(_) => Err(Error::corrupt(
                format!("directory {}", ino.0),
                "it has entries, but its record counts none; run oncefs fsck",
            )),
        }
    }
}

fn check_wanted(found: &Dirent, wanted: Wanted) -> Result<()> {
    match (found.kind, wanted) {
        (FileKind::Directory, Wanted::File) => Err(Error::IsADirectory),
        (FileKind::Directory, Wanted::Directory) | (_, Wanted::File) => Ok(()),
        (_, Wanted::Directory) => Err(Error::NotADirectory),
    }
}
