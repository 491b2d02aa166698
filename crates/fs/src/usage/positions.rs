//! Where open handles read last.
//!
//! A table of fixed size, in which a handle has the place of its number: handles are numbered as they are given, so two
//! that are open at a time meet only if as many were given between them as there are places. Then the one that reads
//! takes the place over, and the other begins anew. So nothing has to be done when a handle is released.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::{ReadPosition, Reads};
use parking_lot::Mutex;

use crate::usage::monitor::Handle;

/// Handles that are told apart.
const PLACES: usize = 1 << 14;

/// What the table takes.
pub(super) const BYTES_MAX: usize = PLACES * size_of::<Mutex<Place>>();

/// A handle and where it read last.
struct Place {
    handle: Handle,
    position: ReadPosition,
}

#[derive(Default)]
pub(super) struct Positions {
    /// Made with the first read.
    places: OnceLock<Box<[Mutex<Place>]>>,
    given: AtomicU64,
}

impl Positions {
    /// A handle that was not given before.
    pub fn new_handle(&self) -> Handle {
        Handle(self.given.fetch_add(1, Relaxed) + 1)
    }

    /// How a handle reads `blocks` blocks from `first` on.
    pub fn read(&self, handle: Handle, first: u64, blocks: u32) -> Reads {
        let places = self.places.get_or_init(|| (0..PLACES).map(|_| Mutex::new(Place::of(Handle(0)))).collect());
        let mut place = places[handle.0 as usize % PLACES].lock();
        if place.handle != handle {
            *place = Place::of(handle);
        }
        place.position.read(first, blocks)
    }
}

impl Place {
    fn of(handle: Handle) -> Self {
        Self { handle, position: ReadPosition::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_handles_that_read_in_turns_are_each_in_sequence() {
        let positions = Positions::default();
        let (one, other) = (positions.new_handle(), positions.new_handle());
        for at in 0..100 {
            assert_eq!(positions.read(one, at, 1).random, 0, "block {at}");
            assert_eq!(positions.read(other, 1000 + at, 1).random, u32::from(at == 0), "block {at}");
        }
    }

    #[test]
    fn a_handle_whose_place_was_taken_begins_anew() {
        let positions = Positions::default();
        let old = positions.new_handle();
        positions.read(old, 0, 256);
        let new = (0..PLACES).map(|_| positions.new_handle()).last().unwrap();
        assert_eq!(positions.read(new, 0, 1), Reads { sequential: 1, random: 0 });
        assert_eq!(positions.read(old, 256, 256), Reads { sequential: 255, random: 1 });
        assert_eq!(positions.read(old, 512, 256), Reads { sequential: 256, random: 0 });
    }
}
