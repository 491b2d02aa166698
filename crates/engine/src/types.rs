//! Types that the engine's callers see and its parts share. This module is below all others except the device's
//! buffers.

use std::ops::Deref;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::announcement::Announcement;
use crate::device::buffer::PooledBuf;
use crate::{Copies, FilePolicy, ObjectAccess, Profile, Result};

/// The id of a map (a file's extents): from 1 on, in the order of creation, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(pub u64);

/// Where the data area lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// A sparse file inside the volume.
    File,
    /// A raw block device.
    Device(PathBuf),
    /// Objects of a cluster, which hold the block table too (experimental).
    Objects(ObjectAccess),
}

/// The volume that [`crate::Store::format`] makes.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Size of the data area in bytes, 16 MiB to 2 PiB, rounded down to whole blocks. `None`: all of a device; objects
    /// need a size.
    pub data_bytes: Option<u64>,
    /// Where the data area lies.
    pub data: DataPlace,
    /// The profile whose settings are the volume's defaults.
    pub profile: Profile,
    /// Size of the log in bytes, 4 MiB to 1 GiB, rounded up to whole blocks.
    pub log_bytes: u64,
    /// How many copies are kept of the structures that all files depend on. `None`: as many as the profile says.
    pub copies: Option<Copies>,
}

/// What opening does if another process has the objects of a volume.
#[derive(Clone, Debug)]
pub enum WhenHeld {
    /// It fails, also if the lease of the other ran out.
    Refused,
    /// It takes the objects over if the lease of the other runs out, and fails if the other renews it.
    TakesOver,
    /// It waits until the other ends or loses its lease, or this process ends.
    StandsBy(Announcement),
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bound on caches and hints in bytes. Below about 16 MiB it is exceeded, because several parts have a minimum.
    pub memory_bytes_max: u64,
    /// Nothing is written to the volume (the log is replayed in memory only).
    pub read_only: bool,
    /// What opening does if another process has a volume in objects. Other volumes are refused.
    pub when_held: WhenHeld,
    /// The raw device that has the blocks now, if it is not the one given to mkfs. `None`: that one.
    pub data_device: Option<PathBuf>,
    /// A profile to use instead of the volume's own.
    pub profile: Option<Profile>,
    /// Settings (name, value) that override those of the profile.
    pub settings: Vec<(String, String)>,
    /// The directory that contains `proc` and `sys`: the root, or a stand-in.
    pub machine: PathBuf,
}

impl OpenOptions {
    /// Options with the volume's own profile and this bound on memory, in bytes.
    pub fn new(memory_bytes_max: u64) -> Self {
        Self {
            memory_bytes_max,
            read_only: false,
            when_held: WhenHeld::Refused,
            data_device: None,
            profile: None,
            settings: Vec::new(),
            machine: PathBuf::from("/"),
        }
    }
}

/// Records to publish together, in one commit group. Keys start with a byte of at least 0x10: those below are the
/// engine's own.
#[derive(Debug, Default)]
pub struct Change {
    pub(crate) puts: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// The files whose policy `puts` changes (see `Store::policy_change`).
    pub(crate) policies: Vec<PolicyChange>,
}

impl Change {
    /// A change without records.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a record. The last put or delete of a key counts.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.puts.push((key, Some(value)));
    }

    /// Removes a record. A missing record is not an error.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.puts.push((key, None));
    }
}

/// Bytes read from a map, exactly as many as requested. The buffer returns to its pool on drop.
pub struct ReadBuf {
    buffer: PooledBuf,
    from: usize,
    len: usize,
}

impl ReadBuf {
    pub(crate) fn new(buffer: PooledBuf, from: usize, len: usize) -> Self {
        Self { buffer, from, len }
    }
}

impl Deref for ReadBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.from..self.from + self.len]
    }
}

/// A new policy of one file, published with a change.
#[derive(Clone, Copy, Debug)]
pub struct PolicyChange {
    /// Its map.
    pub map: MapId,
    /// The policy from now on.
    pub policy: FilePolicy,
    /// Whether it allows more than before, so that the worker visits the file.
    pub(crate) allows_more: bool,
    /// Whether blocks of the file may be compressed that might not before.
    pub(crate) allows_compression: bool,
}

/// Ranks some files, or defragments a part of one. Returns how many blocks were written for that. None: nothing is due.
/// Called without any lock.
pub type RankTurn = Box<dyn Fn() -> Result<Option<u64>> + Send + Sync>;

/// Blocks whose entries in the block table cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownBlocks {
    /// How many they are, as far as known.
    pub blocks: u64,
    /// The first ranges of them: a pbn and the one after the range.
    pub ranges: Vec<(u64, u64)>,
    /// How many more ranges there are.
    pub more: u64,
}

/// Whether a program waits for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// It does: its blocks are fingerprinted at once, and none is compared with stored bytes.
    Awaited,
    /// The kernel's page cache answered it long ago.
    Unawaited,
}
