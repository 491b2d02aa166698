//! The memory, the number of threads and the request size of a mount.
//!
//! The store divides its part further: `docs/architecture.md`, Memory.

use oncefs_engine::Store;
use oncefs_fuse::{Plan, Settings, Transport};

use super::task::Task;
use crate::failure::{OrFail, Outcome, exit};
use crate::process::memory;
use crate::profiles;

/// The inode cache's share of the memory; the rest is the store's.
const INODES_SHARE_OF_MEMORY: u64 = 16;

/// The share of the memory that the buffers of rings may take.
const RINGS_SHARE_OF_MEMORY: u64 = 4;

/// One WRITE or READ carries a MiB, the kernel's own limit for unprivileged settings.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// The daemon's limits: from an option, otherwise from the profile.
pub struct Budget {
    /// Caches, hints and inodes.
    pub memory_bytes_max: u64,
    /// Most threads that serve requests over `/dev/fuse`.
    pub threads: usize,
    /// How requests come from the kernel.
    pub way: Transport,
    /// Largest request of the kernel.
    pub request_bytes_max: u32,
}

impl Budget {
    /// The budget of a mount.
    pub fn of(task: &Task) -> Outcome<Self> {
        let options = &task.options;
        let own = || Store::profile_of(&task.volume).or_fail(exit::MOUNT_FAILED);
        let profile = options.profile.map_or_else(own, Ok)?;
        let memory_bytes_max = options.memory.unwrap_or_else(|| profiles::default_memory(profile, memory::ram_bytes()));
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = options.threads.unwrap_or_else(|| profiles::default_threads(profile, cpus));
        let request_bytes_max =
            options.max_write.or_else(|| profiles::default_max_write(profile)).unwrap_or(REQUEST_BYTES_MAX);
        Ok(Self { memory_bytes_max, threads, way: options.transport, request_bytes_max })
    }

    /// The transport's limits.
    pub fn transport(&self) -> Settings {
        Settings { transport: self.way, threads: self.threads, ring_bytes_max: self.ring_bytes_max() }
    }

    /// Requests over rings that can be late. None: they come without rings.
    pub fn late_max(&self) -> Option<usize> {
        self.plan().map(|plan| plan.late_max())
    }

    fn ring_bytes_max(&self) -> u64 {
        self.memory_bytes_max / RINGS_SHARE_OF_MEMORY
    }

    /// The memory of the rings' buffers, if the kernel has rings.
    fn ring_bytes(&self) -> u64 {
        self.plan().map_or(0, |plan| plan.bytes())
    }

    fn plan(&self) -> Option<Plan> {
        match self.way {
            Transport::Classic => None,
            _ => Plan::of_machine(self.request_bytes_max as usize, self.ring_bytes_max()).unwrap_or(None),
        }
    }

    /// The inode cache's part of the memory.
    pub fn inode_bytes_max(&self) -> u64 {
        self.memory_bytes_max / INODES_SHARE_OF_MEMORY
    }

    /// The store's part of the memory: the rest.
    pub fn store_bytes_max(&self) -> u64 {
        self.memory_bytes_max - self.inode_bytes_max() - self.ring_bytes()
    }
}
