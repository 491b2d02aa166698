//! Free space of an open volume: which blocks are free, which are promised, and what the host has left.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::space::allocator::Allocator;
use crate::state::pins::Pins;
use crate::sync::{AtomicU64, Mutex};
use crate::volume::ballast::Ballast;

/// Free blocks and host bytes.
pub struct FreeSpace {
    /// Free blocks.
    pub allocator: Mutex<Allocator>,
    /// Readers: what they may see is not reused.
    pub pins: Pins,
    /// Bytes that the host can still take, as last looked up, less what was written since.
    pub host_bytes: AtomicU64,
    /// Blocks allocated by writes that are not published yet.
    pub blocks_in_flight: AtomicU64,
    /// The volume's directory, if the data area takes its space from the host file system.
    pub host: Option<PathBuf>,
    /// Pieces of the data area with freed blocks whose space the host has not got back.
    pub punchable: Mutex<BTreeSet<u64>>,
    /// Space set aside on the host, for a full one.
    pub ballast: Ballast,
}

impl FreeSpace {
    /// Free space of a volume that was just opened.
    pub fn new(allocator: Allocator, host: Option<PathBuf>, ballast: Ballast) -> Self {
        Self {
            allocator: Mutex::new(allocator),
            pins: Pins::default(),
            host_bytes: AtomicU64::new(u64::MAX),
            blocks_in_flight: AtomicU64::new(0),
            host,
            punchable: Mutex::default(),
            ballast,
        }
    }
}
