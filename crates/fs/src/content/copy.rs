//! `copy_file_range`: shares whole blocks, and copies the rest at the edges through memory.

use std::sync::Arc;

use oncefs_engine::{BLOCK_BYTES, Blocks, Change, Lbn};

use crate::content::write::{WriteOrigin, assert_growth_fits, written};
use crate::inodes::cache::Inode;
use crate::usage::note_reads_and_writes::replaces;
use crate::{Error, FILE_BYTES_MAX, FileSystem, Ino, Privileges, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks shared at a time, 64 MiB of a file. Bounds the records of one change even if every block is a run of its own.
const CLONE_BLOCKS_MAX: u64 = 16 << 10;

/// Bytes copied through memory at a time.
const COPY_BYTES_MAX: u64 = 1 << 20;

/// A request ends after this much work, counted in bytes copied through memory, so that its thread soon serves others.
const REQUEST_WORK_MAX: u64 = 16 << 20;

/// Sharing this many bytes is as much work as copying one, so a request shares at most 1 GiB.
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
    /// Copies up to `len` bytes from byte `from` of `source` to byte `to` of `target`, and returns how many. They are
    /// fewer at the end of the source, after an error in any step but the first, and after the most that one request
    /// does: 16 MiB copied through memory, or 1 GiB shared. `privileges` says which of the target's set-user-id and
    /// set-group-id survive.
    ///
    /// # Errors
    ///
    /// - `ReadOnly`: the mount or the volume takes no changes.
    /// - `Stale`: one of the inodes does not exist.
    /// - `IsADirectory`: one of the inodes is a directory.
    /// - `Invalid`: one of the inodes is not a regular file, or the ranges overlap within one file.
    /// - `OperationNotPermitted`: the target is immutable, or append-only and would lose content.
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
        target.lock().check_range(&(to..to.saturating_add(len)))?;
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

    /// Does the first part of a range. Returns its bytes and its work. 0 bytes: the source now ends before the range.
    fn copy_step(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        range: Range,
        privileges: Privileges,
    ) -> Result<(u64, u64)> {
        loop {
            let ends = Ends::of(source, target)?;
            let range = Range { len: range.len.min(ends.source.saturating_sub(range.from)), ..range };
            if range.len == 0 {
                return Ok((0, 0));
            }
            match plan(range, ends, source.ino == target.ino, CLONE_BLOCKS_MAX) {
                Step::Copy { bytes } => {
                    let data = self.read(source.ino, range.from, bytes as usize, false)?;
                    self.note_copied(source.ino, data.len() as u64);
                    self.write(target.ino, range.to, &data, WriteOrigin::Caller { privileges })?;
                    return Ok((data.len() as u64, data.len() as u64));
                }
                Step::Clone { blocks, bytes } => {
                    let planned = Planned { range, ends, blocks, bytes };
                    if let Some(bytes) = self.clone_step(source, target, planned, privileges)? {
                        return Ok((bytes, bytes / SHARED_AS_ONE_COPIED));
                    }
                }
            }
        }
    }

    /// Shares as many of the first blocks as fit into one change, and returns the bytes that this completes. None: the
    /// end of a file has changed since the plan, so nothing is shared. The padding in the source's last block may no
    /// longer be zeros.
    fn clone_step(
        &self,
        source: &Arc<Inode>,
        target: &Arc<Inode>,
        planned: Planned,
        privileges: Privileges,
    ) -> Result<Option<u64>> {
        let range = planned.range;
        let now = self.clock.now();
        assert_eq!((range.from % BLOCK, range.to % BLOCK), (0, 0), "only whole blocks can be shared");
        let (from, to) = (Lbn(range.from / BLOCK), Lbn(range.to / BLOCK));
        source.with_map(|source_map, _| {
            target.with_map(|target_map, _| {
                let (source_at, target_at) = ((source_map, from), (target_map, to));
                let planned = planned.first(self.store.clone_part(source_at, target_at, Blocks(planned.blocks))?);
                let Planned { blocks, bytes, .. } = planned;
                let with = |mapped, change: &mut Change| {
                    let end = range.to + bytes;
                    assert_growth_fits(range.to, end, mapped);
                    self.commit_content(target, change, mapped, |record| {
                        let is_rewrite = replaces(record.size, range.to..end, mapped);
                        self.monitor.note_written(&mut record.usage, is_rewrite);
                        record.size = record.size.max(end);
                        written(record, WriteOrigin::Caller { privileges }, now);
                    })
                };
                // Runs with the maps locked, so no request writes or truncates. A file that is enlarged meanwhile gets
                // zeros, which is what its blocks hold there.
                let holds = || Ends::of(source, target).is_ok_and(|now| now.allow(&planned));
                let is_shared = self.store.clone_blocks_if(source_at, target_at, Blocks(blocks), holds, with)?;
                Ok(is_shared.then_some(bytes))
            })
        })
    }
}

/// Where the two files end, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ends {
    source: u64,
    target: u64,
}

/// Blocks to share.
#[derive(Clone, Copy)]
struct Planned {
    range: Range,
    /// Where the files ended then.
    ends: Ends,
    blocks: u64,
    bytes: u64,
}

impl Planned {
    /// The plan reduced to its first blocks.
    fn first(self, blocks: Blocks) -> Self {
        debug_assert!((1..=self.blocks).contains(&blocks.0), "{blocks:?} of {} blocks", self.blocks);
        if blocks.0 == self.blocks { self } else { Self { blocks: blocks.0, bytes: blocks.0 * BLOCK, ..self } }
    }
}

impl Ends {
    fn of(source: &Inode, target: &Inode) -> Result<Self> {
        Ok(Self { source: source.map_and_size()?.1, target: target.map_and_size()?.1 })
    }

    /// Whether the plan is right for files that end here. Whole blocks within the source may always be shared, its last
    /// block only if both files still end with it.
    fn allow(&self, planned: &Planned) -> bool {
        let is_whole = planned.bytes == planned.blocks * BLOCK;
        let is_within = self.source >= planned.range.from + planned.bytes;
        if is_whole { is_within } else { *self == planned.ends }
    }
}

/// Decides the first step of copying a range that is not empty.
fn plan(range: Range, ends: Ends, one_file: bool, clone_blocks_max: u64) -> Step {
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
    let ends_both = from + len == ends.source && to + len >= ends.target && !one_file;
    if whole > 0 {
        let blocks = whole.min(clone_blocks_max);
        return Step::Clone { blocks, bytes: blocks * BLOCK };
    }
    if ends_both { Step::Clone { blocks: 1, bytes: len } } else { copy(len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(from: u64, to: u64, len: u64, source_size: u64, target_size: u64) -> Step {
        plan(Range { from, to, len }, Ends { source: source_size, target: target_size }, false, 1_000)
    }

    #[test]
    fn whole_blocks_are_shared_in_bounded_pieces() {
        assert_eq!(planned(0, BLOCK, 3 * BLOCK, 3 * BLOCK, 0), Step::Clone { blocks: 3, bytes: 3 * BLOCK });
        let all = planned(0, 0, 1 << 32, 1 << 32, 0);
        assert_eq!(all, Step::Clone { blocks: 1_000, bytes: 1_000 * BLOCK });
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
        assert_eq!(
            plan(Range { from: 0, to: BLOCK, len: 100 }, Ends { source: 100, target: 0 }, true, 1_000),
            Step::Copy { bytes: 100 }
        );
    }
}
