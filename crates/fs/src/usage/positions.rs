//! Where each open handle read last.
//!
//! A table of fixed size, indexed by the handle's number modulo its size. Handles are numbered in sequence, so two open
//! handles collide only if a full table of handles was given out between them. Then the one that reads takes the slot,
//! and the other starts over. So releasing a handle needs no work here.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncefs_engine::sync::{LockRank, Mutex};
use oncefs_engine::{ReadPosition, Reads};

/// One opening of a file by a program. The monitor uses it to recognize reads that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// Handles that the table can distinguish.
const SLOTS: usize = 1 << 14;
const _: () = assert!(SLOTS.is_power_of_two(), "slots are found by a mask");

/// Bytes of the table.
pub(super) const BYTES_MAX: usize = SLOTS * size_of::<Mutex<Slot>>();

/// A handle and where it read last.
struct Slot {
    handle: Handle,
    position: ReadPosition,
}

#[derive(Default)]
pub(super) struct Positions {
    /// Allocated by the first read.
    slots: OnceLock<Box<[Mutex<Slot>]>>,
    given: AtomicU64,
}

impl Positions {
    /// A handle that this mount has not given out before.
    pub fn new_handle(&self) -> Handle {
        Handle(self.given.fetch_add(1, Relaxed) + 1)
    }

    /// Classifies a handle's read of `blocks` blocks, the first of which is `first`.
    pub fn read(&self, handle: Handle, first: u64, blocks: u32) -> Reads {
        let slots =
            self.slots.get_or_init(|| (0..SLOTS).map(|_| Mutex::new(LockRank::Leaf, Slot::of(Handle(0)))).collect());
        let mut slot = slots[handle.0 as usize % SLOTS].lock();
        if slot.handle != handle {
            *slot = Slot::of(handle);
        }
        let reads = slot.position.read(first, blocks);
        debug_assert_eq!(
            u64::from(reads.sequential) + u64::from(reads.random),
            u64::from(blocks),
            "block {first}: {reads:?} of {blocks} blocks"
        );
        reads
    }
}

impl Slot {
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
    fn a_handle_whose_slot_was_taken_starts_over() {
        let positions = Positions::default();
        let old = positions.new_handle();
        positions.read(old, 0, 256);
        let new = (0..SLOTS).map(|_| positions.new_handle()).last().unwrap();
        assert_eq!(positions.read(new, 0, 1), Reads { sequential: 1, random: 0 });
        assert_eq!(positions.read(old, 256, 256), Reads { sequential: 255, random: 1 });
        assert_eq!(positions.read(old, 512, 256), Reads { sequential: 256, random: 0 });
    }
}
