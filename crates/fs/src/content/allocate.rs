//! Ranges of a file reserved, punched or zeroed.

use std::ops::Range;

use oncefs_engine::Change;

use crate::content::edit::{WriteOrigin, written};
use crate::content::map::{map_and_size, with_map};
use crate::content::write::end_of_range;
use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::usage::rewrite::replaces;
use crate::{Error, FileSystem, Ino, Result};

/// What `fallocate` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserves space.
    Reserve {
        /// Does not enlarge the file.
        keep_size: bool,
    },
    /// Makes a hole.
    PunchHole,
    /// Makes zeros and keeps the space.
    ZeroRange {
        /// Does not enlarge the file.
        keep_size: bool,
    },
}

impl FileSystem {
    /// Reserves, punches or zeroes a range.
    pub fn fallocate(&self, ino: Ino, at: u64, len: u64, mode: AllocateMode, drop_privileges: bool) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("the range is empty"));
        }
        let end = end_of_range(at, len)?;
        let inode = self.inode(ino)?;
        let now = self.clock.now();
        let (_, size) = map_and_size(&inode)?;
        let is_rewrite = !matches!(mode, AllocateMode::Reserve { .. }) && replaces(size, at..end, 0);
        let edit = |record: &mut InodeRecord| {
            self.note_written(record, is_rewrite);
            if let AllocateMode::Reserve { keep_size: false } | AllocateMode::ZeroRange { keep_size: false } = mode {
                record.size = record.size.max(end);
            }
            written(record, WriteOrigin::Caller { drop_privileges }, now);
        };
        match mode {
            AllocateMode::Reserve { .. } => self.reserve(&inode, at, len, edit),
            AllocateMode::PunchHole => self.zero(&inode, at, len, false, edit),
            AllocateMode::ZeroRange { .. } => {
                // First, so that nothing is zeroed if there is no space.
                self.reserve(&inode, at, len, |_| {})?;
                self.zero(&inode, at, len, true, edit)
            }
        }
    }

    fn reserve(&self, inode: &Inode, at: u64, len: u64, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        with_map(inode, |map, _| {
            let parts = self.store.parts(map, at..at + len, true)?;
            if parts.len() > 1 {
                self.store.check_room(map, at..at + len)?;
            }
            for Range { start, end } in parts {
                let with = |mapped, change: &mut Change| self.commit_content(inode, change, mapped, &edit);
                self.store.reserve(map, start, end - start, with)?;
            }
            Ok(())
        })
    }

    fn zero(&self, inode: &Inode, at: u64, len: u64, reserve: bool, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        with_map(inode, |map, _| {
            for Range { start, end } in self.store.parts(map, at..at + len, reserve)? {
                let with = |mapped, change: &mut Change| self.commit_content(inode, change, mapped, &edit);
                self.store.zero(map, start, end - start, reserve, with)?;
            }
            Ok(())
        })
    }
}
