//! Remap: gives places in files an equal block instead of their copy, and releases the copy.
//!
//! It works under the file's lock, and only while the map still names the copy and the table still says that the target
//! holds its content. A block that changed meanwhile stays as it is. The caller has copy and target pinned.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::format::extent_leaf::LEAF_BLOCKS;
use crate::format::group_bytes::GroupBytes;
use crate::hints::levels::HintLevels;
use crate::state::loading::Metadata;
use crate::state::published::{Incref, Plan};
use crate::write::backlog_notes::BacklogNotes;
use crate::write::lazy_clone::LazyClones;
use crate::write::map_edit::MapEdit;
use crate::write::publish::Publisher;
use crate::write::visit::Remap;
use crate::{Error, MapId, Pbn, Result, Tag};

/// Most places published together: bounds how long the file's writers wait.
const PORTION: usize = 256;

part! {
    /// Publishes remaps.
    pub struct Remapper {
        base: stats, damage, hints;
        metadata: Metadata, lazy_clones: LazyClones, publisher: Publisher, backlog_notes: BacklogNotes,
        hint_levels: HintLevels
    }
}

impl Remapper {
    /// Publishes remaps. Adjacent ones of the same map are published together.
    pub fn remap(&self, remaps: Vec<Remap>) -> Result<()> {
        for of_map in remaps.chunk_by(|a, b| a.visit.map == b.visit.map) {
            for portion in of_map.chunks(PORTION) {
                self.publisher.room().wait_for_background_room();
                match self.remap_what_is_whole(of_map[0].visit.map, portion) {
                    // The file was deleted, so its blocks are being freed.
                    Err(Error::MapDetached) => break,
                    remapped => self.stats.counters.blocks_remapped.fetch_add(remapped?, Relaxed),
                };
            }
        }
        Ok(())
    }

    /// Publishes remaps of one map one by one, because damage prevents their joint publication. A remap that fails by
    /// itself would fail again each time, so its place stays as it is.
    fn remap_what_is_whole(&self, map: MapId, portion: &[Remap]) -> Result<u64> {
        match self.remap_portion(map, portion) {
            Err(Error::Corrupt { .. } | Error::Io { .. }) if portion.len() > 1 => {
                portion.chunks(1).try_fold(0, |done, one| Ok(done + self.remap_what_is_whole(map, one)?))
            }
            Err(error @ (Error::Corrupt { .. } | Error::Io { .. })) => {
                self.damage.pass_over(&error);
                Ok(0)
            }
            other => other,
        }
    }

    /// Publishes remaps of one map together. Returns how many were still possible.
    pub fn remap_portion(&self, map: MapId, portion: &[Remap]) -> Result<u64> {
        assert!(portion.iter().all(|remap| remap.visit.map == map), "remaps of other maps than {}", map.0);
        let mut wanted = portion.to_vec();
        let leaves = portion.iter().map(|remap| remap.visit.lbn.0 / LEAF_BLOCKS);
        let _map = self.lazy_clones.lock_to_change(map, leaves)?;
        let _room = self.publisher.room().claim_log_room(GroupBytes::of_remaps(portion.len() as u64));
        self.metadata.attached(map)?;
        while !wanted.is_empty() {
            let (plan, done) = self.plan_remaps(map, &wanted)?;
            if done.is_empty() {
                return Ok(0);
            }
            let Some(refusal) = self.publisher.publish_plan(plan)? else {
                self.promote(&done);
                return Ok(done.len() as u64);
            };
            let (refused, rest): (Vec<Remap>, _) =
                wanted.into_iter().partition(|remap| refusal.pbns.contains(&remap.target.0));
            self.requeue_refused(&refused);
            wanted = rest;
        }
        Ok(0)
    }

    /// Requeues places whose targets were freed meanwhile: other blocks may have the same content.
    fn requeue_refused(&self, refused: &[Remap]) {
        self.stats.counters.hints_refused.fetch_add(refused.len() as u64, Relaxed);
        if let Some(Remap { visit, .. }) = refused.first() {
            self.backlog_notes.leave_to_worker(visit.map, refused.iter().map(|remap| remap.visit.lbn));
        }
    }

    /// A plan for the places that are unchanged in the map, and the targets that it takes.
    fn plan_remaps(&self, map: MapId, wanted: &[Remap]) -> Result<(Plan, Vec<(Tag, Pbn)>)> {
        let mut edit = MapEdit::new(&self.metadata, map);
        let mut unchanged = Vec::with_capacity(wanted.len());
        for remap in wanted {
            if edit.has(remap.visit.lbn, remap.visit.pbn)? {
                unchanged.push(*remap);
            }
        }
        edit.set_blocks(unchanged.iter().map(|remap| (remap.visit.lbn, remap.target.0)))?;
        let fingerprint = |remap: &Remap| Some((remap.target.0, remap.target.1.fingerprint?));
        let fingerprints: BTreeMap<_, _> = unchanged.iter().filter_map(fingerprint).collect();
        let takes: Vec<(Tag, Pbn)> = unchanged.iter().map(|remap| (remap.visit.entry.tag, remap.target.0)).collect();
        let mut plan = edit.into_plan();
        plan.increfs = takes.iter().map(|(tag, pbn)| Incref { pbn: *pbn, tag: *tag }).collect();
        plan.fingerprints = fingerprints.into_iter().collect();
        Ok((plan, takes))
    }

    /// Brings hints of shared blocks back from the disk level, because they are worth having in memory.
    fn promote(&self, shared: &[(Tag, Pbn)]) {
        let (promoted, many_waiting) = self.hints.promote(shared, &self.stats.counters);
        self.stats.counters.hints_promoted.fetch_add(promoted, Relaxed);
        self.hint_levels.wake_to_merge(many_waiting);
    }
}
