//! Lazy clones of files: a new file that has the content of another at one moment, however large that is.

use std::cell::RefCell;
use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, Blocks, Change, FilePolicy, MapId};

use crate::content::write::{WriteOrigin, written};
use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::names::directory::check_new_name;
use crate::{Attributes, Caller, Error, FileSystem, Ino, Privileges, Result};

impl FileSystem {
    /// Does what may take long before [`FileSystem::clone_file`]. See [`oncefs_engine::Store::prepare_clone`].
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Stale`: the source does not exist.
    /// - `IsADirectory`, `Invalid`: the source is not a regular file.
    /// - `Engine`, `NoSpace`: a device failed, or metadata is damaged.
    pub fn prepare_clone(&self, source: Ino) -> Result<()> {
        self.check_writable()?;
        let (map, _) = self.inode(source)?.map_and_size()?;
        Ok(self.store.prepare_clone(map)?)
    }

    /// Prepares a [`FileSystem::clone_file`] during which another file system stands still: does all that may take
    /// long. See [`oncefs_engine::Store::settle_before_clone`].
    ///
    /// # Errors
    ///
    /// As [`FileSystem::prepare_clone`].
    pub fn settle_before_clone(&self, source: Ino) -> Result<()> {
        self.check_writable()?;
        let (map, _) = self.inode(source)?.map_and_size()?;
        Ok(self.store.settle_before_clone(map)?)
    }

    /// Whether [`FileSystem::clone_file`] would complete no earlier clone first. See
    /// [`oncefs_engine::Store::clone_begins_at_once`].
    ///
    /// # Errors
    ///
    /// - `Stale`: the source does not exist.
    /// - `IsADirectory`, `Invalid`: the source is not a regular file.
    /// - `Engine`: a device failed, or metadata is damaged.
    pub fn clone_begins_at_once(&self, source: Ino) -> Result<bool> {
        let (map, _) = self.inode(source)?.map_and_size()?;
        Ok(self.store.clone_begins_at_once(map))
    }

    /// Makes a regular file `name` in the directory `parent` with the content and the permissions of `source`. The
    /// content is that of one moment, and takes no longer for a large file than for a small one
    /// ([`oncefs_engine::Store::clone_map`] says what comes later). Only reserved space is not cloned.
    ///
    /// The file has its content before its name: a crash in between leaves no file. After an error there is none either.
    ///
    /// # Errors
    ///
    /// - As [`FileSystem::mknod`] and [`FileSystem::prepare_clone`].
    /// - `Invalid`: the source's reserved space changed all the time.
    pub fn clone_file(&self, source: Ino, parent: Ino, name: &[u8], caller: &Caller<'_>) -> Result<Attributes> {
        self.prepare_clone(source)?;
        check_new_name(name)?;
        let source = self.inode(source)?;
        let permissions = source.lock().permissions & 0o777;
        if self.find(parent, name)?.is_some() {
            return Err(Error::Exists);
        }
        let (made, now) = (self.tmpfile(parent, permissions, caller)?.ino, self.clock.now());
        let also = |record: &mut InodeRecord, _: &InodeRecord| {
            written(record, WriteOrigin::Caller { privileges: Privileges::Kept }, now);
        };
        let named = self
            .inode(made)
            .and_then(|target| self.share_content(&source, &target, &also))
            .and_then(|()| self.link(made, parent, name));
        if named.is_err()
            && let Err(error) = self.forget(made)
        {
            log::debug!("inode {}, a clone without a name, is left to the next mount: {error}", made.0);
        }
        named
    }

    /// Gives an empty file the content of another. `also` sets what goes with it, from the source's record of the same
    /// moment.
    pub(crate) fn share_content(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        also: &impl Fn(&mut InodeRecord, &InodeRecord),
    ) -> Result<()> {
        let empty = target.map_and_size()?.0;
        source.with_map(|map, _| {
            // Changes of the map are published under its lock, so size and blocks stay in step with it.
            let seen = RefCell::new(None);
            let blocks = || {
                let record = source.lock().clone();
                let blocks = Blocks(record.size.div_ceil(BLOCK_BYTES as u64));
                seen.replace(Some(record));
                blocks
            };
            let with = |clone: MapId, reserved, change: &mut Change| {
                let seen = seen.take().expect("the store asks for the blocks first");
                self.store.first_policy(change, empty, FilePolicy::default());
                self.edit_inode(target, change, |record| {
                    debug_assert_eq!((record.map, record.size), (empty, 0), "inode {} is not empty", target.ino.0);
                    (record.map, record.size) = (clone, seen.size);
                    record.blocks = seen.blocks.saturating_sub(reserved);
                    also(record, &seen);
                })
            };
            self.store.clone_map(map, blocks, with)?;
            Ok(())
        })
    }
}
