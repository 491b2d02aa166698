//! The leaves of a range of a map, and how the range is split into parts that fit into one commit group each: by
//! leaves, and by distinct pages of the block table.

use std::ops::Range;

use crate::base::part;
use crate::commit::log_room::GroupBounds;
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::keys::{LeafKey, leaf_parts};
use crate::format::page::page_of;
use crate::place::free_blocks::FreeBlocks;
use crate::space::allocator::Run;
use crate::state::extents::{pages_in, pages_of, within_leaf};
use crate::state::loading::Metadata;
use crate::state::published::Incref;
use crate::state::table::damaged_entry;
use crate::write::lazy_clone::LazyClones;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;
const LEAF_BYTES: u64 = LEAF_BLOCKS * BLOCK;
/// Pages that are read ahead together.
const PORTION_PAGES: usize = 64;

/// Splits a range from its beginning.
struct Splitter {
    parts: Vec<Range<u64>>,
    from: u64,
    /// Leaves of the open part.
    leaves: u64,
    pages: u64,
}

impl Splitter {
    /// The open part ends where a leaf begins.
    fn cut(&mut self, leaf: u64) {
        let end = leaf * LEAF_BYTES;
        assert!(end > self.from, "a part from {} to {end}", self.from);
        self.parts.push(self.from..end);
        (self.from, self.leaves, self.pages) = (end, 0, 0);
    }
}

part! {
    /// Splits changes of ranges, and claims room for them.
    pub struct RangeParts {
        pub(super) base: journal;
        metadata: Metadata, free_blocks: FreeBlocks, lazy_clones: LazyClones
    }
}

impl RangeParts {
    /// The bounds of a change of a range.
    pub fn bounds(&self) -> &GroupBounds {
        self.journal.bounds()
    }

    /// The maps.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// See [`crate::Store::parts`].
    pub fn parts(&self, map: MapId, bytes: &Range<u64>, fills_holes: bool) -> Result<Vec<Range<u64>>> {
        let bounds = *self.journal.bounds();
        let blocks = bytes.start / BLOCK..bytes.end.div_ceil(BLOCK);
        let mut split = Splitter { parts: Vec::new(), from: bytes.start, leaves: 0, pages: 0 };
        let cut_long = |split: &mut Splitter, end: u64| {
            while fills_holes && end - split.from / LEAF_BYTES > bounds.gated_leaves_max {
                split.cut(split.from / LEAF_BYTES + bounds.gated_leaves_max);
            }
        };
        self.metadata.each_leaf(map, &blocks, |leaf| {
            // Includes this leaf, so that no later cut comes before a leaf that the part already counts.
            cut_long(&mut split, leaf + 1);
            let (first, end) = within_leaf(leaf, &blocks);
            let pages = pages_in(self.metadata.leaf(LeafKey { map, leaf })?.slice(first, end)).len() as u64;
            let is_full = split.leaves >= bounds.gated_leaves_max || split.pages + pages > bounds.group_pages;
            if is_full && split.leaves > 0 {
                split.cut(leaf);
            }
            split.leaves += 1;
            split.pages += pages;
            Ok(true)
        })?;
        cut_long(&mut split, bytes.end.div_ceil(LEAF_BYTES));
        split.parts.push(split.from..bytes.end);
        Ok(split.parts)
    }

    /// See [`crate::Store::clone_part`].
    pub fn clone_part(&self, source: (MapId, Lbn), target: (MapId, Lbn), blocks: Blocks) -> Result<Blocks> {
        let bounds = *self.journal.bounds();
        let (mut done, mut pages, mut leaves) = (0, 0, 0);
        for (key, start, end) in leaf_parts(target.0, target.1, blocks.0) {
            let here = u64::from(end - start);
            pages += pages_in(self.metadata.leaf(key)?.slice(start, end)).len() as u64;
            // A clone shares a bad block's replacement, which may lie anywhere.
            let shared = self.targets_to_share(source.0, source.1.plus(done), here)?;
            pages += pages_of(shared.into_iter()).len() as u64;
            leaves += 1;
            if done > 0 && (pages > bounds.group_pages || leaves > bounds.gated_leaves_max) {
                break;
            }
            done += here;
        }
        Ok(Blocks(done))
    }

    /// See [`LazyClones::own`]: for the leaves of a range, as many as a change may have.
    pub fn own(&self, map: MapId, leaves: impl Iterator<Item = u64>) -> Result<()> {
        self.lazy_clones.own(map, leaves.take(self.journal.bounds().gated_leaves_max as usize + 1))
    }

    /// The same before the map is locked, for the leaves of a range that hold something. If one cannot be taken, the
    /// change itself deals with it.
    fn own_ahead(&self, map: MapId, blocks: &Range<u64>) -> Result<()> {
        if !self.lazy_clones.are_any() {
            return Ok(());
        }
        let leaves_max = self.journal.bounds().gated_leaves_max as usize;
        let leaves = self.metadata.stored_leaves(map, blocks.start / LEAF_BLOCKS, leaves_max)?;
        self.own(map, leaves.into_iter().filter(|leaf| leaf * LEAF_BLOCKS < blocks.end))
    }

    /// Gets ready for a change of a range, before its map is locked: pending clones take its leaves, and memory gets
    /// the pages of the block table that the change needs, as many as one group may have. If a leaf cannot be taken, or
    /// a page cannot be read or leaves memory again, the change itself deals with it.
    pub fn read_ahead_of_change(&self, map: MapId, blocks: &Range<u64>) {
        let ready = self.own_ahead(map, blocks).and_then(|()| self.read_pages(map, blocks));
        log_unready(map, ready);
    }

    /// The same for a range that is only shared: no leaf of it changes, so none has to be taken.
    pub fn read_ahead_of_sharing(&self, map: MapId, blocks: &Range<u64>) {
        log_unready(map, self.read_pages(map, blocks));
    }

    fn read_pages(&self, map: MapId, blocks: &Range<u64>) -> Result<()> {
        let bounds = *self.journal.bounds();
        let (mut pages, mut leaves) = (Vec::new(), 0);
        self.metadata.each_leaf(map, blocks, |leaf| {
            let (first, end) = within_leaf(leaf, blocks);
            pages.extend(pages_in(self.metadata.leaf(LeafKey { map, leaf })?.slice(first, end)));
            leaves += 1;
            Ok(leaves < bounds.gated_leaves_max && (pages.len() as u64) < bounds.group_pages)
        })?;
        pages.sort_unstable();
        pages.dedup();
        pages.chunks(PORTION_PAGES).try_for_each(|portion| self.metadata.with_pages(|| portion.to_vec(), |_| ()))
    }

    /// Gets ready for a change that fills a range, before its map is locked: pending clones take its leaves, and memory
    /// gets them. That includes leaves that hold nothing yet, because only a look-up tells that they are empty, and an
    /// empty leaf is taken too before it is filled. At most as many as a part may have. If one cannot be taken or
    /// leaves memory again, the change itself deals with it.
    pub fn read_ahead_of_filling(&self, map: MapId, blocks: &Range<u64>) {
        let leaves_max = self.journal.bounds().gated_leaves_max;
        let first = blocks.start / LEAF_BLOCKS;
        let leaves = || first..blocks.end.div_ceil(LEAF_BLOCKS).min(first + leaves_max);
        let read = |leaf| self.metadata.leaf(LeafKey { map, leaf }).map(drop);
        log_unready(map, self.own(map, leaves()).and_then(|()| leaves().try_for_each(read)));
    }

    /// The targets that a clone of a map's blocks refers to. A bad block's replacement is shared, and reserved space
    /// becomes a hole.
    pub(super) fn targets_to_share(&self, map: MapId, from: Lbn, blocks: u64) -> Result<Vec<(Target, u64)>> {
        let mut wanted = Vec::new();
        for (key, start, end) in leaf_parts(map, from, blocks) {
            let leaf = self.metadata.leaf(key)?;
            wanted.extend(leaf.slice(start, end).map(|extent| (extent.target, u64::from(extent.blocks))));
        }
        let mut wanted = self.metadata.around_bad(&wanted)?.unwrap_or(wanted);
        for (target, _) in &mut wanted {
            if *target == Target::Reserved {
                *target = Target::Hole;
            }
        }
        Ok(wanted)
    }

    /// References to live blocks of a map whose lock is held, in ascending order: their tags are read from the table.
    pub(super) fn takes_of(&self, runs: &[Run]) -> Result<Vec<Incref>> {
        let mut pbns: Vec<Pbn> = runs.iter().flat_map(|run| run.pbns()).collect();
        pbns.sort_unstable();
        let mut numbers: Vec<u64> = pbns.iter().map(|pbn| page_of(*pbn)).collect();
        numbers.dedup();
        self.metadata.with_pages(
            || numbers.clone(),
            |pages| match pbns.iter().find(|pbn| pages.is_damaged(**pbn)) {
                Some(pbn) => Err(damaged_entry(*pbn)),
                None => {
                    let mut entries = pages.entries();
                    Ok(pbns.iter().map(|pbn| Incref { pbn: *pbn, tag: entries.of(*pbn).tag }).collect())
                }
            },
        )?
    }
}

fn log_unready(map: MapId, ready: Result<()>) {
    if let Err(error) = ready {
        log::debug!("cannot read ahead of a change of map {}: {error}", map.0);
    }
}
