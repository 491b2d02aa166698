//! The names that one publication adds and removes.

use oncefs_engine::Change;

use crate::format::dirent::{self, Names, Place};
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// Names to add and to remove. Sees its own additions and removals. The caller holds the locks of the directories.
pub(crate) struct NameChange<'a> {
    file_system: &'a FileSystem,
    touched: Vec<(Ino, Place, Names)>,
}

impl<'a> NameChange<'a> {
    pub(crate) fn new(file_system: &'a FileSystem) -> Self {
        Self { file_system, touched: Vec::with_capacity(2) }
    }

    fn names(&mut self, parent: Ino, place: Place) -> Result<&mut Names> {
        let at = self.touched.iter().position(|(ino, at, _)| (*ino, *at) == (parent, place));
        let at = match at {
            Some(at) => at,
            None => {
                self.touched.push((parent, place, self.file_system.names_at(parent, place)?));
                self.touched.len() - 1
            }
        };
        Ok(&mut self.touched[at].2)
    }

    /// Adds a name, or points an existing one to another inode. Fails with `NoSpace` if 256 names of the directory have the
    /// same hash.
    pub(crate) fn set(&mut self, parent: Ino, name: &[u8], ino: Ino, kind: FileKind) -> Result<()> {
        let place = self.file_system.place(name);
        if self.names(parent, place)?.set(name, ino, kind) { Ok(()) } else { Err(Error::NoSpace) }
    }

    /// Removes a name.
    pub(crate) fn remove(&mut self, parent: Ino, name: &[u8]) -> Result<()> {
        let place = self.file_system.place(name);
        self.names(parent, place)?.remove(name);
        Ok(())
    }

    /// Adds the records to `change`.
    pub(crate) fn finish(self, change: &mut Change) {
        assert!(self.touched.len() <= 2, "a change touched names at {} places", self.touched.len());
        for (parent, place, names) in self.touched {
            let key = dirent::key(parent, place);
            if names.is_empty() {
                change.delete(key);
            } else {
                change.put(key, names.encode(parent));
            }
        }
    }
}
