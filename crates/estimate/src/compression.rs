//! What compression would save beside deduplication: a sample of the contents, compressed block by block.

use oncefs_compress::{BLOCK_BYTES, Compressor, Method};
use oncefs_dedup::{Sample, Tag};

use crate::estimate::Compressed;

/// The methods that are tried.
pub const METHODS: [Method; 2] = [Method::Lz4, Method::Zstd(1)];
/// About so many contents are compressed, of a small corpus all.
const CONTENTS_WANTED: u64 = 1 << 13;
/// And of a large one no fewer than one in so many.
const SAMPLE_MAX: u64 = 64;
/// The error is told as the range in which 95 of 100 samples lie.
const DEVIATIONS: f64 = 1.96;

/// Sums over the contents of the sample, each weighted with how many it stands for.
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
    /// For about so many blocks.
    pub fn new(blocks: u64) -> Self {
        let sample = (blocks / CONTENTS_WANTED).clamp(1, SAMPLE_MAX) as u32;
        let packed =
            METHODS.map(|method| Packed { method, compressor: Compressor::new(method), bytes: 0.0, squares: 0.0 });
        // A power of two, so that this sample and that of the contents lie within each other.
        Self { sample: 1 << sample.ilog2(), contents: 0.0, weights: 0.0, packed: packed.into() }
    }

    /// A content that is met for the first time, one in so many of which are known.
    pub fn add(&mut self, tag: Tag, known: u32, block: &[u8]) {
        if !Sample::one_of(self.sample).has(tag) {
            return;
        }
        let weight = f64::from(self.sample.max(known));
        self.contents += 1.0;
        self.weights += weight;
        for packed in &mut self.packed {
            let bytes = packed.compressor.compress(block).map_or(BLOCK_BYTES, <[u8]>::len) as f64;
            packed.bytes += weight * bytes;
            packed.squares += weight * bytes * bytes;
        }
    }

    /// What it says, for a volume that would store so many of so many blocks.
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
