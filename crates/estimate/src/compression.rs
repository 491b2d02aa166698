//! Estimates the saving by compression on top of deduplication: compresses a sample of the contents block by block.

use oncefs_compress::{BLOCK_BYTES, Compressor, Method};
use oncefs_dedup::{Sample, Tag};

use crate::estimate::Compressed;

/// The methods to try.
pub const METHODS: [Method; 2] = [Method::Lz4, Method::Zstd(1)];
/// At most about this many contents are compressed, or all of a small corpus.
const CONTENTS_WANTED: u64 = 1 << 12;
/// But at least one in this many of a large corpus.
const SAMPLE_MAX: u32 = 64;
/// The error is the range in which 95 of 100 samples lie.
const DEVIATIONS: f64 = 1.96;

/// Sums over the contents of the sample, each weighted with the number of contents that it represents.
struct Packed {
    method: Method,
    compressor: Compressor,
    bytes: f64,
    squares: f64,
}

/// The sample.
pub struct Compression {
    sample: u32,
    contents: f64,
    weights: f64,
    packed: Vec<Packed>,
}

impl Compression {
    /// A sample for about `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        // A power of two, so that one of this sample and the sample of contents contains the other.
        let sample = (blocks / CONTENTS_WANTED).clamp(1, u64::from(SAMPLE_MAX)).next_power_of_two() as u32;
        let packed =
            METHODS.map(|method| Packed { method, compressor: Compressor::new(method), bytes: 0.0, squares: 0.0 });
        Self { sample, contents: 0.0, weights: 0.0, packed: packed.into() }
    }

    /// Adds a content that comes for the first time. `known`: one content in this many is known.
    pub fn add(&mut self, tag: Tag, known: u32, block: &[u8]) {
        if !Sample::one_of(self.sample).has(tag) {
            return;
        }
        let weight = f64::from(self.sample.max(known));
        self.contents += 1.0;
        self.weights += weight;
        // More blocks come than expected. The sample takes as many again before its rate is halved.
        if self.sample < SAMPLE_MAX && self.contents as u64 > CONTENTS_WANTED * u64::from(2 + self.sample.ilog2()) {
            self.sample *= 2;
        }
        for packed in &mut self.packed {
            let bytes = packed.compressor.compress(block).map_or(BLOCK_BYTES, <[u8]>::len) as f64;
            packed.bytes += weight * bytes;
            packed.squares += weight * bytes * bytes;
        }
    }

    /// The result, for a volume that would store `stored` of `blocks` blocks.
    pub fn result(&self, stored: u64, blocks: u64) -> Vec<Compressed> {
        let of_method = |packed: &Packed| {
            let mean = packed.bytes / self.weights / BLOCK_BYTES as f64;
            let square = packed.squares / self.weights / (BLOCK_BYTES * BLOCK_BYTES) as f64;
            let error = DEVIATIONS * ((square - mean * mean).max(0.0) / self.contents).sqrt();
            let saved = 1.0 - mean * stored as f64 / blocks as f64;
            Compressed {
                method: packed.method.to_string(),
                percent_of_stored: 100.0 * (1.0 - mean),
                error_points: 100.0 * if self.sample == 1 { 0.0 } else { error },
                saved_with_dedup_percent: 100.0 * saved,
            }
        };
        if self.contents == 0.0 { Vec::new() } else { self.packed.iter().map(of_method).collect() }
    }

    /// Contents compressed.
    pub fn contents(&self) -> u64 {
        self.contents as u64
    }
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;

    /// A third of all blocks do not compress, the others nearly vanish.
    fn compressed(expected: u64, blocks: u64) -> (Compression, f64) {
        let mut random = Random::new(9);
        let (noise, text) = (random.bytes(BLOCK_BYTES), vec![b'x'; BLOCK_BYTES]);
        let mut compression = Compression::new(expected);
        for _ in 0..blocks {
            let block = if random.one_in(3) { &noise } else { &text };
            compression.add(Tag(random.word()), 1, block);
        }
        let result = compression.result(blocks / 2, blocks);
        assert!(result.iter().all(|method| (method.percent_of_stored - 66.0).abs() < 1.0 + method.error_points));
        let both = 100.0 - (100.0 - result[0].percent_of_stored) / 2.0;
        assert!((result[0].saved_with_dedup_percent - both).abs() < 0.01, "{result:?}");
        (compression, result[0].error_points)
    }

    #[test]
    fn all_blocks_of_little_are_compressed_and_a_sample_of_much() {
        let (all, error) = compressed(2_000, 2_000);
        assert_eq!((all.contents(), error), (2_000, 0.0));
        let (sample, error) = compressed(128 * CONTENTS_WANTED, 40_000);
        assert!((400..900).contains(&sample.contents()) && error > 1.0, "{} {error}", sample.contents());
    }

    #[test]
    fn a_sample_becomes_smaller_if_more_comes_than_was_expected() {
        let (sample, error) = compressed(0, 10 * CONTENTS_WANTED);
        assert!(sample.contents() < 6 * CONTENTS_WANTED && error > 0.0, "{}", sample.contents());
    }
}
