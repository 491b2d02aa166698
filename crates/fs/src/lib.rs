//! Names: inodes, directories and POSIX semantics as plain functions over the engine's `Store`.
//!
//! Owns what a path means: inode, directory, xattr and symlink records, link counts, times, ACLs, orphans; and what is
//! seen of how files are used.
//! Leaves alone: blocks, sharing and durability (`oncefs_engine`); wire types, errno, the kernel's reference
//! counts (`oncefs_fuse`); permission checks, flock and record locks (the kernel's: the volume is mounted
//! with `default_permissions` and no lock requests reach us).
//!
//! Lock order: rename lock, engine map lock, inode locks in ascending number, inode cache shard, engine internals.
//! A function that takes a map lock (`store.write`, `truncate`, ...) is therefore called without inode locks, and
//! its closure locks the inode.

mod attributes;
mod clock;
mod content;
mod error;
mod file_system;
pub mod format;
mod fsck;
mod inodes;
mod names;
mod ranking;
mod scan;
mod types;
mod usage;

pub use attributes::policy::{EffectiveView, POLICY_ATTRIBUTE};
pub use attributes::set_attributes::{SetAttributes, SetTime};
pub use attributes::xattr::XattrMode;
pub use clock::{Clock, SystemClock, Timestamp};
pub use content::allocate::AllocateMode;
pub use content::damaged_files::{DamagedFile, DamagedRange};
pub use content::edit::WriteOrigin;
pub use content::read::{Bytes, Whence};
pub use error::{Error, Result};
pub use file_system::{AtimePolicy, FileSystem, Options, Room, Space};
pub use fsck::audit::{NamePhase, NameProgress};
pub use fsck::fix::{NameFindings, check_names, repair_names};
pub use fsck::paths::{Paths, paths_of_maps};
pub use names::directory::{Entry, EntryKind};
pub use names::rename::RenameMode;
pub use types::{Attributes, Caller, FileKind, Ino};
pub use usage::positions::Handle;

/// Longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Largest size of a file: 2^32 map shards of 1 MiB.
pub const FILE_BYTES_MAX: u64 = 1 << 52;

/// Most names that a file can have.
pub const LINKS_MAX: u32 = 65_000;

/// Longest target of a symbolic link, in bytes (the kernel's PATH_MAX without the final NUL).
pub const SYMLINK_BYTES_MAX: usize = 4095;
