//! The daemon's answers that are not reports of the engine.

use std::collections::BTreeMap;

use oncefs_engine::ShareLimit;
use serde::{Deserialize, Serialize};

use crate::names::Name;

/// The daemon's description of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct About {
    /// Version of the program.
    pub program: String,
    /// Whether the volume was opened read-only.
    pub read_only: bool,
    /// The volume's identity, in hexadecimal.
    #[serde(default)]
    pub volume_id: String,
    /// The options that it was mounted with, as a list for `-o`, without the log file.
    #[serde(default)]
    pub options: String,
    /// The file that it logs to.
    #[serde(default)]
    pub log_file: Option<Name>,
}

/// All settings before and after a change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tuned {
    /// Values by name, as they were.
    pub before: BTreeMap<String, String>,
    /// Values by name, as they are.
    pub after: BTreeMap<String, String>,
}

/// A range of a file on bad blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Range {
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub length: u64,
    /// Whether reading them fails.
    pub lost: bool,
}

/// A file that a bad block belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct File {
    /// Its inode number.
    pub inode: Option<u64>,
    /// Some of its names, as in `FileNames`.
    pub paths: Vec<Name>,
    /// How many more names it has.
    #[serde(default)]
    pub more_paths: u64,
    /// The damaged ranges.
    pub ranges: Vec<Range>,
}

/// The names of a file. A complete path begins at the root of the mount with `/`. A path too long for open(2) is cut to
/// its end, after `<directory N>`, the inode number of the directory above it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileNames {
    /// The first few paths. Empty: the file has no name.
    pub paths: Vec<Name>,
    /// The number of further names.
    pub more: u64,
}

impl FileNames {
    /// Converts the file system's answer.
    pub fn of(names: &oncefs_fs::FileNames) -> Self {
        Self { paths: names.paths.iter().map(|path| Name::from(&path[..])).collect(), more: names.more }
    }
}

/// A portion of the requested names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamesFound {
    /// By map.
    pub files: BTreeMap<u64, FileNames>,
    /// The first map to ask for in the next request. None: these are all.
    pub next: Option<u64>,
}

/// A portion of the files that are open for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenForWriting {
    /// Inode numbers and generations, ascending.
    pub inodes: Vec<(u64, u32)>,
    /// The inode number to begin the next request with. None: these are all.
    pub next: Option<u64>,
}

/// A file with writes that wait for room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomWait {
    /// Its inode number.
    pub inode: u64,
    /// How many.
    pub requests: u64,
}

/// The files with writes that wait for room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoomWaits {
    /// By ascending inode number.
    pub files: Vec<RoomWait>,
}

/// The files that bad blocks belong to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The files.
    pub files: Vec<File>,
    /// Whether these are all.
    pub complete: bool,
}

/// Where the next portion of differences begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffCursor {
    /// Whether the names of the newer directory are done.
    pub is_newer_done: bool,
    /// After which name to go on.
    pub cookie: u64,
}

/// How a name differs between two directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Only the newer one has it.
    Added,
    /// Only the older one has it.
    Removed,
    /// Its content differs.
    Modified,
    /// Its owner, mode, times or attributes differ.
    Attributes,
    /// Two directories that may differ below.
    Same,
}

/// The identity of an inode across copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// Its number.
    pub inode: u64,
    /// The bits of its mode that give its kind.
    pub kind: u32,
    /// Its size.
    pub bytes: u64,
    /// When it was last written: seconds and nanoseconds.
    pub written: (i64, u32),
    /// When it was created.
    pub created: (i64, u32),
}

/// A name that differs, or that of two directories.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameDiff {
    /// The name.
    pub name: Name,
    /// How it differs.
    pub difference: Difference,
    /// Its inode in the older directory.
    pub older: Option<Stamp>,
    /// Its inode in the newer directory.
    pub newer: Option<Stamp>,
}

/// A portion of the differences between two directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffPortion {
    /// Names that differ, and those of directories on both sides.
    pub names: Vec<NameDiff>,
    /// The beginning of the next portion. None: this was the last.
    pub next: Option<DiffCursor>,
}

impl From<oncefs_fs::Stamp> for Stamp {
    fn from(stamp: oncefs_fs::Stamp) -> Self {
        let moment = |time: oncefs_fs::Timestamp| (time.seconds, time.nanoseconds);
        Self {
            inode: stamp.ino.0,
            kind: stamp.kind.mode_bits(),
            bytes: stamp.size,
            written: moment(stamp.mtime),
            created: moment(stamp.btime),
        }
    }
}

impl From<oncefs_fs::DiffPortion> for DiffPortion {
    fn from(portion: oncefs_fs::DiffPortion) -> Self {
        let name = |diff: oncefs_fs::NameDiff| NameDiff {
            name: Name::from(&diff.name[..]),
            difference: match diff.difference {
                oncefs_fs::Difference::Added => Difference::Added,
                oncefs_fs::Difference::Removed => Difference::Removed,
                oncefs_fs::Difference::Modified => Difference::Modified,
                oncefs_fs::Difference::Attributes => Difference::Attributes,
                oncefs_fs::Difference::Same => Difference::Same,
            },
            older: diff.older.map(Stamp::from),
            newer: diff.newer.map(Stamp::from),
        };
        let next = portion.next.map(|next| DiffCursor { is_newer_done: next.is_newer_done, cookie: next.cookie });
        Self { names: portion.names.into_iter().map(name).collect(), next }
    }
}

/// The room that only a portion of a directory takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnPortion {
    /// Blocks of its files to which nothing else refers.
    pub blocks: u64,
    /// Inode numbers of directories in it.
    pub directories: Vec<u64>,
    /// Inode numbers of files that are not counted, with the number of their names.
    pub apart: Vec<(u64, u32)>,
    /// After which name the next portion begins. None: this was the last.
    pub next: Option<u64>,
}

impl From<oncefs_fs::OwnPortion> for OwnPortion {
    fn from(portion: oncefs_fs::OwnPortion) -> Self {
        Self {
            blocks: portion.blocks,
            directories: portion.directories.iter().map(|ino| ino.0).collect(),
            apart: portion.apart.iter().map(|(ino, names)| (ino.0, *names)).collect(),
            next: portion.next,
        }
    }
}

/// The progress of the work on a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeDone {
    /// Names copied or removed.
    pub names: u64,
    /// Bytes of copied files.
    pub bytes: u64,
}

/// The daemon's answer about how a file, or new files in a directory, are deduplicated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EffectiveView {
    /// Its policy.
    pub policy: Option<String>,
    /// Its rank, 0 to 3.
    pub rank: u8,
    /// Whether it is rewritten again and again.
    pub is_update_heavy: bool,
    /// Whether it is deduplicated while writing.
    pub is_inline: bool,
    /// Whether the worker deduplicates it.
    pub is_out_of_line: bool,
    /// The shortest run that it shares, in blocks. None: each file has its own.
    pub run_blocks_min: Option<u32>,
    /// How much slower sharing may make reads, in percent. None: it has no budget.
    #[serde(default)]
    pub slowdown_percent_max: Option<u32>,
    /// Whether a run that ends with its file, or is the whole file, is shared at any length.
    pub shares_ends: bool,
    /// The source of the shortest run, or the reason why it is not deduplicated.
    pub why: String,
    /// Its policy of compression.
    #[serde(default)]
    pub compress: Option<String>,
    /// When it is compressed: `off`, `later` or `inline`.
    #[serde(default)]
    pub compresses: String,
}

impl EffectiveView {
    /// Converts the file system's answer.
    pub fn of(effective: oncefs_fs::EffectiveView) -> Self {
        let (policy, effective_policy) = (effective.policy, effective.effective_policy);
        Self {
            policy: policy.policy_override.map(|policy_override| policy_override.to_string()),
            rank: policy.rank.number(),
            is_update_heavy: policy.is_update_heavy,
            is_inline: effective_policy.is_inline,
            is_out_of_line: effective_policy.is_later,
            run_blocks_min: effective.run_blocks_min,
            slowdown_percent_max: match effective_policy.limit {
                ShareLimit::Budget(slowdown) => Some(slowdown.0),
                ShareLimit::Runs(_) => None,
            },
            shares_ends: effective_policy.shares_ends,
            why: effective.why,
            compress: policy.compress.map(|compress| compress.to_string()),
            compresses: effective.compress.to_string(),
        }
    }
}
