//! Operations of a workload, as values.

use oncefs_engine::{BLOCK_BYTES, BackgroundStep, Compress};
use oncefs_fs::{AllocateMode, FileFlags, RenameMode};
use oncefs_toolbox::Random;

/// A path below the root: `name` or `directory/name`.
pub type Path = &'static str;

/// From this number on, contents shrink to about a quarter when they are compressed. The others do not shrink.
const SHRINKING_FROM: u64 = 1 << 60;
/// Random bytes of a block that shrinks. The rest is zeros.
const SHRINKING_BYTES: usize = BLOCK_BYTES / 4;

/// Bytes to write: block `n` has the content number `first + n * step`, and number 0 is zeros. Equal numbers are equal
/// blocks in all files.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    /// Number of the first block.
    pub first: u64,
    /// 1: all blocks differ; 0: all are equal.
    pub step: u64,
    /// Length; the last block may be cut.
    pub bytes: usize,
}

impl Content {
    /// `bytes` bytes, whose first block has this number.
    pub const fn from(first: u64, bytes: usize) -> Self {
        Self { first, step: 1, bytes }
    }

    /// `bytes` bytes, which shrink when they are compressed.
    pub const fn shrinking(first: u64, bytes: usize) -> Self {
        Self { first: SHRINKING_FROM + first, step: 1, bytes }
    }

    /// Zeros.
    pub const fn zeros(bytes: usize) -> Self {
        Self { first: 0, step: 0, bytes }
    }

    /// The bytes themselves.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.bytes];
        for (block, at) in bytes.chunks_mut(BLOCK_BYTES).zip(0..) {
            let number = self.first + at * self.step;
            if number > 0 {
                let mut random = Random::new(number);
                let filled = if number < SHRINKING_FROM { block.len() } else { block.len().min(SHRINKING_BYTES) };
                block[..filled]
                    .chunks_mut(8)
                    .for_each(|word| word.copy_from_slice(&random.word().to_le_bytes()[..word.len()]));
            }
        }
        bytes
    }
}

/// One step of a workload.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// mknod of a regular file.
    Create(Path),
    /// open with O_TMPFILE: a file without a name in a directory.
    Tmpfile(Path),
    /// Gives this name to the first file that was made without one.
    NameTmpfile(Path),
    /// mkdir.
    Mkdir(Path),
    /// symlink.
    Symlink(Path),
    /// link: file, new name.
    Link(Path, Path),
    /// unlink. If that was the last name, the file stays open until `Close`.
    Unlink(Path),
    /// Closes all files without a name.
    Close,
    /// rmdir.
    Rmdir(Path),
    /// rename.
    Rename(Path, Path, RenameMode),
    /// rename that leaves a whiteout at the old name.
    RenameLeavingWhiteout(Path, Path),
    /// Sets all flags of a file, as chattr does.
    SetFlags(Path, FileFlags),
    /// pwrite.
    Write(Path, u64, Content),
    /// Writes at the end.
    Append(Path, Content),
    /// pwrite to a file without a name.
    WriteOrphan(u64, Content),
    /// ftruncate.
    Truncate(Path, u64),
    /// fallocate: offset and length.
    Allocate(Path, u64, u64, AllocateMode),
    /// copy_file_range: source and offset, target and offset, length.
    Copy((Path, u64), (Path, u64), u64),
    /// Clones a file lazily: source, new file.
    CloneFile(Path, Path),
    /// Clones a tree or a file under a new name.
    CloneTree(Path, Path),
    /// Makes a snapshot of a directory under a new name.
    SnapshotTree(Path, Path),
    /// Removes a snapshot.
    RemoveSnapshot(Path),
    /// Reads a file to the end, and publishes the noted reads of all files.
    Read(Path),
    /// As `Read`, in requests for single blocks that are not in sequence.
    ReadApart(Path),
    /// setxattr with a value of this length.
    SetXattr(Path, &'static str, usize),
    /// setxattr of the policy of a file or directory.
    SetPolicy(Path, &'static str),
    /// setxattr of the time of a file's compression.
    SetCompress(Path, &'static str),
    /// Flags of a file and the attribute for compression in one change, as `chattr +c` does.
    SetFlagsAndCompression(Path, FileFlags, Option<Compress>),
    /// removexattr.
    RemoveXattr(Path, &'static str),
    /// chmod.
    Chmod(Path, u32),
    /// utimens.
    SetTimes(Path, i64),
    /// fsync, that is a commit of everything.
    Commit,
    /// Enlarges the data area by this many blocks.
    Grow(u64),
    /// A background step.
    Background(BackgroundStep),
    /// A background step, repeated until no work is left.
    Exhaust(BackgroundStep),
    /// Commits, then runs a whole scrub.
    Scrub,
    /// The medium loses a block with this content, which must have a replica.
    Rot(Content),
    /// Defragments a file, except runs of at least this many blocks, and may allocate this many blocks.
    Defrag(Path, u32, u64),
    /// This many seconds pass.
    Wait(i64),
    /// Changes a setting.
    Tune(&'static str, &'static str),
}

impl Operation {
    /// Whether the operation itself makes its own and earlier changes durable.
    pub fn commits(&self) -> bool {
        matches!(
            self,
            Self::Commit
                | Self::Grow(_)
                | Self::Scrub
                | Self::Background(BackgroundStep::Checkpoint | BackgroundStep::LeaveCleanly)
                | Self::Exhaust(BackgroundStep::Checkpoint | BackgroundStep::LeaveCleanly)
        )
    }
}
