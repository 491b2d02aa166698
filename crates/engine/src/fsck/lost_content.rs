//! Content of a map whose records are lost.
//!
//! A place without a record is a hole, and reads as zeros. A caller that knows that a map had more blocks than are left
//! reports it here: the holes of a part become references to a block that is known to be bad. So reading them is an
//! error. Writing them or removing the file works as with any damaged content, and a check names the file until then.

use crate::base::part;
use crate::device::buffer::AlignedBuf;
use crate::format::damage_records::BadRecord;
use crate::format::extent_leaf::{Extent, LEAF_BLOCKS, Target};
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::LeafKey;
use crate::format::page::BAD;
use crate::place::free_blocks::{Claim, FreeBlocks};
use crate::state::flag_change::FlagChange;
use crate::state::loading::Metadata;
use crate::state::published::{Incref, Plan, StoredBlock};
use crate::write::lazy_clone::LazyClones;
use crate::write::map_edit::MapEdit;
use crate::write::publish::Publisher;
use crate::{BLOCK_BYTES, Blocks, MapId, Pbn, Result, Store, Tag};

/// A part of 1 MiB of a map that has holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartWithHoles {
    /// Its number.
    pub part: u64,
    /// Blocks without a mapping.
    pub holes: Blocks,
    /// Whether nothing in it is mapped, so that it has no record.
    pub is_empty: bool,
}

impl Store {
    /// The parts with holes among the first `blocks` of a map, in order. None: more than `parts_max`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) or [`Error::Corrupt`](crate::Error::Corrupt): the record store cannot be read.
    pub fn parts_with_holes(&self, map: MapId, blocks: Blocks, parts_max: usize) -> Result<Option<Vec<PartWithHoles>>> {
        let mut found = Vec::new();
        for part in 0..blocks.0.div_ceil(LEAF_BLOCKS) {
            let len = blocks_of_part(part, blocks);
            let leaf = self.volume.metadata.leaf(LeafKey { map, leaf: part })?;
            let holes: u16 = leaf.slice(0, len).filter(is_hole).map(|hole| hole.blocks).sum();
            if holes > 0 {
                found.push(PartWithHoles { part, holes: Blocks(holes.into()), is_empty: holes == len });
            }
            if found.len() > parts_max {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }

    /// Turns the holes of a part, within the map's first `blocks`, into blocks that are known to be bad.
    ///
    /// # Errors
    ///
    /// - [`Error::NoSpace`](crate::Error::NoSpace): no block is free to stand for them.
    /// - [`Error::ReadOnly`](crate::Error::ReadOnly), [`Error::Io`](crate::Error::Io): the volume failed.
    pub fn lose_holes(&self, map: MapId, part: u64, blocks: Blocks) -> Result<()> {
        LostContent::new(
            &self.volume.base,
            &self.volume.metadata,
            &self.volume.free_blocks,
            &self.volume.lazy_clones,
            &self.volume.publisher,
        )
        .lose_holes(LeafKey { map, leaf: part }, blocks_of_part(part, blocks))
    }
}

/// How many of a map's first `blocks` lie in a part.
fn blocks_of_part(part: u64, blocks: Blocks) -> u16 {
    blocks.0.saturating_sub(part * LEAF_BLOCKS).min(LEAF_BLOCKS) as u16
}

fn is_hole(extent: &Extent) -> bool {
    extent.target == Target::Hole
}

part! {
    /// Makes lost content of maps known as bad.
    pub struct LostContent {
        base: data, hasher;
        metadata: Metadata, free_blocks: FreeBlocks, lazy_clones: LazyClones, publisher: Publisher
    }
}

impl LostContent {
    fn lose_holes(&self, key: LeafKey, len: u16) -> Result<()> {
        let _map = self.metadata.lock_of(key.map).write();
        self.lazy_clones.own(key.map, [key.leaf])?;
        let mut edit = MapEdit::new(&self.metadata, key.map);
        let holes = edit.look(key, 0, len)?.into_iter().filter(is_hole).flat_map(|hole| hole.first..hole.end());
        let holes: Vec<u16> = holes.collect();
        if holes.is_empty() {
            return Ok(());
        }
        let placed = self.free_blocks.allocate(1, Claim::KeptBack)?;
        let pbn = placed[0].pbn;
        let tag = self.tag_that_differs(pbn);
        for first in &holes {
            edit.set(key, Extent { first: *first, blocks: 1, target: Target::Data(pbn) })?;
        }
        let reference = || Incref { pbn, tag };
        let plan = Plan {
            stores: vec![StoredBlock { pbn, tag, fingerprint: None }],
            increfs: holes[1..].iter().map(|_| reference()).collect(),
            claimed: 1,
            ..edit.into_plan()
        };
        let bad = Plan {
            record_increfs: vec![reference()],
            flags: vec![FlagChange::set(pbn, BAD)],
            bad: vec![(pbn, Some(BadRecord { replacement: None, tag }))],
            ..Plan::default()
        };
        let _room = self.publisher.room().claim_log_room(GroupBytes::of_leaves(2));
        if let Err(error) = self.publisher.apply_certain(plan) {
            self.free_blocks.give_back(&placed);
            return Err(error);
        }
        self.publisher.apply_certain(bad)
    }

    /// A tag that differs from that of a free block's present content.
    fn tag_that_differs(&self, pbn: Pbn) -> Tag {
        let mut block = AlignedBuf::new(BLOCK_BYTES);
        // An unreadable block has no tag, so any tag differs.
        let there = self.data.read(pbn, &mut block).map(|()| self.hasher.tag(&block));
        Tag(!there.unwrap_or_default().0)
    }
}
