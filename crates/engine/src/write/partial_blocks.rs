//! Blocks that change in part: a write is merged with the stored bytes around it, and a range that begins or ends
//! within a block gives that block new content. The new content is published with the rest of the range's change, so
//! that an error leaves all of it or nothing.

use crate::base::part;
use crate::device::buffer::PooledBuf;
use crate::format::extent_leaf::{Extent, Target};
use crate::format::keys::{LeafKey, leaf_parts};
use crate::hash::is_zero;
use crate::place::free_blocks::{Claim, FreeBlocks};
use crate::read::steps::Reader;
use crate::space::allocator::Run;
use crate::state::loading::Metadata;
use crate::state::published::StoredBlock;
use crate::write::map_edit::MapEdit;
use crate::{BLOCK_BYTES, Lbn, MapId, Pbn, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A block of which a part becomes zeros.
struct CutBlock {
    lbn: Lbn,
    place: (LeafKey, u16),
    /// Its new content, staged. None: only zeros are left, so it becomes a hole.
    stored: Option<StoredBlock>,
}

/// A partial write with what is stored around it.
#[derive(Default)]
pub struct Ends {
    /// Whole blocks. None: the write has no others.
    pub merged: Option<PooledBuf>,
    /// The blocks that it covers in part, and where they lay when they were read.
    read: Vec<(Lbn, Target)>,
}

/// The blocks that a range cuts, prepared; nothing is visible yet.
#[derive(Default)]
pub struct Cuts {
    blocks: Vec<CutBlock>,
}

impl Cuts {
    /// Adds the cut blocks of one leaf to the change of their map.
    pub fn add_to(&self, edit: &mut MapEdit<'_>, leaf: LeafKey) -> Result<()> {
        for cut in self.blocks.iter().filter(|cut| cut.place.0 == leaf) {
            let (key, at) = cut.place;
            let target = cut.stored.map_or(Target::Hole, |stored| Target::Data(stored.pbn));
            edit.set(key, Extent { first: at, blocks: 1, target })?;
            cut.stored.iter().for_each(|stored| edit.store_staged(*stored));
        }
        Ok(())
    }

    /// Where new content is staged.
    pub fn runs(&self) -> Vec<Run> {
        self.blocks.iter().filter_map(|cut| cut.stored).map(|stored| Run { pbn: stored.pbn, blocks: 1 }).collect()
    }
}

part! {
    /// Completes blocks that change in part with what is stored.
    pub struct PartialBlocks {
        base: data, hasher, staging, backlog;
        metadata: Metadata, free_blocks: FreeBlocks, reader: Reader
    }
}

impl PartialBlocks {
    /// Whole blocks from a partial write and what is stored around it. The caller holds the map's lock.
    pub fn merge_with_stored(&self, map: MapId, at: u64, data: &[u8]) -> Result<Ends> {
        let cut = [at, at + data.len() as u64].into_iter().filter(|byte| !byte.is_multiple_of(BLOCK));
        let target = |lbn: Lbn| Ok((lbn, self.target_of(map, lbn)?));
        let read = cut.map(|byte| target(Lbn(byte / BLOCK))).collect::<Result<Vec<_>>>()?;
        Ok(Ends { merged: Some(self.merged(map, at, data)?), read })
    }

    /// Whether the blocks around a partial write are still those that it was merged with. The caller holds the map's
    /// lock, and has had the blocks pinned since they were read: so those in the same places have the same content.
    pub fn are_unchanged(&self, map: MapId, ends: &Ends) -> Result<bool> {
        for (lbn, target) in &ends.read {
            if self.target_of(map, *lbn)? != *target {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn target_of(&self, map: MapId, lbn: Lbn) -> Result<Target> {
        let (key, at, end) = leaf_parts(map, lbn, 1).next().expect("one block has one part");
        let target = self.metadata.leaf(key)?.slice(at, end).next().map(|extent| extent.target);
        Ok(target.unwrap_or(Target::Hole))
    }

    fn merged(&self, map: MapId, at: u64, data: &[u8]) -> Result<PooledBuf> {
        let block = BLOCK_BYTES as u64;
        let (start, end) = (at / block * block, (at + data.len() as u64).next_multiple_of(block));
        let mut merged = self.data.take_buffer((end - start) as usize);
        let head = (at - start) as usize;
        let tail = head + data.len();
        let len = merged.len();
        assert!(head < BLOCK_BYTES && tail <= len, "bytes {head} to {tail} of {len}");
        if head > 0 {
            self.reader.read_locked(map, Lbn(start / block), &mut merged[..BLOCK_BYTES])?;
        }
        if tail < len && !(head > 0 && len == BLOCK_BYTES) {
            self.reader.read_locked(map, Lbn(end / block - 1), &mut merged[len - BLOCK_BYTES..])?;
        }
        merged[head..tail].copy_from_slice(data);
        Ok(merged)
    }

    /// Prepares the zeroing of these byte ranges, each within one block. Works on a full volume.
    pub fn cut_blocks(&self, map: MapId, ranges: &[(u64, u64)]) -> Result<Cuts> {
        let mut cuts = Cuts::default();
        for &(from, to) in ranges.iter().filter(|(from, to)| from < to) {
            match self.cut_block(map, from, to) {
                Ok(cut) => cuts.blocks.extend(cut),
                Err(error) => {
                    self.forget_cuts(&cuts);
                    return Err(error);
                }
            }
        }
        Ok(cuts)
    }

    /// None if no block has to be cut.
    fn cut_block(&self, map: MapId, from: u64, to: u64) -> Result<Option<CutBlock>> {
        let lbn = Lbn(from / BLOCK);
        assert!(from < to && to <= (lbn.0 + 1) * BLOCK, "bytes {from} to {to} lie within one block");
        let (key, at, _) = leaf_parts(map, lbn, 1).next().expect("one block has one part");
        if !matches!(self.target_of(map, lbn)?, Target::Data(_)) {
            return Ok(None);
        }
        let _pin = self.metadata.pin();
        let mut block = self.data.take_buffer(BLOCK_BYTES);
        self.reader.read_locked(map, lbn, &mut block)?;
        block[(from % BLOCK) as usize..(to - lbn.0 * BLOCK) as usize].fill(0);
        let stored = if is_zero(&block) { None } else { Some(self.stage_one(&block)?) };
        Ok(Some(CutBlock { lbn, place: (key, at), stored }))
    }

    fn stage_one(&self, block: &[u8]) -> Result<StoredBlock> {
        let runs = self.free_blocks.allocate(1, Claim::KeptBack)?;
        let pbn: Pbn = runs[0].pbn;
        self.staging.put(pbn, block);
        Ok(StoredBlock { pbn, tag: self.hasher.tag(block), fingerprint: None })
    }

    /// The cuts were published.
    pub fn cuts_landed(&self, map: MapId, cuts: &Cuts) {
        self.backlog.note(map, cuts.blocks.iter().map(|cut| (cut.lbn, 1, cut.stored.is_some())));
    }

    /// The cuts were not published.
    pub fn forget_cuts(&self, cuts: &Cuts) {
        let runs = cuts.runs();
        self.staging.remove(runs.iter().map(|run| run.pbn));
        self.free_blocks.give_back(&runs);
    }
}
