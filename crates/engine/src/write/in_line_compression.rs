//! Compression as blocks are written (`compress=inline` and `auto`): decides for each request whether its new blocks
//! become fragments, and makes them. Nothing is placed yet.
//!
//! It runs in the request's thread after sharing is decided, so a shared block is never compressed, and tags, hints and
//! fingerprints are those of the uncompressed block.

use std::sync::atomic::Ordering::Relaxed;

use oncefs_compress::{Compressor, Method, Probe};
use oncefs_dedup::{Compress, CompressNow};

use crate::MapId;
use crate::base::part;
use crate::policy::effective::FilePolicies;
use crate::sync::{LockRank, Mutex};
use crate::write::batch::{Batch, Outcome};
use crate::write::packed::Packed;

/// Requests with fewer new blocks are left to the worker. They are collected in memory and may ride in the log, and a
/// pack of few fragments saves hardly a block.
pub const COMPRESSED_BLOCKS_MIN: usize = 32;
/// How many blocks of a request are tried before all are compressed. If none of them shrinks, the request is left
/// alone.
const PROBED_BLOCKS: usize = 4;
/// A request has to save one part in this many of its new blocks: fragments beside whole blocks are more pieces.
const SAVED_PART_MIN: u64 = 8;
/// How many blocks of a request are compressed to learn what that takes and saves.
const MEASURED_BLOCKS: usize = 8;
/// Most compressors that are kept for the next requests, each with its tables of about 100 KB.
const KEPT_MAX: usize = 16;

/// The tools with which a thread compresses.
struct Tools {
    method: Method,
    compressor: Compressor,
    probe: Probe,
}

impl Tools {
    fn new(method: Method) -> Self {
        Self { method, compressor: Compressor::new(method), probe: Probe::default() }
    }
}

part! {
    /// Compresses new blocks of write requests.
    pub struct InLineCompressor {
        base: tuning, stats, inline;
        file_policies: FilePolicies
    } own {
        /// Those that no request uses now.
        tools: Mutex<Vec<Tools>> = Mutex::new(LockRank::Leaf, Vec::new())
    }
}

impl InLineCompressor {
    /// Whether a request of this many blocks may be compressed, which takes time.
    pub fn may_compress(&self, map: MapId, blocks: usize) -> bool {
        blocks >= COMPRESSED_BLOCKS_MIN && matches!(self.file_policies.compress(map), Compress::Inline | Compress::Auto)
    }

    /// The fragments of the blocks that a decided batch stores anew, if it is worth it. Blocks that are still open stay
    /// as they are, because they may yet become references. Notes which blocks were tried and do not shrink.
    pub fn compress(&self, map: MapId, batch: &mut Batch) -> Option<Packed> {
        let when = self.file_policies.compress(map);
        if !matches!(when, Compress::Inline | Compress::Auto) {
            return None;
        }
        let anew = batch.indexes(|outcome| outcome == Outcome::Anew(None));
        let settled = anew.len() - batch.open.len().min(anew.len());
        let anew = &anew[..settled];
        if anew.len() < COMPRESSED_BLOCKS_MIN {
            return None;
        }
        let now = if when == Compress::Auto { self.inline.compress_now() } else { CompressNow::Yes };
        if now == CompressNow::No {
            return None;
        }
        let mut tools = self.take_tools(self.tuning.with(|settings| settings.compress_method.in_line()));
        let packed = if self.shrinks(&mut tools, batch, anew) {
            match now {
                CompressNow::Yes => self.compress_blocks(&mut tools, batch, anew),
                CompressNow::Measure | CompressNow::No => {
                    self.measure(&mut tools, batch, &anew[..MEASURED_BLOCKS]);
                    None
                }
            }
        } else {
            None
        };
        self.keep_tools(tools);
        packed
    }

    /// Whether a few of these blocks show that they shrink.
    fn shrinks(&self, Tools { method, probe, .. }: &mut Tools, batch: &Batch, anew: &[usize]) -> bool {
        let step = anew.len().div_ceil(PROBED_BLOCKS);
        let shrinks = anew.iter().step_by(step).any(|index| probe.shrinks(*method, batch.block(*index)));
        if !shrinks {
            self.stats.counters.write_requests_incompressible.fetch_add(1, Relaxed);
        }
        shrinks
    }

    fn compress_blocks(&self, tools: &mut Tools, batch: &mut Batch, anew: &[usize]) -> Option<Packed> {
        let packed = self.pack(tools, batch, anew);
        let is_kept = |index: &usize| packed.indexes().binary_search(index).is_err();
        batch.incompressible.extend(anew.iter().copied().filter(is_kept));
        (saved_by(&packed) * SAVED_PART_MIN >= anew.len() as u64).then_some(packed)
    }

    /// Learns what compressing these blocks takes and saves. They are compressed once before the clock runs, because
    /// tables that were not used for long have to come back to the CPU's caches.
    fn measure(&self, tools: &mut Tools, batch: &Batch, blocks: &[usize]) {
        for &index in blocks {
            tools.compressor.compress(batch.block(index));
        }
        self.pack(tools, batch, blocks);
    }

    /// The fragments of these blocks, without those that do not shrink. Notes how long that took.
    fn pack(&self, Tools { method, compressor, .. }: &mut Tools, batch: &Batch, blocks: &[usize]) -> Packed {
        let timer = self.inline.begin_compression();
        let mut packed = Packed::new(method.coding());
        for &index in blocks {
            if let Some(fragment) = compressor.compress(batch.block(index)) {
                packed.add(index, fragment);
            }
        }
        self.inline.end_compression(timer, blocks.len() as u64, saved_by(&packed));
        packed
    }

    fn take_tools(&self, method: Method) -> Tools {
        let mut tools = self.tools.lock();
        tools.retain(|kept| kept.method == method);
        let kept = tools.pop();
        drop(tools);
        kept.unwrap_or_else(|| Tools::new(method))
    }

    fn keep_tools(&self, tools: Tools) {
        let mut kept = self.tools.lock();
        if kept.len() < KEPT_MAX {
            kept.push(tools);
        }
    }
}

/// How many blocks fewer are written.
fn saved_by(packed: &Packed) -> u64 {
    packed.len().saturating_sub(packed.blocks())
}
