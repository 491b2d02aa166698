//! The types that callers of the engine see and its parts share. Stands below everything but the device's buffers.

use std::ops::Deref;
use std::path::PathBuf;

use crate::device::buffer::PooledBuf;
use crate::{FilePolicy, Profile};

/// Names a map (a file's extents). Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapId(pub u64);

/// Where the data area lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// A sparse file inside the volume.
    File,
    /// A raw block device.
    Device(PathBuf),
}

/// What `mkfs` makes.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Size of the data area in bytes; rounded down to whole blocks. For a device, None takes all of it.
    pub data_bytes: Option<u64>,
    /// Where the data area lives.
    pub data: DataPlace,
    /// Default policy.
    pub profile: Profile,
    /// Size of the log.
    pub log_bytes: u64,
}

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Bound on caches and hints.
    pub memory_bytes_max: u64,
    /// No change reaches the volume (the log is replayed in memory only).
    pub read_only: bool,
    /// Another profile than the volume's own.
    pub profile: Option<Profile>,
    /// Settings by name, over those of the profile.
    pub settings: Vec<(String, String)>,
    /// Where `proc` and `sys` are found: the root, or a stand-in.
    pub machine: PathBuf,
}

impl OpenOptions {
    /// The volume's own profile in so much memory.
    pub fn new(memory_bytes_max: u64) -> Self {
        let settings = Vec::new();
        Self { memory_bytes_max, read_only: false, profile: None, settings, machine: PathBuf::from("/") }
    }
}

/// What a publication says of one file.
#[derive(Clone, Copy, Debug)]
pub struct PolicyChange {
    /// Its map.
    pub map: MapId,
    /// From now on.
    pub policy: FilePolicy,
    /// Whether it allows what was not allowed, so that the file is to be looked at.
    pub allows_more: bool,
}

/// Records to be published together, in one commit group. Keys start with a byte of at least 0x10.
#[derive(Debug, Default)]
pub struct Change {
    pub(crate) puts: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Those of `puts` that say something of a file ([`Store::policy_change`]).
    pub(crate) policies: Vec<PolicyChange>,
}

impl Change {
    /// No records yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a record.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) {
        self.puts.push((key, Some(value)));
    }

    /// Removes a record.
    pub fn delete(&mut self, key: Vec<u8>) {
        self.puts.push((key, None));
    }
}

/// Bytes read from a map, in a buffer that returns to its pool.
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
