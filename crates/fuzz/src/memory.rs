//! Bounds the memory of a piece of work: damaged bytes must not make a decoder allocate more than they justify.

use std::sync::Once;

use oncefs_toolbox::memory::{Counting, peak_of};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Keeps freed memory in the process: returning it and taking it again would take most of an execution's time.
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
