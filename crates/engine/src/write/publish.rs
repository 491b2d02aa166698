//! Map: the changes that a batch or a change of one map will publish (a plan), their publication as a whole under the
//! publish lock, and the one function that notifies everything that follows.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use hashbrown::HashSet;

use crate::core::Core;
use crate::format::keys::{ShardKey, shard_parts};
use crate::format::page::REPLICA;
use crate::format::shard::{Extent, SHARD_BLOCKS, Shard, Target};
use crate::space::allocator::Run;
use crate::space::claim::Claim;
use crate::state::published::{Incref, Mapped, Plan, StoredBlock};
use crate::sync::assert_claimed;
use crate::types::PolicyChange;
use crate::write::batch::{Batch, Outcome};
use crate::{Change, Error, Lbn, MapId, Pbn, Result, Stage, Tag};

impl Core {
    /// Publishes a decided and placed batch, and notifies everything that follows. The caller holds the map's lock
    /// exclusively. On failure the allocated runs are released.
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
                self.free_blocks.unclaim(batch.claimed);
                self.space.give_back(&runs);
                return Err(error);
            }
        };
        self.count_outcomes(batch);
        self.notify_observers(&published, Some((map, batch)));
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
        self.metadata.attached(map)?;
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
        runs.extend(self.place(batch, Claim::KeptBack)?);
        Ok(())
    }

    /// The changes of a decided batch, and by how many blocks the map grows.
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
                let fingerprint = batch.fingerprints[index];
                plan.stores.push(StoredBlock { pbn, tag, fingerprint });
            }
            _ if !batch.unchanged.contains(&index) => plan.increfs.push(Incref { pbn, tag }),
            // If a block went bad meanwhile, the new bytes are stored.
            _ => plan.expected.push(Incref { pbn, tag }),
        }
    }
    let completed = batch.completed.iter().filter_map(|index| Some((batch.pbn(*index)?, batch.fingerprints[*index]?)));
    plan.fingerprints.extend(completed);
    plan.staged.extend_from_slice(&batch.staged);
}

/// The result of applying a plan.
pub enum Applied {
    /// Everything is published. Hints, backlog, damage and signals still have to be notified, see [`Core::notify_observers`].
    Done(Published),
    /// Nothing is published.
    Refused(Refusal),
}

/// Why nothing of a plan was published.
pub struct Refusal {
    /// Blocks that cannot take a reference (any more).
    pub pbns: Vec<Pbn>,
    /// The plan's records, given back.
    pub change: Change,
}

/// The changes of a publication.
#[must_use = "hints, backlog, damage and signals follow what is published"]
pub struct Published {
    /// Blocks that were stored. Replicas are left out, so that no hint names them.
    placed: Vec<(Tag, Pbn)>,
    /// Blocks that lost their last reference.
    freed: Vec<(Tag, Pbn)>,
    /// New policies of files.
    policies: Vec<PolicyChange>,
    /// The map that was detached.
    detached: Option<MapId>,
}

impl Core {
    /// Applies a plan under the publish lock: all of it, or nothing if a reference is refused.
    pub fn apply(&self, plan: Plan) -> Result<Applied> {
        if (!plan.record_decrefs.is_empty() || !plan.flags.is_empty())
            && let Some(error) = self.state.lock().names_nothing(&plan)
        {
            return Err(error);
        }
        let pages: Vec<u64> = plan.pages().into_iter().collect();
        let placed = placed_by(&plan);
        let changes_bad = !plan.bad.is_empty();
        let policies = plan.change.policies.clone();
        let detached = plan.detach;
        loop {
            let mut state = self.state.lock();
            if plan.map.is_some_and(|map| state.is_detached(map)) {
                return Err(Error::MapDetached);
            }
            let missing = state.table.missing(pages.iter().copied());
            if !missing.is_empty() {
                drop(state);
                self.metadata.load_pages(&missing)?;
                continue;
            }
            if let Some(contradiction) = state.contradiction(&plan) {
                return Err(contradiction);
            }
            let pbns = state.refused(&plan);
            if !pbns.is_empty() {
                return Ok(Applied::Refused(Refusal { pbns, change: plan.change }));
            }
            if state.lacks_room(&plan) {
                return Err(Error::NoSpace);
            }
            let before = state.group_bytes();
            let freed = state.apply(plan, Instant::now());
            self.journal.room().note_group(state.group_bytes());
            assert_claimed(state.group_bytes() - before);
            policies.iter().for_each(|change| self.policy.note_published_policy(change.map, change.policy));
            if changes_bad {
                self.damage.follow(&state.bad);
            }
            return Ok(Applied::Done(Published { placed, freed, policies, detached }));
        }
    }

    /// Notifies hints, backlog, damage and signals of a publication, and of the write of a map that caused it, if one
    /// did.
    pub fn notify_observers(&self, published: &Published, written: Option<(MapId, &Batch)>) {
        let Published { placed, freed, policies, detached } = published;
        self.hint_levels.update_hints(freed, placed);
        self.stats.counters.blocks_freed.fetch_add(freed.len() as u64, Relaxed);
        self.file_policies.look_at_allowed(policies);
        if let Some(map) = *detached {
            self.backlog.forget(map);
            self.signals.detached(map);
        }
        if let Some((map, batch)) = written {
            self.backlog_notes.note_skipped(map, batch);
            if self.damage.is_content_lost() {
                self.offer_written(batch);
            }
        }
        self.signals.published(|| self.journal.is_gate_free(), &|| self.commit());
    }

    /// Applies a plan and notifies everything that follows. None: it is published.
    pub fn publish_plan(&self, plan: Plan) -> Result<Option<Refusal>> {
        match self.apply(plan)? {
            Applied::Done(published) => {
                self.notify_observers(&published, None);
                Ok(None)
            }
            Applied::Refused(refusal) => Ok(Some(refusal)),
        }
    }

    /// Publishes a plan that takes no references of other maps, so that nothing can be refused.
    pub fn apply_certain(&self, plan: Plan) -> Result<()> {
        match self.publish_plan(plan)? {
            None => Ok(()),
            Some(Refusal { pbns, .. }) => {
                Err(Error::corrupt("the block table", format!("blocks {pbns:?} of a map are not live")))
            }
        }
    }
}

/// The blocks that a plan stores, without replicas.
fn placed_by(plan: &Plan) -> Vec<(Tag, Pbn)> {
    let is_replica = |pbn: Pbn| plan.flags.iter().any(|(flagged, flags)| *flagged == pbn && flags & REPLICA != 0);
    let stores = plan.stores.iter().chain(plan.record_stores.iter().filter(|store| !is_replica(store.pbn)));
    stores.map(|store| (store.tag, store.pbn)).collect()
}

/// Collects the changes of one map into a plan, with the references that they release.
pub struct MapEdit<'a> {
    core: &'a Core,
    plan: Plan,
    open: Option<(ShardKey, Shard)>,
    /// By how many blocks (data and reserved) the map grows.
    pub mapped_delta: i64,
}

impl<'a> MapEdit<'a> {
    /// Edits a map whose lock the caller holds exclusively.
    pub fn new(core: &'a Core, map: MapId) -> Self {
        Self { core, plan: Plan { map: Some(map), ..Plan::default() }, open: None, mapped_delta: 0 }
    }

    /// The extents from `first` to `end` (block numbers within the shard), holes included.
    pub fn look(&mut self, key: ShardKey, first: u16, end: u16) -> Result<Vec<Extent>> {
        Ok(self.shard(key)?.slice(first, end).collect())
    }

    /// Gives part of a shard a new target and releases the old one.
    pub fn set(&mut self, key: ShardKey, new: Extent) -> Result<()> {
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
        self.shard(key)?.set(new);
        let lbn = Lbn(key.shard * SHARD_BLOCKS + u64::from(new.first));
        self.plan.mapped.push(Mapped { lbn, blocks: new.blocks, target: new.target });
        Ok(())
    }

    /// Stores a block whose content is staged. `set` puts it into the map.
    pub fn store_staged(&mut self, stored: StoredBlock) {
        debug_assert!(!self.plan.staged.contains(&stored.pbn), "block {} is stored twice", stored.pbn);
        self.plan.stores.push(stored);
        self.plan.staged.push(stored.pbn);
    }

    /// Removes a whole shard and releases its references.
    pub fn drop_shard(&mut self, key: ShardKey) -> Result<()> {
        let end = SHARD_BLOCKS as u16;
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

    fn shard(&mut self, key: ShardKey) -> Result<&mut Shard> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != key) {
            self.close();
            let edited = self.plan.shards.iter().position(|(edited, _)| *edited == key);
            let shard = match edited {
                Some(index) => self.plan.shards.swap_remove(index).1,
                None => (*self.core.metadata.shard(key)?).clone(),
            };
            self.open = Some((key, shard));
        }
        Ok(&mut self.open.as_mut().expect("opened above").1)
    }

    fn close(&mut self) {
        if let Some(done) = self.open.take() {
            self.plan.shards.push(done);
        }
    }
}

/// A caller's value, kept until the change is published or given up.
pub trait OnPublish {
    /// The change is visible to all readers. If this is not called, none of it is.
    fn published(self);
}

impl OnPublish for () {
    fn published(self) {}
}

impl Core {
    /// See [`crate::Store::publish`].
    pub fn publish(&self, change: Change) -> Result<()> {
        self.health.usable()?;
        self.apply_certain(Plan { change, ..Plan::default() })
    }
}

impl Core {
    /// Like `offer`, for a batch that was published.
    pub fn offer_written(&self, batch: &Batch) {
        let written = (0..batch.len()).filter_map(|index| Some((batch.pbn(index)?, batch.tags[index])));
        self.damage_reports.offer(written);
    }
}

#[cfg(test)]
mod tests {
    use crate::device::Device;
    use crate::format::page::{PAGE_BYTES, SECTOR_BYTES};
    use crate::settings::values::{Settings, Verify};
    use crate::tests::fixture::{Devices, Random, one_level};
    use crate::{BLOCK_BYTES, Blocks, Error, MapId};

    #[test]
    fn a_change_that_gives_back_blocks_which_the_table_does_not_count_is_refused() {
        // With reads verified, a block that is unknown to the table would fail.
        let settings = Settings { verify: Verify::Off, ..one_level() };
        let devices = Devices::new(Blocks(40_000), settings);
        let core = devices.open();
        let mut random = Random::new(1);
        let data: Vec<u8> = (0..32 * BLOCK_BYTES / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        core.write(MapId(1), 0, &data, |_, _| ()).unwrap();
        core.checkpoint().unwrap();
        drop(core);
        // Sectors of zeros are intact ones whose blocks are free. The first one holds the table's stamp.
        devices.table.write_at(&[0; PAGE_BYTES - SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
        let core = devices.open();
        let refused = core.truncate(MapId(1), 0, |_, _| ());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert!(*core.read(MapId(1), 0, data.len()).unwrap() == *data);
        core.commit().unwrap();
    }
}
