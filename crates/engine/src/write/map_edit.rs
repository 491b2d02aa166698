//! The changes of one map, collected into a plan together with the references that they release.

use crate::format::extent_leaf::{Extent, ExtentLeaf, LEAF_BLOCKS, Target};
use crate::format::keys::LeafKey;
use crate::space::allocator::Run;
use crate::state::loading::Metadata;
use crate::state::published::{Mapped, Plan, StoredBlock};
use crate::{Lbn, MapId, Pbn, Result};

/// Collects the changes of one map into a plan, with the references that they release.
pub struct MapEdit<'a> {
    metadata: &'a Metadata,
    plan: Plan,
    open: Option<(LeafKey, ExtentLeaf)>,
    /// By how many blocks (data and reserved) the map grows.
    pub mapped_delta: i64,
}

impl<'a> MapEdit<'a> {
    /// Edits a map whose lock the caller holds exclusively.
    pub fn new(metadata: &'a Metadata, map: MapId) -> Self {
        Self { metadata, plan: Plan { map: Some(map), ..Plan::default() }, open: None, mapped_delta: 0 }
    }

    /// The extents from `first` to `end` (block numbers within the leaf), holes included.
    pub fn look(&mut self, key: LeafKey, first: u16, end: u16) -> Result<Vec<Extent>> {
        Ok(self.leaf(key)?.slice(first, end).collect())
    }

    /// Whether the map has this block at this place.
    pub fn has(&mut self, lbn: Lbn, pbn: Pbn) -> Result<bool> {
        let (key, place) = self.place_of(lbn);
        Ok(self.leaf(key)?.slice(place, place + 1).any(|extent| extent.target == Target::Data(pbn)))
    }

    /// Gives places, which come in ascending order, these blocks, and releases the old ones. Neighbours within a leaf
    /// that get adjacent blocks become one extent.
    pub fn set_blocks(&mut self, blocks: impl Iterator<Item = (Lbn, Pbn)>) -> Result<()> {
        let follows = |a: &(Lbn, Pbn), b: &(Lbn, Pbn)| {
            a.0.plus(1) == b.0 && a.1.plus(1) == b.1 && !b.0.0.is_multiple_of(LEAF_BLOCKS)
        };
        for run in blocks.collect::<Vec<_>>().chunk_by(follows) {
            let (key, first) = self.place_of(run[0].0);
            self.set(key, Extent { first, blocks: run.len() as u16, target: Target::Data(run[0].1) })?;
        }
        Ok(())
    }

    /// The leaf that contains an lbn, and the lbn's position in it.
    fn place_of(&self, lbn: Lbn) -> (LeafKey, u16) {
        let map = self.plan.map.expect("it edits a map");
        (LeafKey { map, leaf: lbn.0 / LEAF_BLOCKS }, (lbn.0 % LEAF_BLOCKS) as u16)
    }

    /// Gives part of a leaf a new target and releases the old one.
    pub fn set(&mut self, key: LeafKey, new: Extent) -> Result<()> {
        assert!(new.blocks > 0, "an extent of no blocks in {key:?}");
        for old in self.look(key, new.first, new.end())? {
            let blocks = u64::from(old.blocks);
            match old.target {
                Target::Hole => {}
                Target::Reserved => self.plan.reserved_delta -= blocks as i64,
                Target::Data(pbn) => self.release(Run { pbn, blocks }),
            }
            if old.target != Target::Hole {
                self.mapped_delta -= blocks as i64;
            }
        }
        if new.target != Target::Hole {
            self.mapped_delta += i64::from(new.blocks);
        }
        if new.target == Target::Reserved {
            self.plan.reserved_delta += i64::from(new.blocks);
        }
        self.leaf(key)?.set(new);
        let lbn = Lbn(key.leaf * LEAF_BLOCKS + u64::from(new.first));
        self.plan.mapped.push(Mapped { lbn, blocks: new.blocks, target: new.target });
        Ok(())
    }

    /// Stores a block whose content is staged. `set` puts it into the map.
    pub fn store_staged(&mut self, stored: StoredBlock) {
        debug_assert!(!self.plan.staged.contains(&stored.pbn), "block {} is stored twice", stored.pbn);
        self.plan.stores.push(stored);
        self.plan.staged.push(stored.pbn);
    }

    /// Removes a whole leaf and releases its references.
    pub fn drop_leaf(&mut self, key: LeafKey) -> Result<()> {
        let end = LEAF_BLOCKS as u16;
        self.set(key, Extent { first: 0, blocks: end, target: Target::Hole })?;
        self.plan.mapped.pop();
        self.plan.drops.push(key);
        self.open = None;
        Ok(())
    }

    /// The runs released so far. The last one may still grow.
    pub fn releases(&self) -> &[Run] {
        &self.plan.decrefs
    }

    /// The plan, to be completed and published.
    pub fn into_plan(mut self) -> Plan {
        self.close();
        self.plan
    }

    fn release(&mut self, run: Run) {
        match self.plan.decrefs.last_mut() {
            Some(last) if last.end() == run.pbn => last.blocks += run.blocks,
            _ => self.plan.decrefs.push(run),
        }
    }

    fn leaf(&mut self, key: LeafKey) -> Result<&mut ExtentLeaf> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != key) {
            self.close();
            let edited = self.plan.leaves.iter().position(|(edited, _)| *edited == key);
            let leaf = match edited {
                Some(index) => self.plan.leaves.swap_remove(index).1,
                None => (*self.metadata.leaf(key)?).clone(),
            };
            self.open = Some((key, leaf));
        }
        Ok(&mut self.open.as_mut().expect("opened above").1)
    }

    fn close(&mut self) {
        if let Some(done) = self.open.take() {
            self.plan.leaves.push(done);
        }
    }
}
