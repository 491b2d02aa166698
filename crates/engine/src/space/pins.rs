//! Pins: a reader that looked up pbns keeps them from being reused until it is done. Readers share the current epoch. A
//! release waits until every epoch that began before it has no reader left. A pin costs one counter update each way.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::sync::Mutex;

/// Delays the reuse of every block that was reachable when it was taken.
pub struct Pin {
    _epoch: Arc<Epoch>,
}

/// The readers that began during one epoch.
#[derive(Default)]
pub struct Epoch;

/// The current epoch.
#[derive(Default)]
pub struct Pins {
    current: Mutex<Arc<Epoch>>,
}

impl Pins {
    /// Pins everything reachable now. Take it before looking at a map.
    pub fn pin(&self) -> Pin {
        Pin { _epoch: self.current.lock().clone() }
    }

    /// Begins a new epoch and returns the old one, which tells whether its readers are done.
    pub fn advance(&self) -> EndedEpoch {
        EndedEpoch(std::mem::take(&mut *self.current.lock()))
    }
}

/// An epoch that gets no new readers.
pub struct EndedEpoch(Arc<Epoch>);

impl EndedEpoch {
    /// Whether all its readers are done.
    pub fn is_over(&self) -> bool {
        let is_over = Arc::strong_count(&self.0) == 1;
        // The readers' accesses happen before the next use of their blocks.
        fence(Ordering::Acquire);
        is_over
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_over_when_its_last_reader_is_done() {
        let pins = Pins::default();
        let early = pins.pin();
        let first = pins.advance();
        let late = pins.pin();
        let second = pins.advance();
        assert!(!first.is_over() && !second.is_over());
        drop(early);
        assert!(first.is_over() && !second.is_over());
        drop(late);
        assert!(second.is_over());
    }
}
