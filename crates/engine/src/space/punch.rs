//! Hole punching: freed space goes back to the host, in large aligned pieces, when the volume is idle.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::space::allocator::{REGION_BLOCKS, Run};
use crate::{BLOCK_BYTES, Pbn};

/// Pieces are cut and joined at multiples of this many blocks (256 KiB).
const PIECE_BLOCKS: u64 = 64;
/// The smallest hole worth a request.
const HOLE_BLOCKS_MIN: u64 = 16;
/// Pieces punched in one go.
const PORTION: usize = 256;
/// With so many pieces (64 GiB) waiting on a volume that is never idle, the first go: their space returns to the
/// host when they are freed again, and memory stays bounded.
const WAITING_MAX: usize = 1 << 18;

impl Core {
    /// Punches some of what was freed. False: nothing is left to do.
    pub fn punch_some(&self) -> bool {
        let pieces = {
            let mut waiting = self.space.punchable.lock();
            let later = waiting.iter().nth(PORTION).copied();
            let later = later.map(|piece| waiting.split_off(&piece)).unwrap_or_default();
            joined_pieces(&std::mem::replace(&mut *waiting, later))
        };
        if pieces.is_empty() {
            return false;
        }
        for piece in pieces {
            let mut load = |region| self.load_region(region);
            let taken = self.space.allocator.lock().take_free_within(piece, HOLE_BLOCKS_MIN, &mut load);
            for run in taken.unwrap_or_default() {
                self.punch(run);
                self.space.allocator.lock().release(run);
            }
        }
        true
    }

    /// Notes freed runs, to be punched when the volume is idle.
    pub fn punch_later(&self, runs: &[Run]) {
        let mut waiting = self.space.punchable.lock();
        waiting.extend(runs.iter().flat_map(pieces_of));
        while waiting.len() > WAITING_MAX {
            waiting.pop_first();
        }
    }

    /// A hole that cannot be punched costs space on the host, nothing else.
    fn punch(&self, run: Run) {
        let bytes = run.blocks * BLOCK_BYTES as u64;
        match self.data.device.punch(run.pbn.0 * BLOCK_BYTES as u64, bytes) {
            Ok(()) => self.stats.counters.bytes_punched.fetch_add(bytes, Relaxed),
            Err(error) => {
                log::debug!("block {} and {} more were not given back to the host: {error}", run.pbn, run.blocks - 1);
                0
            }
        };
    }
}

/// Numbers of the aligned pieces that a run touches.
fn pieces_of(run: &Run) -> Range<u64> {
    run.pbn.0 / PIECE_BLOCKS..run.end().0.div_ceil(PIECE_BLOCKS)
}

/// The pieces as runs, neighbours within a region joined.
fn joined_pieces(numbers: &BTreeSet<u64>) -> Vec<Run> {
    let mut pieces: Vec<Run> = Vec::new();
    for number in numbers {
        let pbn = Pbn(number * PIECE_BLOCKS);
        match pieces.last_mut() {
            Some(last) if last.end() == pbn && !pbn.0.is_multiple_of(REGION_BLOCKS) => last.blocks += PIECE_BLOCKS,
            _ => pieces.push(Run { pbn, blocks: PIECE_BLOCKS }),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_joined_and_end_at_regions() {
        let joined = |runs: &[Run]| joined_pieces(&runs.iter().flat_map(pieces_of).collect());
        let runs = [Run { pbn: Pbn(70), blocks: 10 }, Run { pbn: Pbn(100), blocks: 60 }];
        assert_eq!(joined(&runs), [Run { pbn: Pbn(64), blocks: 128 }]);
        let at_border = [Run { pbn: Pbn(REGION_BLOCKS - 1), blocks: 2 }];
        assert_eq!(joined(&at_border).len(), 2);
    }
}
