//! The volume that a design keeps: which block each place holds, and how often each block is referred to.
//!
//! Stands for oncefs's maps, block table and allocator. Every design has one, so that they differ in what they find
//! only. Blocks are never overwritten; a new one goes to the next free pbn after the last, so that what is written
//! together lies together, round and round.

use std::collections::BTreeMap;

use oncefs_dedup::{Hint, Lbn, Pbn};

use crate::trace::{Content, Place};

/// Blocks of a file whose pbns are kept together.
const CHUNK_BLOCKS: u64 = 64;
/// Blocks of the empty volume.
const BLOCKS_FIRST: usize = 4_096;
/// The volume grows by a quarter when it is this full (in quarters): oncefs's volumes are rarely fuller.
const FULL_QUARTERS: usize = 3;

/// Maps and block table.
///
/// Invariants, asserted by [`Volume::check`]:
/// 1. A block's count is the number of places that refer to it.
/// 2. `used` is the number of blocks whose count is not 0.
pub struct Volume {
    map: BTreeMap<(u64, u64), Box<Chunk>>,
    table: Vec<Block>,
    next: usize,
    used: usize,
}

type Chunk = [Option<u32>; CHUNK_BLOCKS as usize];

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    content: Content,
    count: u32,
}

/// A block one of whose references went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released {
    /// The block.
    pub pbn: Pbn,
    /// What it holds.
    pub content: Content,
    /// References left. At 0 it is free.
    pub count: u32,
}

impl Default for Volume {
    fn default() -> Self {
        Self { map: BTreeMap::new(), table: vec![Block::default(); BLOCKS_FIRST], next: 0, used: 0 }
    }
}

impl Volume {
    /// An empty volume that has so many blocks from the beginning.
    pub fn with_blocks(blocks: u64) -> Self {
        Self { table: vec![Block::default(); BLOCKS_FIRST.max(blocks as usize)], ..Self::default() }
    }

    /// The block at a place.
    pub fn at(&self, place: Place) -> Option<Pbn> {
        let chunk = self.map.get(&key(place))?;
        chunk[index(place)].map(|pbn| Pbn(u64::from(pbn)))
    }

    /// What a live block holds.
    pub fn content(&self, pbn: Pbn) -> Option<Content> {
        let block = self.table.get(pbn.0 as usize)?;
        (block.count > 0).then_some(block.content)
    }

    /// Whether a block is live and holds exactly this: what oncefs asks its block table before it shares.
    pub fn holds(&self, pbn: Pbn, content: Content) -> bool {
        self.content(pbn) == Some(content)
    }

    /// References to a block.
    pub fn count(&self, pbn: Pbn) -> u32 {
        self.table[pbn.0 as usize].count
    }

    /// References to the block of a hint; 0 if it is stale.
    pub fn references(&self, hint: &Hint) -> u32 {
        let is_about = |content: Content| Hint::new(content.tag(), hint.pbn) == *hint;
        self.content(hint.pbn).filter(|content| is_about(*content)).map_or(0, |_| self.count(hint.pbn))
    }

    /// Blocks in use.
    pub fn used(&self) -> u64 {
        self.used as u64
    }

    /// Makes a place refer to a live block. Returns what the place referred to before.
    pub fn share(&mut self, place: Place, pbn: Pbn) -> Option<Released> {
        let block = &mut self.table[pbn.0 as usize];
        assert!(block.count > 0, "{place:?} is to share block {pbn}, which is free");
        block.count += 1;
        self.publish(place, Some(pbn))
    }

    /// Stores a content in a new block. Returns it, and what the place referred to before.
    pub fn store(&mut self, place: Place, content: Content) -> (Pbn, Option<Released>) {
        let pbn = self.allocate();
        self.table[pbn.0 as usize] = Block { content, count: 1 };
        self.used += 1;
        (pbn, self.publish(place, Some(pbn)))
    }

    /// Makes a hole. Returns what the place referred to before.
    pub fn clear(&mut self, place: Place) -> Option<Released> {
        self.publish(place, None)
    }

    fn publish(&mut self, place: Place, pbn: Option<Pbn>) -> Option<Released> {
        let chunk = self.map.entry(key(place)).or_insert_with(|| Box::new([None; CHUNK_BLOCKS as usize]));
        let slot = &mut chunk[index(place)];
        let before = std::mem::replace(slot, pbn.map(|pbn| pbn.0 as u32));
        before.map(|pbn| self.release(pbn))
    }

    fn release(&mut self, pbn: u32) -> Released {
        let block = &mut self.table[pbn as usize];
        block.count -= 1;
        self.used -= usize::from(block.count == 0);
        Released { pbn: Pbn(u64::from(pbn)), content: block.content, count: block.count }
    }

    fn allocate(&mut self) -> Pbn {
        let all = self.table.len();
        if self.used * 4 >= all * FULL_QUARTERS {
            self.table.resize(all + all / 4, Block::default());
            self.next = all;
        }
        // A quarter of the blocks is free, so the search ends.
        while self.table[self.next % self.table.len()].count > 0 {
            self.next += 1;
        }
        let pbn = self.next % self.table.len();
        self.next = pbn + 1;
        Pbn(pbn as u64)
    }

    /// Files that hold something, ascending.
    pub fn files(&self) -> Vec<u64> {
        let mut files: Vec<u64> = self.map.keys().map(|(file, _)| *file).collect();
        files.dedup();
        files
    }

    /// Lbns of a file at which it holds something, ascending.
    pub fn lbns(&self, file: u64) -> Vec<Lbn> {
        let chunks = self.map.range((file, 0)..=(file, u64::MAX));
        let lbns = chunks.flat_map(|((_, chunk), pbns)| {
            let held = pbns.iter().enumerate().filter(|(_, pbn)| pbn.is_some());
            held.map(|(at, _)| Lbn(*chunk * CHUNK_BLOCKS + at as u64))
        });
        lbns.collect()
    }

    /// Extents of all files: stretches that are adjacent in their file and in the data area.
    pub fn extents(&self) -> u64 {
        let mut extents = 0;
        let mut last: Option<(u64, u64, u32)> = None;
        for ((file, chunk), pbns) in &self.map {
            for (at, pbn) in pbns.iter().enumerate() {
                let Some(pbn) = *pbn else { continue };
                let lbn = chunk * CHUNK_BLOCKS + at as u64;
                extents += u64::from(last != Some((*file, lbn, pbn)));
                last = Some((*file, lbn + 1, pbn + 1));
            }
        }
        extents
    }

    /// Asserts the invariants; visits every place.
    pub fn check(&self) {
        let mut counts = vec![0; self.table.len()];
        for pbn in self.map.values().flat_map(|chunk| chunk.iter()).flatten() {
            counts[*pbn as usize] += 1;
        }
        for (pbn, (block, count)) in self.table.iter().zip(&counts).enumerate() {
            assert_eq!(block.count, *count, "invariant 1: block {pbn}");
        }
        assert_eq!(self.used, counts.iter().filter(|count| **count > 0).count(), "invariant 2");
    }
}

fn key(place: Place) -> (u64, u64) {
    (place.file, place.lbn / CHUNK_BLOCKS)
}

fn index(place: Place) -> usize {
    (place.lbn % CHUNK_BLOCKS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncefs_toolbox::Random;

    const HERE: Place = Place { file: 1, lbn: 63 };
    const THERE: Place = Place { file: 1, lbn: 64 };

    #[test]
    fn a_block_is_free_when_its_last_reference_goes() {
        let [one, other] = [1, 2].map(Content::numbered);
        let mut volume = Volume::default();
        let (pbn, before) = volume.store(HERE, one);
        assert_eq!(before, None);
        assert_eq!(volume.share(THERE, pbn), None);
        assert_eq!(volume.store(HERE, other).1, Some(Released { pbn, content: one, count: 1 }));
        assert!(volume.holds(pbn, one) && !volume.holds(pbn, other));
        assert_eq!(volume.clear(THERE), Some(Released { pbn, content: one, count: 0 }));
        assert_eq!((volume.content(pbn), volume.at(THERE), volume.used()), (None, None, 1));
        volume.check();
    }

    #[test]
    fn extents_are_what_lies_together_twice() {
        let mut volume = Volume::default();
        for lbn in 60..70 {
            volume.store(Place { file: 1, lbn }, Content::numbered(lbn));
        }
        assert_eq!(volume.extents(), 1);
        volume.store(HERE, Content::numbered(1));
        assert_eq!(volume.extents(), 3);
        let pbn = volume.at(HERE).unwrap();
        volume.share(Place { file: 2, lbn: 0 }, pbn);
        assert_eq!(volume.extents(), 4);
        assert_eq!((volume.files(), volume.lbns(2)), (vec![1, 2], vec![Lbn(0)]));
    }

    #[test]
    fn random_work_keeps_the_invariants() {
        let mut random = Random::mixed(9);
        let mut volume = Volume::default();
        for _ in 0..100_000 {
            let place = Place { file: random.scaled(4), lbn: random.scaled(3_000) };
            match (random.scaled(4), volume.at(Place { file: 0, lbn: random.scaled(3_000) })) {
                (0, Some(pbn)) => drop(volume.share(place, pbn)),
                (1, _) => drop(volume.clear(place)),
                _ => drop(volume.store(place, Content::numbered(random.scaled(1_000)))),
            }
        }
        volume.check();
        assert!(volume.table.len() < 20_000, "{} blocks for {} in use", volume.table.len(), volume.used());
    }
}
