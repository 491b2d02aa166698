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

mod acl;
mod attributes;
mod cache;
mod check;
mod clock;
mod copy;
mod create;
mod damage;
mod data;
mod directory;
mod error;
mod explain;
mod file_system;
pub mod format;
mod monitor;
mod numbers;
mod orphans;
mod policy;
mod rank_clock;
mod ranker;
mod remove;
mod rename;
mod repair;
mod set_attributes;
mod staged;
mod xattr;

pub use attributes::{Attributes, Caller, FileKind, Ino};
pub use check::{NamePhase, NameProgress};
pub use clock::{Clock, SystemClock, Timestamp};
pub use damage::{DamagedFile, DamagedRange};
pub use data::{AllocateMode, Bytes, Whence, WriteOrigin};
pub use directory::{Entry, EntryKind};
pub use error::{Error, Result};
pub use file_system::{AtimePolicy, FileSystem, Options, Room, Space};
pub use monitor::Handle;
pub use policy::{EffectiveView, POLICY_ATTRIBUTE};
pub use rename::RenameMode;
pub use repair::{NameFindings, Paths, check_names, paths_of_maps, repair_names};
pub use set_attributes::{SetAttributes, SetTime};
pub use xattr::XattrMode;

/// Longest name of a directory entry, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Largest size of a file: 2^32 map shards of 1 MiB.
pub const FILE_BYTES_MAX: u64 = 1 << 52;

/// Most names that a file can have.
pub const LINKS_MAX: u32 = 65_000;

/// Longest target of a symbolic link, in bytes (the kernel's PATH_MAX without the final NUL).
pub const SYMLINK_BYTES_MAX: usize = 4095;
