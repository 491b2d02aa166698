//! How much memory the thread that serves a request takes for it. With the feature `checked` it is counted, and more than
//! the rule allows (docs/architecture.md, what a call may cost) is a panic; without it, it costs nothing.

#[cfg(feature = "checked")]
mod counted {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use oncefs_toolbox::memory::{Counting, peak_of};

    /// What a request may take. What caches keep of it counts too, so this is stricter than the rule.
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

    /// The most that one request took in this process, by the thread that served it.
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

    /// Counted under the feature `checked` only.
    pub fn most_bytes() -> Option<usize> {
        None
    }
}

#[cfg(not(feature = "checked"))]
pub use uncounted::{bounded, most_bytes};
