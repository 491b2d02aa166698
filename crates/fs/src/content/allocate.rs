//! `fallocate`: ranges of a file reserved, punched or zeroed.

use std::ops::Range;

use oncefs_engine::Change;

use crate::content::write::{WriteOrigin, assert_covered, assert_growth_fits, end_of_range, written};
use crate::format::inode::InodeRecord;
use crate::inodes::cache::Inode;
use crate::usage::note_reads_and_writes::replaces;
use crate::{Error, FileSystem, Ino, Privileges, Result};

/// The modes of `fallocate`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AllocateMode {
    /// Reserves space for the holes in the range.
    Reserve {
        /// Whether the file keeps its size if the range ends after it.
        keep_size: bool,
    },
    /// Makes a hole. The file keeps its size.
    PunchHole,
    /// Makes the range read as zeros, with its space reserved.
    ZeroRange {
        /// Whether the file keeps its size if the range ends after it.
        keep_size: bool,
    },
}

impl FileSystem {
    /// Reserves, punches or zeroes `len` bytes at byte `at`. `privileges` says which of set-user-id and set-group-id
    /// survive. A large range takes several commit groups; a crash between them leaves it partly done.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Invalid`: `len` is 0, or the inode is not a regular file.
    /// - `OperationNotPermitted`: the file is immutable, or append-only and the range would lose content.
    /// - `FileTooLarge`: the range ends after [`FILE_BYTES_MAX`](crate::FILE_BYTES_MAX).
    /// - `Stale`: the inode does not exist.
    /// - `IsADirectory`: the inode is a directory.
    /// - `NoSpace`: the data area has no room for the range; nothing is zeroed then.
    /// - `Engine`: a device failed, or metadata is damaged.
    pub fn fallocate(&self, ino: Ino, at: u64, len: u64, mode: AllocateMode, privileges: Privileges) -> Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Err(Error::Invalid("cannot allocate or punch an empty range: give a length above 0"));
        }
        let end = end_of_range(at, len)?;
        let inode = self.inode(ino)?;
        let now = self.clock.now();
        let (_, size) = inode.map_and_size()?;
        if let AllocateMode::Reserve { .. } = mode {
            inode.lock().check_grows()?;
        } else {
            inode.lock().check_changeable()?;
        }
        let is_rewrite = !matches!(mode, AllocateMode::Reserve { .. }) && replaces(size, at..end, 0);
        let edit = |record: &mut InodeRecord| {
            self.monitor.note_written(&mut record.usage, is_rewrite);
            if let AllocateMode::Reserve { keep_size: false } | AllocateMode::ZeroRange { keep_size: false } = mode {
                record.size = record.size.max(end);
            }
            written(record, WriteOrigin::Caller { privileges }, now);
        };
        match mode {
            AllocateMode::Reserve { .. } => self.reserve(&inode, at, len, edit),
            AllocateMode::PunchHole => self.zero(&inode, at, len, false, edit),
            AllocateMode::ZeroRange { .. } => {
                // Reserves first, so that nothing is zeroed if there is no space.
                self.reserve(&inode, at, len, |_| {})?;
                self.zero(&inode, at, len, true, edit)
            }
        }
    }

    fn reserve(&self, inode: &Inode, at: u64, len: u64, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        inode.with_map(|map, _| {
            // Checked first, which bounds the number of parts by the volume's room.
            self.store.check_room(map, at..at + len)?;
            let parts = self.store.parts(map, at..at + len, true)?;
            assert_covered(&parts, at, at + len);
            for Range { start, end } in parts {
                let with = |mapped, change: &mut Change| {
                    assert_growth_fits(start, end, mapped);
                    debug_assert!(mapped >= 0, "reserving bytes {start} to {end} removed {mapped} blocks");
                    self.commit_content(inode, change, mapped, &edit)
                };
                self.store.reserve(map, start, end - start, with)?;
            }
            Ok(())
        })
    }

    fn zero(&self, inode: &Inode, at: u64, len: u64, reserve: bool, edit: impl Fn(&mut InodeRecord)) -> Result<()> {
        inode.with_map(|map, _| {
            let parts = self.store.parts(map, at..at + len, reserve)?;
            assert_covered(&parts, at, at + len);
            for Range { start, end } in parts {
                let with = |mapped, change: &mut Change| {
                    assert_growth_fits(start, end, mapped);
                    debug_assert!(reserve || mapped <= 0, "punching bytes {start} to {end} added {mapped} blocks");
                    self.commit_content(inode, change, mapped, &edit)
                };
                self.store.zero(map, start, end - start, reserve, with)?;
            }
            Ok(())
        })
    }
}
