//! Taking names away. An inode without a name becomes an orphan until nobody uses it (`orphans`).

use std::sync::Arc;

use oncefs_engine::Change;

use crate::format::dirent::{self, Dirent, Place};
use crate::inodes::cache::Inode;
use crate::inodes::staged::Staged;
use crate::names::directory::check_name;
use crate::names::name_change::NameChange;
use crate::{Error, FileKind, FileSystem, Ino, Result, Timestamp};

/// What `unlink` and `rmdir` refuse.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    File,
    Directory,
}

impl FileSystem {
    /// Removes a name of a file. Returns the inode if this was its last name: whoever counts uses of inodes calls
    /// `forget` when there is none (any more).
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove(parent, name, Wanted::File)
    }

    /// Removes an empty directory. Returns its inode, as `unlink` does.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Option<Ino>> {
        self.remove(parent, name, Wanted::Directory)
    }

    fn remove(&self, parent: Ino, name: &[u8], wanted: Wanted) -> Result<Option<Ino>> {
        self.check_writable()?;
        check_name(name)?;
        let directory = self.directory(parent)?;
        loop {
            let found = self.find(parent, name)?.ok_or(Error::NotFound)?;
            check_wanted(&found, wanted)?;
            let Some(target) = self.inode_of(parent, &found)? else { continue };
            let inodes = [directory.clone(), target];
            let mut staged = Staged::lock(&inodes);
            // The name may have changed hands before its directory was locked.
            if self.find(parent, name)?.as_ref() != Some(&found) {
                continue;
            }
            let mut change = Change::new();
            let mut names = NameChange::new(self);
            names.remove(parent, name)?;
            names.finish(&mut change);
            let now = self.clock.now();
            staged.entries_changed(parent, now);
            staged.entry_left(parent)?;
            let orphaned = self.drop_name(&mut staged, &mut change, parent, found.ino, now)?;
            self.publish_orphaning(staged, change, orphaned)?;
            return Ok(orphaned);
        }
    }

    /// The inode of an entry that was read without a lock; None if it was deleted meanwhile. A name goes before its
    /// inode does, so one that is still there without it is damage, and trying again would never end.
    pub(crate) fn inode_of(&self, parent: Ino, dirent: &Dirent) -> Result<Option<Arc<Inode>>> {
        match self.inode(dirent.ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Stale) if self.find(parent, &dirent.name)?.as_ref() == Some(dirent) => Err(Error::corrupt(
                format!("directory {}", parent.0),
                format!("it has a name for inode {}, which does not exist", dirent.ino.0),
            )),
            Err(Error::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes one name from the inode `ino`, whose name was in `parent`. Returns it if it has no other.
    pub(crate) fn drop_name(
        &self,
        staged: &mut Staged,
        change: &mut Change,
        parent: Ino,
        ino: Ino,
        now: Timestamp,
    ) -> Result<Option<Ino>> {
        if staged.get(ino).is_directory() {
            self.check_empty(staged, ino)?;
            staged.link_left(parent)?;
            staged.edit(ino).nlink = 0;
        } else {
            staged.link_left(ino)?;
        }
        let target = staged.edit(ino);
        target.ctime = now;
        if target.nlink > 0 {
            return Ok(None);
        }
        self.put_orphan(change, ino);
        Ok(Some(ino))
    }

    /// The count of entries decides; that the store agrees is checked before anything is lost.
    fn check_empty(&self, staged: &Staged, ino: Ino) -> Result<()> {
        if staged.get(ino).entries != 0 {
            return Err(Error::NotEmpty);
        }
        if self.store.scan(&dirent::key(ino, Place::of_cookie(0)), &dirent::end(ino), 1)?.is_empty() {
            return Ok(());
        }
        Err(Error::corrupt(format!("directory {}", ino.0), "it has entries and counts none"))
    }
}

fn check_wanted(found: &Dirent, wanted: Wanted) -> Result<()> {
    match (found.kind, wanted) {
        (FileKind::Directory, Wanted::File) => Err(Error::IsADirectory),
        (FileKind::Directory, Wanted::Directory) | (_, Wanted::File) => Ok(()),
        (_, Wanted::Directory) => Err(Error::NotADirectory),
    }
}
