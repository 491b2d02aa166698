//! Bounds how many clients are served at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Places of which each client takes one.
#[derive(Default)]
pub struct Places(Arc<AtomicUsize>);

/// A place that is taken, until it is dropped.
pub struct Place(Arc<AtomicUsize>);

impl Places {
    /// Takes a place. None: this many are taken.
    pub fn take(&self, places_max: usize) -> Option<Place> {
        let taken = self.0.fetch_add(1, Ordering::Relaxed);
        let place = Place(self.0.clone());
        (taken < places_max).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_it_is_dropped() {
        let places = Places::default();
        let (first, second) = (places.take(2), places.take(2));
        assert!(first.is_some() && second.is_some() && places.take(2).is_none());
        drop(first);
        assert!(places.take(2).is_some());
        assert!(places.take(2).is_some(), "the one before was dropped at once");
    }
}
