//! Estimates the duplicates found while writing with less memory for hints, with the product's hint stores in
//! miniature. A store with a part of the memory gets the same part of the contents (the method of SHARDS, Waldspurger
//! 2015).

use oncefs_dedup::{Eviction, HintOptions, HintStore, Pbn, Sample, Tag};

use crate::estimate::HintMemory;

/// Memory for hints.
const BYTES: [u64; 6] = [1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20, 1 << 30];
/// The sample has about this many contents.
const CONTENTS_WANTED: u64 = 1 << 16;
/// A hint takes less than this. A store with this much for each block forgets nothing, so no larger one is needed.
const HINT_BYTES_MAX: u64 = 16;
/// Least size of a store: a smaller one holds too few hints for a result.
const STORE_BYTES_MIN: u64 = 64 << 10;

struct Store {
    bytes: u64,
    hints: HintStore,
    found: u64,
}

/// Stores of several sizes, side by side.
pub struct HintMemories {
    sample: Sample,
    blocks: u64,
    stores: Vec<Store>,
    holders: Vec<Pbn>,
}

impl HintMemories {
    /// Stores for about `blocks` blocks.
    pub fn new(blocks: u64) -> Self {
        let sample = (blocks / CONTENTS_WANTED).max(1);
        let sample = 1_u64 << sample.ilog2().min(31);
        let store = |bytes: &u64| Store {
            bytes: *bytes,
            hints: HintStore::new(HintOptions {
                bytes_max: bytes / sample,
                prefix_bits: None,
                eviction: Eviction::ColdOfGroups,
                keep_evicted: false,
                sample: Sample::ALL,
            }),
            found: 0,
        };
        let enough = BYTES.iter().position(|bytes| *bytes >= HINT_BYTES_MAX * blocks).unwrap_or(BYTES.len() - 1);
        let tellable = BYTES[..=enough].iter().filter(|bytes| **bytes / sample >= STORE_BYTES_MIN);
        let stores = tellable.map(store).collect();
        Self { sample: Sample::one_of(sample as u32), blocks: 0, stores, holders: Vec::new() }
    }

    /// Adds the next block.
    pub fn add(&mut self, tag: Tag) {
        if !self.sample.has(tag) {
            return;
        }
        self.blocks += 1;
        for store in &mut self.stores {
            self.holders.clear();
            store.hints.lookup(tag, &mut self.holders);
            if self.holders.is_empty() {
                store.hints.insert(tag, Pbn(self.blocks));
            } else {
                store.found += 1;
            }
        }
    }

    /// The share that each store found, up to the first store that forgot nothing.
    pub fn result(&self) -> Vec<HintMemory> {
        let enough = self.stores.iter().position(|store| store.found + store.hints.len() as u64 == self.blocks);
        let stores = &self.stores[..enough.map_or(self.stores.len(), |at| at + 1)];
        let result = stores.iter().map(|store| HintMemory {
            bytes: store.bytes,
            found_percent: 100.0 * store.found as f64 / self.blocks.max(1) as f64,
        });
        result.collect()
    }
}

#[cfg(test)]
mod tests {
    use oncefs_toolbox::Random;

    use super::*;

    #[test]
    fn little_memory_finds_less_and_the_first_that_is_enough_is_the_last_shown() {
        // Every content comes twice, half of all blocks later.
        let contents: Vec<u64> = (0..400_000).map(|at| Random::new(at % 200_000).word()).collect();
        let mut memories = HintMemories::new(400_000);
        contents.iter().for_each(|tag| memories.add(Tag(*tag)));
        let found: Vec<(u64, f64)> =
            memories.result().iter().map(|memory| (memory.bytes >> 20, memory.found_percent)).collect();
        assert_eq!(found.iter().map(|(bytes, _)| *bytes).collect::<Vec<_>>(), [1, 4], "{found:?}");
        assert!(found[0].1 < 40.0 && (found[1].1 - 50.0).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn there_are_no_more_stores_than_tell_something_and_their_memory_is_bounded_by_what_was_expected() {
        let sizes =
            |blocks: u64| HintMemories::new(blocks).stores.iter().map(|store| store.bytes >> 20).collect::<Vec<_>>();
        assert_eq!(sizes(0), [1]);
        assert_eq!(sizes(1 << 20), [1, 4, 16]);
        assert_eq!(sizes(25_000_000), [16, 64, 256, 1024], "of less than 16 MiB a sample of one in 256 tells nothing");
        for blocks in [0, 1, 100_000, 1 << 22, 1 << 32] {
            let stores = HintMemories::new(blocks).stores;
            let bytes: u64 = stores.iter().map(|store| store.hints.bytes_max()).sum();
            assert!(bytes <= 16 << 20, "{blocks} blocks: {bytes} bytes");
        }
    }
}
