//! How much memory a piece of work takes: damaged bytes must not make a decoder ask for more than they could hold.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Once;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting what each thread holds.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no allocated memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the memory came from `System` with this layout.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: as above.
        unsafe { System.realloc(memory, layout, size) }
    }
}

/// Lets freed memory stay with the process: giving it back and taking it again would be most of an execution's time.
pub fn keep_freed() {
    const KEPT: libc::c_int = 1 << 30;
    const MAPPED_MIN: libc::c_int = 32 << 20;
    static ONCE: Once = Once::new();
    // SAFETY: both set numbers of the C library's allocator, which it takes at any time.
    ONCE.call_once(|| unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, KEPT);
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_MIN);
    });
}

/// Does `work` and says by how many bytes this thread's memory grew meanwhile, at most.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let done = work();
    (done, (PEAK.get() - before) as usize)
}

/// Does `work`, which may not take more than `bytes_max` bytes of memory at a time.
pub fn bounded<T>(bytes_max: usize, work: impl FnOnce() -> T) -> T {
    let (done, peak) = peak_of(work);
    assert!(peak <= bytes_max, "{peak} bytes of memory were taken, {bytes_max} are allowed");
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_at_a_time_counts_not_what_is_held_in_all() {
        let work = || (0..10).for_each(|n| drop(std::hint::black_box(vec![n; 1000])));
        let ((), peak) = peak_of(work);
        assert!((4000..8000).contains(&peak), "{peak}");
    }

    #[test]
    #[should_panic(expected = "bytes of memory were taken")]
    fn more_than_is_allowed_is_noticed() {
        bounded(999, || drop(std::hint::black_box(vec![1u8; 1000])));
    }
}
