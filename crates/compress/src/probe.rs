//! Probe: whether a block looks as if it shrinks, at a fraction of what compressing random bytes costs.

use crate::{BLOCK_BYTES, Compressor, Method};

/// How many bytes are counted, in pieces from all over the block.
const COUNTED_BYTES: usize = 512;
const PIECES: usize = 4;
/// From this sum of squared counts on, an entropy coder finds something. Random bytes have a sum of 1,534 on average,
/// with a deviation of 45. Bytes that use 160 of the 256 values, about 7.3 bits each, have one of 2,144.
const SQUARES_MIN: u32 = 2_144;

/// Tries blocks. Its table is reused for every block, so each thread that probes needs one.
pub struct Probe {
    lz4: Compressor,
}

impl Default for Probe {
    fn default() -> Self {
        Self { lz4: Compressor::new(Method::Lz4) }
    }
}

impl Probe {
    /// Whether a block looks as if this method makes a fragment of it. LZ4 gives up on random bytes early, and finds
    /// whatever repeats. Zstandard also shortens bytes of which some are frequent, so they are counted.
    pub fn shrinks(&mut self, method: Method, block: &[u8]) -> bool {
        assert_eq!(block.len(), BLOCK_BYTES, "bytes of a block");
        let has_entropy_coder = matches!(method, Method::Zstd(_));
        has_entropy_coder && is_uneven(block) || self.lz4.compress(block).is_some()
    }
}

/// Whether some values of bytes are more frequent than others.
fn is_uneven(block: &[u8]) -> bool {
    let mut counts = [0_u32; 256];
    for piece in block.chunks_exact(BLOCK_BYTES / PIECES) {
        piece[..COUNTED_BYTES / PIECES].iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    }
    counts.iter().map(|count| count * count).sum::<u32>() >= SQUARES_MIN
}
