//! The usable memory, and the freed memory that the C library keeps: its bound, and its way back to the system.

use std::path::Path;

/// RAM that this process may use: the machine's, or less in a container.
pub fn ram_bytes() -> u64 {
    // SAFETY: sysconf takes and returns integers.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0));
    cgroup_limit().map_or(machine, |limit| limit.min(machine))
}

/// The memory limit of this process's own cgroup, version 2 or 1.
fn cgroup_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let limit = Path::new(root).join(path.trim_start_matches('/')).join(file);
        std::fs::read_to_string(limit).ok()?.trim().parse().ok()
    });
    limits.min()
}

/// Each arena of the C library keeps the memory that its threads freed, 10 MB and more, and by default there may be
/// eight for every CPU. So there is one arena for this much of the daemon's memory.
const MEMORY_BYTES_PER_ARENA: u64 = 64 << 20;

/// A daemon with less memory than this trades speed for it.
const SMALL_MEMORY_BYTES: u64 = 128 << 20;

/// The C library's initial values. An explicit value stays. Otherwise the values rise with every large buffer that is
/// freed, and the library keeps freed memory below them.
const KEPT_BYTES_MAX: libc::c_int = 128 << 10;

/// Keeps the C library's freed memory in proportion to the daemon's. Call it before any thread exists.
pub fn bound_allocator(memory_bytes_max: u64) {
    let mut bounds = vec![(libc::M_ARENA_MAX, arenas_max(memory_bytes_max))];
    if memory_bytes_max < SMALL_MEMORY_BYTES {
        bounds.extend([(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX), (libc::M_MMAP_THRESHOLD, KEPT_BYTES_MAX)]);
    }
    for (name, value) in bounds {
        // SAFETY: mallopt takes two integers.
        if unsafe { libc::mallopt(name, value) } == 0 {
            log::warn!("cannot limit the allocator: mallopt({name}, {value}) failed");
        }
    }
}

/// The C library keeps what is freed between blocks that are in use, whatever its bounds are. Once that has grown by
/// one part in this many of the daemon's memory, it goes back to the system.
const GROWTH_SHARE: u64 = 8;
/// Less is not worth the work.
const GROWTH_BYTES_MIN: u64 = 16 << 20;

/// Watches the memory that the C library keeps although it was freed.
pub struct KeptMemory {
    growth_max: u64,
    /// The least that was kept since memory was last given back. The library's count does not fall by what it gives
    /// back, because it may use these addresses again.
    least: u64,
}

impl KeptMemory {
    /// Nothing was freed yet.
    pub fn new(memory_bytes_max: u64) -> Self {
        Self { growth_max: (memory_bytes_max / GROWTH_SHARE).max(GROWTH_BYTES_MIN), least: 0 }
    }

    /// Gives back what is kept, if that is much. Other threads that allocate wait meanwhile. Returns how much was kept.
    pub fn give_back(&mut self) -> Option<u64> {
        let kept = kept_bytes();
        if !self.has_grown_to(kept) {
            return None;
        }
        // SAFETY: malloc_trim takes a number.
        unsafe { libc::malloc_trim(0) };
        self.least = kept_bytes();
        Some(kept)
    }

    fn has_grown_to(&mut self, kept: u64) -> bool {
        self.least = self.least.min(kept);
        kept - self.least >= self.growth_max
    }
}

fn kept_bytes() -> u64 {
    // SAFETY: mallinfo2 takes nothing and returns numbers.
    unsafe { libc::mallinfo2() }.fordblks as u64
}

fn arenas_max(memory_bytes_max: u64) -> libc::c_int {
    (memory_bytes_max / MEMORY_BYTES_PER_ARENA).clamp(1, 1024) as libc::c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_whenever_the_kept_part_has_grown_by_a_share() {
        let mut memory = KeptMemory::new(1 << 30);
        assert!(!memory.has_grown_to((1 << 27) - 1));
        assert!(memory.has_grown_to(1 << 27));
        memory.least = 1 << 27;
        assert!(!memory.has_grown_to((1 << 27) + (1 << 26)), "part of it is the same as before");
        assert!(!memory.has_grown_to(1 << 20), "it was used again");
        assert!(memory.has_grown_to((1 << 27) + (1 << 20)));
        assert_eq!(KeptMemory::new(1 << 20).growth_max, GROWTH_BYTES_MIN);
    }

    #[test]
    fn what_lies_between_blocks_in_use_goes_back() {
        const BLOCK: usize = 1_000;
        const BYTES: usize = 128 << 20;
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
        };
        let mut blocks: Vec<Option<Box<[u8; BLOCK]>>> =
            (0..BYTES / BLOCK).map(|_| Some(Box::new([1; BLOCK]))).collect();
        blocks.iter_mut().enumerate().filter(|(at, _)| at % 1_000 > 0).for_each(|(_, block)| *block = None);
        let before = resident();
        let kept = KeptMemory::new(0).give_back();
        assert!(kept.is_some_and(|kept| kept as usize > BYTES / 2), "{kept:?}");
        let after = resident();
        assert!(after + BYTES / 2 < before, "{before} bytes were resident, {after} are");
        assert!(blocks.iter().flatten().all(|block| block.iter().all(|byte| *byte == 1)));
    }
}
