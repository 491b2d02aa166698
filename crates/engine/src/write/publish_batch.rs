//! Map: the changes that a decided and placed batch publishes in its map. Targets that were freed meanwhile are placed
//! anew.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hashbrown::HashSet;

use crate::base::part;
use crate::format::extent_leaf::{Extent, Target};
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::leaf_parts;
use crate::format::page::INCOMPRESSIBLE;
use crate::place::free_blocks::{Claim, FreeBlocks};
use crate::place::write_out::BlockWriter;
use crate::space::allocator::Run;
use crate::state::flag_change::FlagChange;
use crate::state::loading::Metadata;
use crate::state::published::{Incref, Plan, StoredBlock, StoredFragment};
use crate::write::batch::{Batch, Outcome};
use crate::write::lazy_clone::LazyClones;
use crate::write::map_edit::MapEdit;
use crate::write::place::Placer;
use crate::write::publish::{Applied, OnPublish, Published, Publisher, Refusal};
use crate::{Change, MapId, Pbn, Result, Stage};

part! {
    /// Publishes decided and placed batches.
    pub struct BatchPublisher {
        base: stats;
        metadata: Metadata, free_blocks: FreeBlocks, block_writer: BlockWriter, placer: Placer, lazy_clones: LazyClones,
        publisher: Publisher
    }
}

impl BatchPublisher {
    /// Publishes a decided and placed batch, and notifies everything that follows. The caller holds the map's lock
    /// exclusively, and has claimed no room in the log. On failure the allocated runs are released.
    pub fn publish_batch<G: OnPublish>(
        &self,
        map: MapId,
        batch: &mut Batch,
        mut runs: Vec<Run>,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        let began = Instant::now();
        let published = match self.try_publish_batch(map, batch, &mut runs, with) {
            Ok(published) => published,
            Err(error) => {
                self.placer.give_up(batch, &runs);
                return Err(error);
            }
        };
        self.count_outcomes(batch);
        self.publisher.notify_observers(&published, Some((map, batch)));
        self.stats.record(Stage::Map, batch.len() as u64, began.elapsed());
        self.block_writer.write_out_if_much()
    }

    fn try_publish_batch<G: OnPublish>(
        &self,
        map: MapId,
        batch: &mut Batch,
        runs: &mut Vec<Run>,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<Published> {
        self.metadata.attached(map)?;
        self.lazy_clones.own(map, batch.leaves())?;
        let bytes_of =
            if self.free_blocks.may_be_compressed() { GroupBytes::of_compressed } else { GroupBytes::of_blocks };
        let _room = self.publisher.room().claim_log_room(bytes_of(batch.len() as u64));
        let (mut plan, mapped_delta) = self.plan_batch(map, batch)?;
        let held = with(mapped_delta, &mut plan.change);
        loop {
            match self.publisher.apply(plan)? {
                Applied::Done(published) => {
                    held.published();
                    return Ok(published);
                }
                Applied::Refused(Refusal { pbns, change }) => {
                    self.place_refused(batch, runs, &pbns)?;
                    plan = self.plan_batch(map, batch)?.0;
                    plan.change = change;
                }
            }
        }
    }

    /// Stores anew blocks whose targets were freed between confirm and now.
    fn place_refused(&self, batch: &mut Batch, runs: &mut Vec<Run>, refused: &[Pbn]) -> Result<()> {
        let shared = batch.indexes(|outcome| matches!(outcome, Outcome::Share(pbn) if refused.contains(&pbn)));
        assert!(!shared.is_empty(), "blocks {refused:?} were refused, and the batch shares none of them");
        for index in shared {
            self.stats.counters.hints_refused.fetch_add(1, Relaxed);
            batch.outcomes[index] = Outcome::Anew(None);
        }
        let outcomes = &batch.outcomes;
        batch.completed.retain(|index| matches!(outcomes[*index], Outcome::Share(_)));
        runs.extend(self.placer.place(batch, Claim::KeptBack)?);
        Ok(())
    }

    /// The changes of a decided batch, and by how many blocks the map grows.
    fn plan_batch(&self, map: MapId, batch: &mut Batch) -> Result<(Plan, i64)> {
        let mut edit = MapEdit::new(&self.metadata, map);
        let mut unchanged = HashSet::new();
        let mut index = 0;
        for (key, first, end) in leaf_parts(map, batch.first, batch.len() as u64) {
            let old: Vec<Target> = edit
                .look(key, first, end)?
                .iter()
                .flat_map(|extent| (0..u64::from(extent.blocks)).map(|n| extent.target.plus(n)))
                .collect();
            let new: Vec<Target> = (index..index + old.len()).map(|index| target_of(batch, index)).collect();
            assert_eq!(old.len(), usize::from(end - first), "one target for each block of {key:?}");
            for part in changed_parts(first, &old, &new) {
                edit.set(key, part)?;
            }
            let same = |n: &usize| matches!(new[*n], Target::Data(_)) && old[*n] == new[*n];
            unchanged.extend((0..old.len()).filter(same).map(|n| index + n));
            index += old.len();
        }
        assert_eq!(index, batch.len(), "every block of the batch is planned");
        let mapped_delta = edit.mapped_delta;
        let mut plan = edit.into_plan();
        plan.reserved_claim = -(batch.from_reserved as i64);
        plan.claimed = batch.claimed;
        batch.unchanged = unchanged;
        add_references(&mut plan, batch);
        Ok((plan, mapped_delta))
    }

    fn count_outcomes(&self, batch: &Batch) {
        let shares = batch.indexes(|outcome| matches!(outcome, Outcome::Share(_) | Outcome::Twin(_)));
        let taken = shares.iter().filter(|index| !batch.unchanged.contains(*index)).count();
        let zero = batch.indexes(|outcome| outcome == Outcome::Zero).len();
        self.stats.counters.blocks_shared.fetch_add(taken as u64, Relaxed);
        self.stats.counters.blocks_unchanged.fetch_add(batch.unchanged.len() as u64, Relaxed);
        self.stats.counters.blocks_zero.fetch_add(zero as u64, Relaxed);
    }
}

fn target_of(batch: &Batch, index: usize) -> Target {
    batch.pbn(index).map_or(Target::Hole, Target::Data)
}

/// Runs of blocks whose target changes. A zero block stays reserved where it was.
fn changed_parts(first: u16, old: &[Target], new: &[Target]) -> Vec<Extent> {
    assert_eq!(old.len(), new.len(), "a target before and after for each block");
    let mut parts: Vec<Extent> = Vec::new();
    for (n, (old, new)) in old.iter().zip(new).enumerate() {
        let stays = old == new || (*old == Target::Reserved && *new == Target::Hole);
        if stays {
            continue;
        }
        let at = first + n as u16;
        match parts.last_mut() {
            Some(last) if last.end() == at && last.target.plus(u64::from(last.blocks)) == *new => last.blocks += 1,
            _ => parts.push(Extent { first: at, blocks: 1, target: *new }),
        }
    }
    parts
}

/// The references that a batch takes. The first one to a new block stores it.
fn add_references(plan: &mut Plan, batch: &Batch) {
    for index in 0..batch.len() {
        let Some(pbn) = batch.pbn(index) else { continue };
        let tag = batch.tags[index];
        match batch.outcomes[index] {
            Outcome::Anew(_) => {
                let block = StoredBlock { pbn, tag, fingerprint: batch.fingerprints[index] };
                match batch.fragments.get(&index) {
                    Some(place) => plan.fragments.push(StoredFragment { block, place: *place }),
                    None => plan.stores.push(block),
                }
            }
            _ if !batch.unchanged.contains(&index) => plan.increfs.push(Incref { pbn, tag }),
            // If a block went bad meanwhile, the new bytes are stored.
            _ => plan.expected.push(Incref { pbn, tag }),
        }
    }
    let completed = batch.completed.iter().filter_map(|index| Some((batch.pbn(*index)?, batch.fingerprints[*index]?)));
    plan.fingerprints.extend(completed);
    // The worker need not try them again.
    let incompressible = batch.incompressible.iter().filter_map(|index| batch.pbn(*index));
    plan.flags.extend(incompressible.map(|pbn| FlagChange::set(pbn, INCOMPRESSIBLE)));
    plan.staged.extend_from_slice(&batch.staged);
}
