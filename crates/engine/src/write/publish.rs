//! Publication: a plan is applied as a whole under the publish lock, and one function notifies everything that follows.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::base::part;
use crate::commit::change_room::ChangeRoom;
use crate::commit::checkpoint::Commits;
use crate::format::group_bytes::GroupBytes;
use crate::format::page::REPLICA;
use crate::hints::levels::HintLevels;
use crate::policy::effective::FilePolicies;
use crate::read::damage_reports::DamageReports;
use crate::state::loading::Metadata;
use crate::state::published::Plan;
use crate::sync::assert_claimed;
use crate::types::PolicyChange;
use crate::write::backlog_notes::BacklogNotes;
use crate::write::batch::Batch;
use crate::{Change, Error, MapId, Pbn, Result, Tag};

/// The result of applying a plan.
pub enum Applied {
    /// Everything is published. Hints, backlog, damage and signals still have to be notified, see
    /// [`Publisher::notify_observers`].
    Done(Published),
    /// Nothing is published.
    Refused(Refusal),
}

/// Why nothing of a plan was published.
pub struct Refusal {
    /// Blocks that cannot take a reference (any more). None: a step of a pending clone is not due any more.
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

part! {
    /// Publishes plans, and notifies everything that follows what is published.
    pub struct Publisher {
        base: damage, journal, policy, state, backlog, signals, stats;
        metadata: Metadata, hint_levels: HintLevels, change_room: ChangeRoom, commits: Commits,
        file_policies: FilePolicies, damage_reports: DamageReports, backlog_notes: BacklogNotes
    }
}

impl Publisher {
    /// Refuses changes to a volume that cannot take them.
    pub fn usable(&self) -> Result<()> {
        self.change_room.usable()
    }

    /// Gives blocks that only the log has their places in the data area, by a checkpoint.
    pub fn place_logged_blocks(&self) -> Result<()> {
        self.commits.checkpoint()
    }

    /// Where changes wait for room, and claim it.
    pub fn room(&self) -> &ChangeRoom {
        &self.change_room
    }

    /// Applies a plan under the publish lock: all of it, or nothing if a reference is refused.
    pub fn apply(&self, mut plan: Plan) -> Result<Applied> {
        plan.sort();
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
            match plan.clone {
                // A detached map may still be read by clones of it.
                Some(step) if !state.clones.is_due(step) => {
                    return Ok(Applied::Refused(Refusal { pbns: Vec::new(), change: plan.change }));
                }
                None if plan.map.is_some_and(|map| state.is_detached(map)) => return Err(Error::MapDetached),
                _ => {}
            }
            let mut missing = state.table.missing(pages.iter().copied());
            if missing.is_empty() {
                let behind = state.pages_behind(&plan)?;
                missing = state.table.missing(behind);
            }
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
        self.signals.published(|| self.journal.is_gate_free(), &|| self.commits.commit());
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

    /// Claims room in the log for a plan, and publishes it. The caller holds no lock that a commit needs.
    pub fn claim_and_publish(&self, bytes: GroupBytes, plan: Plan) -> Result<Option<Refusal>> {
        let _room = self.change_room.claim_log_room(bytes);
        self.publish_plan(plan)
    }

    /// The same for a plan that takes no references of other maps.
    pub fn claim_and_apply(&self, bytes: GroupBytes, plan: Plan) -> Result<()> {
        let _room = self.change_room.claim_log_room(bytes);
        self.apply_certain(plan)
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
    let is_replica = |pbn: Pbn| plan.flags.iter().any(|change| change.pbn == pbn && change.set & REPLICA != 0);
    let stores = plan.stores.iter().chain(plan.record_stores.iter().filter(|store| !is_replica(store.pbn)));
    let fragments = plan.fragments.iter().map(|fragment| &fragment.block);
    stores.chain(fragments).map(|store| (store.tag, store.pbn)).collect()
}

/// A caller's value, kept until the change is published or given up.
pub trait OnPublish {
    /// The change is visible to all readers. If this is not called, none of it is.
    fn published(self);
}

impl OnPublish for () {
    fn published(self) {}
}

impl Publisher {
    /// See [`crate::Store::publish`].
    pub fn publish(&self, change: Change) -> Result<()> {
        self.usable()?;
        self.apply_certain(Plan { change, ..Plan::default() })
    }

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
        let volume = devices.open();
        let mut random = Random::new(1);
        let data: Vec<u8> = (0..32 * BLOCK_BYTES / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        volume.write(MapId(1), 0, &data, |_, _| ()).unwrap();
        volume.commits.checkpoint().unwrap();
        drop(volume);
        // Sectors of zeros are intact ones whose blocks are free. The first one holds the table's stamp.
        devices.table.write_at(&[0; PAGE_BYTES - SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
        let volume = devices.open();
        let refused = volume.range_changes.truncate(MapId(1), 0, |_, _| ());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert!(*volume.reader.read(MapId(1), 0, data.len()).unwrap() == *data);
        volume.commits.commit().unwrap();
    }
}
