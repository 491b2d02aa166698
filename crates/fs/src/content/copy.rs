//! `copy_file_range`: shares whole blocks, and copies the rest at the edges through memory.

use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, Blocks, Lbn};

use crate::content::write::{WriteOrigin, assert_growth_fits, written};
use crate::inodes::cache::Inode;
use crate::usage::note_reads_and_writes::replaces;
use crate::{Error, FILE_BYTES_MAX, FileSystem, Ino, Privileges, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks shared at a time, 64 MiB of file: bounds the records of one change if every block is a run of its own.
const CLONE_BLOCKS_MAX: u64 = 16 << 10;

/// Bytes copied through memory at a time.
const COPY_BYTES_MAX: u64 = 1 << 20;

/// A request ends after so much work, counted in bytes copied through memory: whoever serves it is there for others soon.
const REQUEST_WORK_MAX: u64 = 16 << 20;

/// So many bytes are shared with the work of one that is copied: a request shares 1 GiB at most.
const SHARED_AS_ONE_COPIED: u64 = 64;
const _: () = assert!(REQUEST_WORK_MAX >= COPY_BYTES_MAX.next_multiple_of(BLOCK), "each step fits into a request");

/// A range of one file, and the offset in another to which it is copied, in bytes.
#[derive(Clone, Copy)]
struct Range {
    from: u64,
    to: u64,
    len: u64,
}

/// How the first part of a range is copied.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Share `blocks` blocks, which completes `bytes` bytes.
    Clone { blocks: u64, bytes: u64 },
    /// Read and write bytes.
    Copy { bytes: u64 },
}

impl FileSystem {
    /// Copies up to `len` bytes from byte `from` of `source` to byte `to` of `target`, and returns how many. They are fewer
    /// at the end of the source, if an error ends the copy after its first step, and where there is more to do than one
    /// request should: after 16 MiB copied through memory, or 1 GiB shared. `privileges` says what is left of the
    /// target's set-user-id and set-group-id.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Stale`: one of the inodes does not exist.
    /// - `IsADirectory`: one of the inodes is a directory.
    /// - `Invalid`: one of the inodes is not a regular file, or the ranges overlap within one file.
    /// - `FileTooLarge`: the target would end after [`FILE_BYTES_MAX`].
    /// - `NoSpace`: the data area or the host's file system is full; see [`FileSystem::make_room`].
    /// - `Engine`: a device failed, or a block or metadata is damaged.
    pub fn copy_file_range(
        &self,
        source: Ino,
        from: u64,
        target: Ino,
        to: u64,
        len: u64,
        privileges: Privileges,
    ) -> Result<u64> {
        self.check_writable()?;
        let (source, target) = (self.inode(source)?, self.inode(target)?);
        let (_, size) = source.map_and_size()?;
        target.map_and_size()?;
        let len = len.min(size.saturating_sub(from));
        if to.checked_add(len).is_none_or(|end| end > FILE_BYTES_MAX) {
            return Err(Error::FileTooLarge);
        }
        if source.ino == target.ino && from.abs_diff(to) < len {
            return Err(Error::Invalid("cannot copy a range of a file onto itself: the ranges overlap"));
        }
        if len > 0 {
            self.note_copied(source.ino, 0);
            self.touch_atime(&source);
        }
        let (mut copied, mut work) = (0, 0);
        while copied < len && work < REQUEST_WORK_MAX {
            let rest = Range { from: from + copied, to: to + copied, len: len - copied };
            match self.copy_step(&source, &target, rest, privileges) {
                Ok((0, _)) => break,
                Ok((bytes, step_work)) => (copied, work) = (copied + bytes, work + step_work),
                Err(_) if copied > 0 => break,
                Err(error) => return Err(error),
            }
        }
        assert!(copied <= len, "copied {copied} of {len} bytes from inode {} to inode {}", source.ino.0, target.ino.0);
        Ok(copied)
    }

    /// Does the first part of a range. Gives its bytes, and how much work it was.
    fn copy_step(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        range: Range,
        privileges: Privileges,
    ) -> Result<(u64, u64)> {
        let (source_size, target_size) = (source.map_and_size()?.1, target.map_and_size()?.1);
        match plan(range, source_size, target_size, source.ino == target.ino) {
            Step::Copy { bytes } => {
                let data = self.read(source.ino, range.from, bytes as usize, false)?;
                self.note_copied(source.ino, data.len() as u64);
                self.write(target.ino, range.to, &data, WriteOrigin::Caller { privileges })?;
                Ok((data.len() as u64, data.len() as u64))
            }
            Step::Clone { blocks, bytes } => {
                self.clone_step(source, target, range, blocks, bytes, privileges)?;
                Ok((bytes, bytes / SHARED_AS_ONE_COPIED))
            }
        }
    }

    fn clone_step(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        range: Range,
        blocks: u64,
        bytes: u64,
        privileges: Privileges,
    ) -> Result<()> {
        let now = self.clock.now();
        assert_eq!((range.from % BLOCK, range.to % BLOCK), (0, 0), "only whole blocks can be shared");
        let (from, to) = (Lbn(range.from / BLOCK), Lbn(range.to / BLOCK));
        source.with_map(|source_map, _| {
            target.with_map(|target_map, _| {
                Ok(self.store.clone_blocks(source_map, from, target_map, to, Blocks(blocks), |mapped, change| {
                    let end = range.to + bytes;
                    assert_growth_fits(range.to, end, mapped);
                    self.commit_content(target, change, mapped, |record| {
                        let is_rewrite = replaces(record.size, range.to..end, mapped);
                        self.monitor.note_written(&mut record.usage, is_rewrite);
                        record.size = record.size.max(end);
                        written(record, WriteOrigin::Caller { privileges }, now);
                    })
                })?)
            })
        })
    }
}

/// Decides the first step of copying a range that is not empty.
fn plan(range: Range, source_size: u64, target_size: u64, one_file: bool) -> Step {
    let Range { from, to, len } = range;
    assert!(len > 0, "nothing to copy from {from} to {to}");
    let copy = |bytes: u64| Step::Copy { bytes: bytes.min(COPY_BYTES_MAX) };
    if from % BLOCK != to % BLOCK {
        return copy(len);
    }
    if from % BLOCK != 0 {
        return copy(len.min(BLOCK - from % BLOCK));
    }
    let whole = len / BLOCK;
    // The source's last block is padded with zeros: it can be shared if the target ends there too.
    let ends_both = from + len == source_size && to + len >= target_size && !one_file;
    if whole > 0 {
        let blocks = whole.min(CLONE_BLOCKS_MAX);
        return Step::Clone { blocks, bytes: blocks * BLOCK };
    }
    if ends_both { Step::Clone { blocks: 1, bytes: len } } else { copy(len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(from: u64, to: u64, len: u64, source_size: u64, target_size: u64) -> Step {
        plan(Range { from, to, len }, source_size, target_size, false)
    }

    #[test]
    fn whole_blocks_are_shared_in_bounded_pieces() {
        assert_eq!(planned(0, BLOCK, 3 * BLOCK, 3 * BLOCK, 0), Step::Clone { blocks: 3, bytes: 3 * BLOCK });
        let all = planned(0, 0, 1 << 32, 1 << 32, 0);
        assert_eq!(all, Step::Clone { blocks: CLONE_BLOCKS_MAX, bytes: CLONE_BLOCKS_MAX * BLOCK });
    }

    #[test]
    fn edges_are_copied_and_the_blocks_between_them_shared() {
        assert_eq!(planned(100, 100, 2 * BLOCK, 9 * BLOCK, 0), Step::Copy { bytes: BLOCK - 100 });
        assert_eq!(planned(BLOCK, BLOCK, BLOCK + 100, 9 * BLOCK, 0), Step::Clone { blocks: 1, bytes: BLOCK });
        assert_eq!(planned(2 * BLOCK, 2 * BLOCK, 100, 9 * BLOCK, 0), Step::Copy { bytes: 100 });
    }

    #[test]
    fn ranges_that_lie_differently_in_their_blocks_are_copied() {
        assert_eq!(planned(0, 1, 3 * BLOCK, 3 * BLOCK, 0), Step::Copy { bytes: 3 * BLOCK });
        assert_eq!(planned(0, 1, 1 << 30, 1 << 30, 0), Step::Copy { bytes: COPY_BYTES_MAX });
    }

    #[test]
    fn the_last_block_is_shared_only_when_it_ends_both_files() {
        assert_eq!(planned(0, 0, 100, 100, 0), Step::Clone { blocks: 1, bytes: 100 });
        assert_eq!(planned(0, 0, 100, 100, 100), Step::Clone { blocks: 1, bytes: 100 });
        assert_eq!(planned(0, 0, 100, 100, 101), Step::Copy { bytes: 100 });
        assert_eq!(planned(0, 0, 100, 101, 0), Step::Copy { bytes: 100 });
        assert_eq!(plan(Range { from: 0, to: BLOCK, len: 100 }, 100, 0, true), Step::Copy { bytes: 100 });
    }
}
