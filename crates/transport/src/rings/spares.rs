//! How many entries may be added in the place of those that are answered late: a number for all threads, which bounds the
//! memory that they take.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Entries that may still be added.
#[derive(Debug)]
pub(crate) struct Spares(AtomicUsize);

impl Spares {
    pub(crate) fn new(count: usize) -> Self {
        Self(AtomicUsize::new(count))
    }

    /// Takes one, for good: an entry stays where it was added.
    pub(super) fn take(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_as_said() {
        let spares = Spares::new(2);
        assert_eq!([spares.take(), spares.take(), spares.take()], [true, true, false]);
    }
}
