//! The memory that a thread takes while it serves a request. The feature `checked` counts it, and panics above the
//! rule's bound (docs/architecture.md, what a call may cost). Without the feature this module costs nothing.

#[cfg(feature = "checked")]
mod counted {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use oncefs_toolbox::memory::{Counting, peak_of};

    /// The memory that a request may take. Memory that caches keep counts too, so this bound is stricter than the rule.
    const BYTES_MAX: usize = 16 << 20;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    static MOST: AtomicUsize = AtomicUsize::new(0);

    /// Serves a request.
    pub fn bounded(serve: impl FnOnce()) {
        let ((), bytes) = peak_of(serve);
        MOST.fetch_max(bytes, Relaxed);
        assert!(bytes <= BYTES_MAX, "a request took {bytes} bytes of memory, {BYTES_MAX} are allowed");
    }

    /// The most memory that one request took in this process, in the thread that served it.
    pub fn most_bytes() -> Option<usize> {
        Some(MOST.load(Relaxed))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_a_request_takes_at_a_time_is_counted() {
            bounded(|| (0..10).for_each(|n| drop(std::hint::black_box(vec![n; 100_000]))));
            assert!(most_bytes().unwrap() >= 400_000);
        }

        #[test]
        #[should_panic(expected = "bytes of memory, 16777216 are allowed")]
        fn a_request_that_takes_more_than_the_rule_allows_is_noticed() {
            bounded(|| drop(std::hint::black_box(vec![1u8; BYTES_MAX + 1])));
        }
    }
}

#[cfg(feature = "checked")]
pub use counted::{bounded, most_bytes};

#[cfg(not(feature = "checked"))]
mod uncounted {
    /// Serves a request.
    #[inline]
    pub fn bounded(serve: impl FnOnce()) {
        serve();
    }

    /// None: only the feature `checked` counts.
    pub fn most_bytes() -> Option<usize> {
        None
    }
}

#[cfg(not(feature = "checked"))]
pub use uncounted::{bounded, most_bytes};
