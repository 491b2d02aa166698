//! Names: inodes, directories and POSIX semantics as plain functions over the engine's `Store`.
//!
//! Owns the meaning of paths: the records of inodes, directories, extended attributes and symbolic links, link counts,
//! times, access control lists and orphans. Also observes how files are used. `oncefs_engine` does blocks, sharing and
//! durability. `oncefs_fuse` does wire types, errno and the kernel's reference counts. The kernel checks permissions
//! and keeps flock and record locks: the volume is mounted with `default_permissions`, and lock requests do not get
//! here.
//!
//! Lock order: rename lock, engine map lock, inode locks in ascending number, inode cache shard, engine internals. So a
//! caller of a function that takes a map lock (`store.write`, `truncate`, ...) holds no inode locks, and the closure
//! that it passes locks the inode.

mod attributes;
mod content;
mod error;
mod file_system;
pub mod format;
mod fsck;
mod inodes;
mod names;
mod ranking;
mod record_scan;
mod trees;
mod types;
mod usage;

pub use attributes::policy::{COMPRESS_ATTRIBUTE, EffectiveView, POLICY_ATTRIBUTE};
pub use attributes::set_attributes::{SetAttributes, SetTime};
pub use attributes::xattr::XattrMode;
pub use content::allocate::AllocateMode;
pub use content::damaged_files::{DamagedFile, DamagedRange};
pub use content::read::{Bytes, Whence};
pub use content::write::WriteOrigin;
pub use error::{Error, Result};
pub use file_system::{AtimePolicy, FileSystem, Options, Room, Space, Tell};
pub use format::placement::NamePlaces;
pub use fsck::audit::{NamePhase, NameProgress};
pub use fsck::fix::{NameFindings, check_names, fix_names};
pub use fsck::paths::{FileNames, NAMES_OF_A_FILE_MAX, NamesFound, names_of_maps};
pub use names::directory::{Entry, EntryKind, RESERVED_NAME};
pub use names::rename::RenameMode;
pub use trees::{
    CopyFailed, CopyKind, DiffCursor, DiffPortion, Difference, NameDiff, OwnPortion, SNAPSHOT_ATTRIBUTE, SnapshotFacts,
    Stamp, TreeCopy, TreeProgress,
};
pub use types::{
    Attributes, Caller, Clock, FileFlags, FileKind, Ino, LABELS_BYTES_MAX, Label, Privileges, SystemClock, Timestamp,
};
pub use usage::note_reads_and_writes::Handle;

/// Longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Largest size of a file, in bytes: 2^32 map leaves of 1 MiB.
pub const FILE_BYTES_MAX: u64 = 1 << 52;
const _: () = assert!(FILE_BYTES_MAX.is_multiple_of(oncefs_engine::BLOCK_BYTES as u64), "a file ends with a block");

/// Most names that a file can have.
pub const LINKS_MAX: u32 = 65_000;

/// Longest target of a symbolic link, in bytes: the kernel's PATH_MAX without the final NUL.
pub const SYMLINK_BYTES_MAX: usize = 4095;
