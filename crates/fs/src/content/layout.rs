//! The layout of a file in the data area: explaining it, defragmenting it, and compressing or expanding it.

use oncefs_engine::{
    BLOCK_BYTES, Compared, Conversion, Converted, DefragOptions, DefragOutcome, Explained, ExplainedRun, Lbn,
    MapCursor, What, push_run,
};

use crate::{FileSystem, Ino, Result};

impl FileSystem {
    /// The layout of a portion of a regular file that starts at block `from`, and the reasons for it; see
    /// [`oncefs_engine::Store::explain`]. The last portion ends with a hole up to the file's size.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn explain(&self, ino: Ino, from: Lbn) -> Result<Explained> {
        let inode = self.inode(ino)?;
        inode.with_map(|map, size| {
            let mut explained = self.store.explain(map, from)?;
            if explained.next.is_none() {
                let end = explained.runs.last().map_or(from.0, |run| run.lbn + run.blocks);
                let blocks = size.div_ceil(BLOCK_BYTES as u64).saturating_sub(end);
                push_run(&mut explained.runs, ExplainedRun::plain(end, blocks, What::Hole));
            }
            Ok(explained)
        })
    }

    /// The blocks of a portion of a regular file that starts at block `from`, and which of them an older file has at the
    /// same place; see [`oncefs_engine::Store::compare`].
    ///
    /// # Errors
    ///
    /// - `Stale`: an inode does not exist, or the older file was truncated meanwhile.
    /// - `IsADirectory`, `Invalid`: an inode is not a regular file.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn compare(&self, ino: Ino, older: Option<Ino>, from: Lbn) -> Result<Compared> {
        let older = older.map(|older| self.inode(older)?.with_map(|map, _| Ok(map))).transpose()?;
        self.inode(ino)?.with_map(|map, _| Ok(self.store.compare(map, older, from)?))
    }

    /// Defragments a portion of a regular file that starts at `options.from`; see [`oncefs_engine::Store::defrag`]. The
    /// file's times do not change.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes, and this is not a dry run.
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `Engine`: a device failed, or metadata is damaged. A lack of space is not an error: the outcome counts it.
    pub fn defrag(&self, ino: Ino, options: &DefragOptions) -> Result<DefragOutcome> {
        if !options.dry_run {
            self.check_writable()?;
        }
        let inode = self.inode(ino)?;
        inode.with_map(|map, _| Ok(self.store.defrag(map, options)?))
    }

    /// Compresses or expands a portion of a regular file, or of all files; see [`oncefs_engine::Store::convert`]. Times of
    /// files do not change.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`, `Invalid`: the inode is not a regular file.
    /// - `Engine`: the volume is not set up for this, a device failed, or metadata is damaged. A lack of space is not an
    ///   error: the result counts it.
    pub fn convert(&self, what: Conversion, only: Option<Ino>, from: MapCursor) -> Result<Converted> {
        self.check_writable()?;
        match only {
            None => Ok(self.store.convert(what, None, from)?),
            Some(ino) => self.inode(ino)?.with_map(|map, _| Ok(self.store.convert(what, Some(map), from)?)),
        }
    }
}
