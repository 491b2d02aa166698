//! Hole punching: freed space goes back to the host, in large aligned pieces, when the volume is idle.

use std::sync::atomic::Ordering::Relaxed;

use crate::place::free_blocks::FreeBlocks;
use crate::space::allocator::Run;

/// The smallest hole worth a request.
const HOLE_BLOCKS_MIN: u64 = 16;

impl FreeBlocks {
    /// Punches some freed space. False: nothing is left to do.
    pub fn punch_some(&self) -> bool {
        let pieces = self.space.take_punchable();
        for piece in &pieces {
            let mut load = |region| self.load_region(region);
            let taken = self.space.take_free_within(*piece, HOLE_BLOCKS_MIN, &mut load);
            for run in taken.unwrap_or_default() {
                self.punch(run);
                self.space.give_back(&[run]);
            }
        }
        !pieces.is_empty()
    }

    /// Punches a hole. A failure costs space on the host, nothing else.
    fn punch(&self, run: Run) {
        match self.data.punch(run) {
            Ok(bytes) => {
                self.stats.counters.bytes_punched.fetch_add(bytes, Relaxed);
            }
            Err(error) => {
                log::debug!("block {} and {} more were not given back to the host: {error}", run.pbn, run.blocks - 1);
            }
        }
    }
}
