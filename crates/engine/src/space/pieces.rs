//! Aligned pieces of the data area in which blocks were freed: what hole punching has to look at.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::Pbn;
use crate::space::allocator::{REGION_BLOCKS, Run};

/// Pieces are cut and joined at multiples of this many blocks (256 KiB).
const PIECE_BLOCKS: u64 = 64;
/// Pieces punched in one go.
const PORTION: usize = 256;
/// With so many pieces (64 GiB) waiting on a volume that is never idle, the first go: their space returns to the
/// host when they are freed again, and memory stays bounded.
const WAITING_MAX: usize = 1 << 18;

/// Pieces that wait to be punched, by number.
#[derive(Default)]
pub struct Pieces {
    waiting: BTreeSet<u64>,
}

impl Pieces {
    /// Notes freed runs.
    pub fn note(&mut self, runs: &[Run]) {
        self.waiting.extend(runs.iter().flat_map(pieces_of));
        while self.waiting.len() > WAITING_MAX {
            self.waiting.pop_first();
        }
    }

    /// Takes some pieces out, as runs, neighbours within a region joined.
    pub fn take_some(&mut self) -> Vec<Run> {
        let later = self.waiting.iter().nth(PORTION).copied();
        let later = later.map(|piece| self.waiting.split_off(&piece)).unwrap_or_default();
        let taken = std::mem::replace(&mut self.waiting, later);
        assert!(taken.len() <= PORTION, "{} pieces in one portion", taken.len());
        joined_pieces(&taken)
    }
}

/// Numbers of the aligned pieces that a run touches.
fn pieces_of(run: &Run) -> Range<u64> {
    assert!(run.blocks > 0, "no block was freed at {}", run.pbn);
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
