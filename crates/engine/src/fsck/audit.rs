//! The interface for fsck: audits, repairs, and the places named in their messages.

use hashbrown::HashSet;

use crate::format::extent_leaf::{Extent, LEAF_BLOCKS};
use crate::format::keys::LeafKey;
use crate::fsck::check::fault::Remedy;
use crate::fsck::check::{CheckReport, LeafRecord, Progress};
use crate::fsck::fix::Fixed;
use crate::fsck::parts::{checker, fixer};
use crate::{Blocks, Error, Lbn, MapId, Pbn, Result, Store};

/// Leaves of a pending clone that are listed at a time.
const LEAVES_LISTED: usize = 256;

impl Store {
    /// Calls `visit` for every map that has blocks and is not detached, in the order of ids, with the number of its
    /// blocks, or with `None` if a part of the map is damaged.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) or [`Error::Corrupt`](crate::Error::Corrupt): the record store, or a structure
    /// that the log changes, cannot be read.
    pub fn for_each_map(&self, visit: &mut dyn FnMut(MapId, Option<Blocks>)) -> Result<()> {
        self.volume.commits.redo_all()?;
        // Read from their records, because memory also has the ids of maps whose blocks are all freed, or appear to be.
        let detached: HashSet<MapId> = self.volume.metadata.detached_maps()?.into_iter().collect();
        let mut current: Option<(MapId, Option<u64>)> = None;
        let mut visit = |map: MapId, blocks: Option<u64>| {
            if !detached.contains(&map) {
                visit(map, blocks.map(Blocks));
            }
        };
        // Their own records are not all that they have.
        let mut clones = self.volume.base.state.lock().clones.incomplete().into_iter().peekable();
        let mut finish = |done: Option<(MapId, Option<u64>)>| -> Result<()> {
            while let Some(clone) = clones.next_if(|clone| done.is_none_or(|(map, _)| *clone <= map)) {
                match self.mapped_blocks(clone) {
                    Ok(Blocks(0)) => {}
                    Ok(blocks) => visit(clone, Some(blocks.0)),
                    Err(Error::Corrupt { .. }) => visit(clone, None),
                    Err(error) => return Err(error),
                }
                if done.is_some_and(|(map, _)| map == clone) {
                    return Ok(());
                }
            }
            done.into_iter().for_each(|(map, blocks)| visit(map, blocks));
            Ok(())
        };
        checker(&self.volume).for_each_leaf_record(&mut |record| {
            let (map, blocks) = match record {
                LeafRecord::Whole(key, leaf) => (key.map, Some(leaf.mapped_blocks())),
                LeafRecord::Damaged(key) => (key.map, None),
                LeafRecord::Unknown(_) => return Ok(()),
            };
            match &mut current {
                Some((same, sum)) if *same == map => *sum = sum.zip(blocks).map(|(a, b)| a + b),
                _ => {
                    let done = current.replace((map, blocks));
                    if done.is_some() {
                        finish(done)?;
                    }
                }
            }
            Ok(())
        })?;
        if current.is_some() {
            finish(current)?;
        }
        finish(None)
    }

    /// The blocks of a pending clone: its own, and those that it reads in its source. Nothing else uses the volume
    /// meanwhile, so its map is not locked.
    fn mapped_blocks(&self, clone: MapId) -> Result<Blocks> {
        let metadata = &self.volume.metadata;
        let (mut blocks, mut from) = (0, 0);
        loop {
            let leaves = metadata.stored_leaves(clone, from, LEAVES_LISTED)?;
            for &leaf in &leaves {
                blocks += metadata.leaf(LeafKey { map: clone, leaf })?.mapped_blocks();
            }
            match leaves.last() {
                Some(last) if leaves.len() == LEAVES_LISTED => from = last + 1,
                _ => return Ok(Blocks(blocks)),
            }
        }
    }

    /// Checks every invariant across the engine's structures, and with `read_data` every live block against its tag.
    /// The volume must not be used for anything else meanwhile. `progress` gets the number of blocks done and the
    /// total.
    ///
    /// Faults are in the report; they are not errors.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io), [`Error::NoSpace`](crate::Error::NoSpace) or
    /// [`Error::Corrupt`](crate::Error::Corrupt): the check itself cannot continue, because a device, the record store
    /// or the temporary file for sorting failed.
    pub fn check(&self, read_data: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        checker(&self.volume).check(read_data, progress)
    }

    /// As [`Store::check`]; `progress` also gets the phase.
    ///
    /// # Errors
    ///
    /// As [`Store::check`].
    pub fn audit(&self, read_data: bool, progress: Progress<'_>) -> Result<CheckReport> {
        checker(&self.volume).audit(read_data, progress)
    }

    /// Repairs the faults of blocks, maps and totals whose remedy is at most `limit`; see `docs/fsck.md`. The volume
    /// was opened with [`Store::open_for_fsck`]. The result lists what was repaired and what is left.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`](crate::Error::ReadOnly): the volume takes no changes.
    /// - As [`Store::check`] and [`Store::commit`].
    pub fn repair(&self, limit: Remedy, progress: Progress<'_>) -> Result<Fixed> {
        self.volume.base.health.usable()?;
        fixer(&self.volume).repair(limit, progress)
    }

    /// Commits or checkpoints if much was published since the last time. Keeps memory bounded on a volume without
    /// threads.
    ///
    /// # Errors
    ///
    /// As [`Store::commit`].
    pub fn settle(&self) -> Result<()> {
        fixer(&self.volume).settle()
    }

    /// The places (block, map, lbn) that refer to any of `blocks`, at most `limit`; of places that follow each
    /// other with one and the same block only the first. Reads all maps.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) or [`Error::Corrupt`](crate::Error::Corrupt): the record store cannot be read.
    pub fn places_of(&self, blocks: &[Pbn], limit: usize) -> Result<Vec<(Pbn, MapId, Lbn)>> {
        fixer(&self.volume).places_of(blocks, limit)
    }

    /// The first block after the last mapped one; 0 for an empty map.
    ///
    /// # Errors
    ///
    /// [`Error::Io`](crate::Error::Io) or [`Error::Corrupt`](crate::Error::Corrupt): the map cannot be read.
    pub fn end_of_map(&self, map: MapId) -> Result<Lbn> {
        let (mut from, mut end) = (0, 0);
        loop {
            let leaves = self.volume.metadata.stored_leaves(map, from, LEAVES_LOOKED_AT)?;
            for leaf in &leaves {
                let last = self.volume.metadata.leaf(LeafKey { map, leaf: *leaf })?.extents().last().map(Extent::end);
                end = last.map_or(end, |last| leaf * LEAF_BLOCKS + u64::from(last));
            }
            match leaves.last() {
                Some(last) if leaves.len() == LEAVES_LOOKED_AT => from = last + 1,
                _ => return Ok(Lbn(end)),
            }
        }
    }
}

/// Leaves read at a time when searching for a map's end.
const LEAVES_LOOKED_AT: usize = 256;
