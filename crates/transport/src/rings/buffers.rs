//! The memory of entries: one range of addresses, with the payloads in huge pages if the system has them.
//!
//! A device transfers a payload in as many pieces as it has in memory. Plain pages make one piece for each 4 KiB, huge
//! pages one or two in all. A virtual machine's disk then takes a fourth of the time (docs/results/older/reads.md).

use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of an entry besides its payload: a page for its headers, and one in which the message is assembled.
pub const ENTRY_OVERHEAD_BYTES: usize = 2 * 4096;
/// Bytes of a huge page. On machines with larger ones, plain pages are used.
const HUGE_BYTES: usize = 2 << 20;
/// Smaller payloads stay in plain pages, so that a machine with little memory backs only what is used.
const HUGE_PAYLOAD_BYTES_MIN: usize = 1 << 20;

/// Room for some entries. Each is taken once. The memory lives as long as any of them is in use.
#[derive(Debug)]
pub(crate) struct Buffers {
    start: NonNull<u8>,
    count: usize,
    payload_bytes: usize,
    taken: AtomicUsize,
}

// SAFETY: plain memory, and each part is handed out once.
unsafe impl Send for Buffers {}
// SAFETY: as above.
unsafe impl Sync for Buffers {}

impl Buffers {
    /// Room for `count` entries whose payloads are all used. The bytes are 0, and backed by memory when touched: a
    /// whole huge page at once, the rest and small payloads page by page. So this never takes more than `count *
    /// entry_bytes(payload_bytes)`.
    pub(crate) fn new(count: usize, payload_bytes: usize) -> io::Result<Arc<Self>> {
        let buffers = Self::plain(count, payload_bytes)?;
        let huge = buffers.bytes() / HUGE_BYTES * HUGE_BYTES;
        if payload_bytes >= HUGE_PAYLOAD_BYTES_MIN && huge > 0 {
            // SAFETY: within the mapping. The advice changes no content. Without huge pages it fails, which does no
            // harm.
            unsafe { libc::madvise(buffers.start.as_ptr().cast(), huge, libc::MADV_HUGEPAGE) };
        }
        Ok(buffers)
    }

    /// As `new`, for entries that are mostly never used: backed page by page.
    pub(crate) fn plain(count: usize, payload_bytes: usize) -> io::Result<Arc<Self>> {
        let start = map_aligned(count * entry_bytes(payload_bytes))?;
        Ok(Arc::new(Self { start, count, payload_bytes, taken: AtomicUsize::new(0) }))
    }

    /// The next entry's `entry_bytes` bytes, which begin at a page's boundary. None: all entries are taken.
    pub(super) fn take(&self) -> Option<NonNull<u8>> {
        let next = |taken: usize| (taken < self.count).then_some(taken + 1);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()?;
        // SAFETY: within the mapping, since `taken` is below `count`.
        Some(unsafe { self.start.add(taken * entry_bytes(self.payload_bytes)) })
    }

    pub(super) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn bytes(&self) -> usize {
        self.count * entry_bytes(self.payload_bytes)
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        unmap(self.start, self.bytes());
    }
}

/// Bytes of an entry: its headers, room for a message, and its payload in whole pages.
pub(super) fn entry_bytes(payload_bytes: usize) -> usize {
    ENTRY_OVERHEAD_BYTES + payload_bytes.next_multiple_of(4096)
}

/// A fresh mapping of whole pages, aligned to a huge page.
fn map_aligned(bytes: usize) -> io::Result<NonNull<u8>> {
    if bytes == 0 {
        return Ok(NonNull::dangling());
    }
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let whole = bytes + HUGE_BYTES;
    // SAFETY: a fresh mapping at a place that the kernel chooses changes no other memory.
    let at = unsafe { libc::mmap(null_mut(), whole, access, kind | libc::MAP_NORESERVE, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let at = NonNull::new(at.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
    let before = at.addr().get().next_multiple_of(HUGE_BYTES) - at.addr().get();
    // SAFETY: both are within the mapping, of which at most HUGE_BYTES lie before the first.
    let (start, end) = unsafe { (at.add(before), at.add(before + bytes)) };
    unmap(at, before);
    unmap(end, HUGE_BYTES - before);
    Ok(start)
}

/// Unmaps whole pages that `map_aligned` mapped and that have no references.
fn unmap(start: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: the callers' own mapping, which they no longer use.
        unsafe { libc::munmap(start.as_ptr().cast(), bytes) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MIB: usize = 1 << 20;

    /// The flags of the mapping that an address is in, as the kernel lists them.
    fn flags_at(at: NonNull<u8>) -> String {
        let maps = fs::read_to_string("/proc/self/smaps").unwrap();
        let holds = |line: &str| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some((number(start)?..number(end)?).contains(&at.addr().get()))
        };
        let mut lines = maps.lines().skip_while(|line| holds(line) != Some(true));
        lines.find(|line| line.starts_with("VmFlags:")).unwrap().to_owned()
    }

    #[test]
    fn each_entry_is_taken_once_and_begins_a_page_behind_the_one_before() {
        let buffers = Buffers::new(3, 5000).unwrap();
        let taken: Vec<usize> = std::iter::from_fn(|| buffers.take()).map(|at| at.addr().get()).collect();
        assert_eq!(taken.iter().map(|at| at - taken[0]).collect::<Vec<_>>(), [0, 16384, 32768]);
        assert!(taken[0].is_multiple_of(HUGE_BYTES) && buffers.take().is_none());
        assert!(Buffers::plain(0, MIB).unwrap().take().is_none());
    }

    #[test]
    fn large_payloads_are_in_huge_pages_as_far_as_whole_ones_fit_and_small_ones_are_not() {
        let has_huge_pages = fs::exists("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
        for (count, payload_bytes, is_huge) in [(2, MIB, true), (1, MIB, false), (16, MIB / 4, false)] {
            let buffers = Buffers::new(count, payload_bytes).unwrap();
            let flags = flags_at(buffers.start);
            assert_eq!(flags.contains(" hg"), is_huge && has_huge_pages, "{count} of {payload_bytes}: {flags}");
        }
        let plain = Buffers::plain(8, MIB).unwrap();
        assert!(!flags_at(plain.start).contains(" hg"));
    }

    #[test]
    fn all_of_it_can_be_written() {
        let buffers = Buffers::new(3, MIB).unwrap();
        // SAFETY: the test alone knows the mapping.
        unsafe { buffers.start.as_ptr().write_bytes(7, buffers.bytes()) };
    }
}
