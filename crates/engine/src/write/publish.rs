//! Map: the plan of a batch, its publication, and what is placed anew where a share is refused.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hashbrown::HashSet;

use crate::core::Core;
use crate::format::keys::shard_parts;
use crate::format::shard::{Extent, Target};
use crate::space::allocate::Claim;
use crate::space::allocator::Run;
use crate::state::published::{Incref, Plan, StoredBlock};
use crate::write::batch::{Batch, Outcome};
use crate::write::map_edit::MapEdit;
use crate::write::on_publish::OnPublish;
use crate::write::publication::{Applied, Published, Refusal};
use crate::{Change, MapId, Pbn, Result, Stage};

impl Core {
    /// Publishes a decided and placed batch, and tells everybody. The caller holds the map's lock exclusively.
    /// On failure the allocated runs go back.
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
                self.staging.remove(runs.iter().flat_map(|run| run.pbns()));
                self.give_back(&runs);
                return Err(error);
            }
        };
        self.landed(&runs);
        self.count_outcomes(batch);
        self.announce(&published, Some((map, batch)));
        self.stats.record(Stage::Map, batch.len() as u64, began.elapsed());
        self.write_out_if_much()
    }

    fn try_publish_batch<G: OnPublish>(
        &self,
        map: MapId,
        batch: &mut Batch,
        runs: &mut Vec<Run>,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<Published> {
        self.attached(map)?;
        let (mut plan, mapped_delta) = self.plan_batch(map, batch)?;
        let held = with(mapped_delta, &mut plan.change);
        loop {
            match self.apply(plan)? {
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

    /// Blocks that were freed between confirm and now are stored anew.
    fn place_refused(&self, batch: &mut Batch, runs: &mut Vec<Run>, refused: &[Pbn]) -> Result<()> {
        let shared = batch.indexes(|outcome| matches!(outcome, Outcome::Share(pbn) if refused.contains(&pbn)));
        assert!(!shared.is_empty(), "blocks {refused:?} were refused, and the batch shares none of them");
        for index in shared {
            self.stats.counters.hints_refused.fetch_add(1, Relaxed);
            batch.outcomes[index] = Outcome::Anew(None);
        }
        let outcomes = &batch.outcomes;
        batch.completed.retain(|index| matches!(outcomes[*index], Outcome::Share(_)));
        runs.extend(self.place(batch, Claim::MustSucceed)?);
        Ok(())
    }

    /// What a decided batch changes, and by how many blocks the map grows.
    fn plan_batch(&self, map: MapId, batch: &mut Batch) -> Result<(Plan, i64)> {
        let mut edit = MapEdit::new(self, map);
        let mut unchanged = HashSet::new();
        let mut index = 0;
        for (key, first, end) in shard_parts(map, batch.first, batch.len() as u64) {
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

/// The references that a batch takes: the first one to a new block stores it.
fn add_references(plan: &mut Plan, batch: &Batch) {
    for index in 0..batch.len() {
        let Some(pbn) = batch.pbn(index) else { continue };
        let tag = batch.tags[index];
        match batch.outcomes[index] {
            Outcome::Anew(_) => {
                let fingerprint = batch.fingerprints[index];
                plan.stores.push(StoredBlock { pbn, tag, fingerprint });
            }
            _ if !batch.unchanged.contains(&index) => plan.increfs.push(Incref { pbn, tag }),
            // Of a block that went bad meanwhile the new bytes are wanted.
            _ => plan.expected.push(Incref { pbn, tag }),
        }
    }
    let completed = batch.completed.iter().filter_map(|index| Some((batch.pbn(*index)?, batch.fingerprints[*index]?)));
    plan.fingerprints.extend(completed);
    plan.staged.extend_from_slice(&batch.staged);
}
