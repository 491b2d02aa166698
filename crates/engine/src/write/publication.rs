//! A publication: a plan is checked and applied as a whole under the publish lock, and one function tells everybody who
//! follows what is published.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::core::Core;
use crate::format::page::REPLICA;
use crate::state::published::Plan;
use crate::types::PolicyChange;
use crate::write::batch::Batch;
use crate::{Change, Error, MapId, Pbn, Result, Tag};

/// How a plan was applied.
pub enum Applied {
    /// Everything is published. Whoever follows has yet to be told, see [`Core::announce`].
    Done(Published),
    /// Nothing is.
    Refused(Refusal),
}

/// Why nothing of a plan was published.
pub struct Refusal {
    /// Blocks that can take no reference (any more).
    pub pbns: Vec<Pbn>,
    /// The plan's records, given back.
    pub change: Change,
}

/// What a publication changed.
#[must_use = "hints, backlog, damage and signals follow what is published"]
pub struct Published {
    /// Blocks that were stored. Replicas are left out, so that no hint names them.
    placed: Vec<(Tag, Pbn)>,
    /// Blocks whose last reference went.
    freed: Vec<(Tag, Pbn)>,
    /// Policies of files that changed.
    policies: Vec<PolicyChange>,
    /// The map that was detached.
    detached: Option<MapId>,
}

impl Core {
    /// Applies a plan under the publish lock: all of it, or, where a reference is refused, nothing.
    pub fn apply(&self, plan: Plan) -> Result<Applied> {
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
                self.load_pages(&missing)?;
                continue;
            }
            if let Some(contradiction) = state.contradiction(&plan) {
                return Err(Error::corrupt("the block table", contradiction));
            }
            let pbns = state.refused(&plan);
            if !pbns.is_empty() {
                return Ok(Applied::Refused(Refusal { pbns, change: plan.change }));
            }
            let freed = state.apply(plan, Instant::now());
            policies.iter().for_each(|change| self.policy.note_published_policy(change.map, change.policy));
            if changes_bad {
                self.damage.follow(&state.bad);
            }
            return Ok(Applied::Done(Published { placed, freed, policies, detached }));
        }
    }

    /// Tells hints, backlog, damage and signals what was published, and by which write of a map, if it was one.
    pub fn announce(&self, published: &Published, written: Option<(MapId, &Batch)>) {
        let Published { placed, freed, policies, detached } = published;
        self.update_hints(freed, placed);
        self.stats.counters.blocks_freed.fetch_add(freed.len() as u64, Relaxed);
        self.look_at_allowed(policies);
        if let Some(map) = *detached {
            self.backlog.forget(map);
            self.signals.detached(map);
        }
        if let Some((map, batch)) = written {
            self.note_skipped(map, batch);
            self.offer_written(batch);
        }
        self.signals.published(&self.journal, &|| self.commit());
    }

    /// Applies a plan and tells everybody. None: it is published.
    pub fn publish_plan(&self, plan: Plan) -> Result<Option<Refusal>> {
        match self.apply(plan)? {
            Applied::Done(published) => {
                self.announce(&published, None);
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

#[cfg(test)]
mod tests {
    use crate::device::Device;
    use crate::format::page::{PAGE_BYTES, SECTOR_BYTES};
    use crate::settings::values::{Settings, Verify};
    use crate::tests::fixture::{Devices, Random, one_level};
    use crate::{BLOCK_BYTES, Blocks, Error, MapId};

    #[test]
    fn a_change_that_gives_back_blocks_which_the_table_does_not_count_is_refused() {
        // A block that the table does not know would not pass for read either.
        let settings = Settings { verify: Verify::Off, ..one_level() };
        let devices = Devices::new(Blocks(40_000), settings);
        let core = devices.open();
        let mut random = Random::new(1);
        let data: Vec<u8> = (0..32 * BLOCK_BYTES / 8).flat_map(|_| random.word().to_le_bytes()).collect();
        core.write(MapId(1), 0, &data, |_, _| ()).unwrap();
        core.checkpoint().unwrap();
        drop(core);
        // Sectors of zeros are sound ones whose blocks are free. The first one holds the table's stamp.
        devices.table.write_at(&[0; PAGE_BYTES - SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
        let core = devices.open();
        let refused = core.truncate(MapId(1), 0, |_, _| ());
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert!(*core.read(MapId(1), 0, data.len()).unwrap() == *data);
        core.commit().unwrap();
    }
}
