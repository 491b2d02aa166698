//! Hole punching: freed space goes back to the host, in large aligned pieces, when the volume is idle.

use std::sync::atomic::Ordering::Relaxed;

use crate::allocator::{REGION_BLOCKS, Run};
use crate::core::Core;
use crate::{BLOCK_BYTES, Pbn};

/// Pieces are cut and joined at multiples of this many blocks (256 KiB).
const PIECE_BLOCKS: u64 = 64;
/// The smallest hole worth a request.
const HOLE_BLOCKS_MIN: u64 = 16;
/// Pieces punched in one go.
const PORTION: usize = 256;

impl Core {
    /// Punches some of what was freed. False: nothing is left to do.
    pub fn punch_some(&self) -> bool {
        let runs = std::mem::take(&mut *self.punchable.lock());
        let mut pieces = pieces_of(&runs);
        if pieces.is_empty() {
            return false;
        }
        let later = pieces.split_off(pieces.len().min(PORTION));
        self.punchable.lock().extend(later);
        for piece in pieces {
            let taken = self.allocator.lock().take_free_within(piece, HOLE_BLOCKS_MIN);
            for run in taken {
                self.punch(run);
                self.allocator.lock().release(run);
            }
        }
        true
    }

    /// A hole that cannot be punched costs space on the host, nothing else.
    fn punch(&self, run: Run) {
        let bytes = run.blocks * BLOCK_BYTES as u64;
        match self.data.punch(run.pbn.0 * BLOCK_BYTES as u64, bytes) {
            Ok(()) => self.counters.bytes_punched.fetch_add(bytes, Relaxed),
            Err(error) => {
                log::debug!("block {} and {} more were not given back to the host: {error}", run.pbn, run.blocks - 1);
                0
            }
        };
    }
}

/// The aligned pieces that runs touch, in order, neighbours within a region joined.
fn pieces_of(runs: &[Run]) -> Vec<Run> {
    let touched = runs.iter().flat_map(|run| run.pbn.0 / PIECE_BLOCKS..run.end().0.div_ceil(PIECE_BLOCKS));
    let mut numbers: Vec<u64> = touched.collect();
    numbers.sort_unstable();
    numbers.dedup();
    let mut pieces: Vec<Run> = Vec::new();
    for number in numbers {
        let pbn = Pbn(number * PIECE_BLOCKS);
        match pieces.last_mut() {
            Some(last) if last.end() == pbn && pbn.0 % REGION_BLOCKS != 0 => last.blocks += PIECE_BLOCKS,
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
        let runs = [Run { pbn: Pbn(70), blocks: 10 }, Run { pbn: Pbn(100), blocks: 60 }];
        assert_eq!(pieces_of(&runs), [Run { pbn: Pbn(64), blocks: 128 }]);
        let at_border = [Run { pbn: Pbn(REGION_BLOCKS - 1), blocks: 2 }];
        assert_eq!(pieces_of(&at_border).len(), 2);
    }
}
