//! The usable memory, and the bound on freed memory that the C library keeps.

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

fn arenas_max(memory_bytes_max: u64) -> libc::c_int {
    (memory_bytes_max / MEMORY_BYTES_PER_ARENA).clamp(1, 1024) as libc::c_int
}
