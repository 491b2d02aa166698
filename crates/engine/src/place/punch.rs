//! Hole punching: freed space goes back to the host, in large aligned pieces, when the volume is idle.

use std::sync::atomic::Ordering::Relaxed;

use crate::Pbn;
use crate::place::free_blocks::FreeBlocks;
use crate::space::allocator::Run;

/// The smallest hole worth a request.
const HOLE_BLOCKS_MIN: u64 = 16;

impl FreeBlocks {
    /// Punches some freed space. False: nothing is left to do.
    pub fn punch_some(&self) -> bool {
        let pieces = self.space.take_punchable();
        for piece in &widened(&pieces, self.data.hole_blocks()) {
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

/// The pieces, each with all of the larger holes that it touches: a device in objects removes an object that is free as
/// a whole. A piece lies in one region, and a region in whole holes.
fn widened(pieces: &[Run], hole_blocks: u64) -> Vec<Run> {
    let mut wide: Vec<Run> = Vec::new();
    for piece in pieces {
        let hole = hole_blocks.max(1);
        let (first, end) = (piece.pbn.0 / hole * hole, piece.end().0.next_multiple_of(hole));
        let first = first.max(wide.last().map_or(0, |last| last.end().0)).max(1);
        if first < end {
            wide.push(Run { pbn: Pbn(first), blocks: end - first });
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_widened_to_whole_holes_once() {
        let run = |pbn, blocks| Run { pbn: Pbn(pbn), blocks };
        let pieces = [run(64, 64), run(192, 64), run(1024 + 960, 64), run(4096, 128)];
        assert_eq!(widened(&pieces, 1024), [run(1, 1023), run(1024, 1024), run(4096, 1024)]);
        assert_eq!(widened(&pieces, 0), pieces);
    }
}
