//! Everything that a publication changes, protected by the one publish lock, with the current commit group and the
//! blocks that wait to become free.
//!
//! Invariants: (1) a block's count equals the references from all maps and from the records of bad blocks and replicas;
//! (2) `totals` equal the table and the maps, and never promise more than the data area has (`claims`); (3) a block
//! whose count is zero is free, or waits in the group's `freed`, in `waiting`, or in `wait_for_trim`; (4) every change
//! applied here is in the group's operations, in the same order; (5) a released block becomes free after the group that
//! released it is durable, after the readers that may see it are done, and after the trim of the log records that carry
//! its data.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashSet;

use crate::format::damage_records::BadRecord;
use crate::format::extent_leaf::{ExtentLeaf, Target};
use crate::format::fragment::{FragmentPlace, is_fragment, is_number};
use crate::format::fragment_totals::FragmentTotals;
use crate::format::keys::{self, LeafKey};
use crate::format::ops::Op;
use crate::format::page::{COPIED, COUNT_MAX, Entry, Page, page_of};
use crate::format::record::Totals;
use crate::known_damage::bad_blocks::BadBlocks;
use crate::space::allocator::Run;
use crate::space::pins::EndedEpoch;
use crate::state::claimed_room::Claims;
use crate::state::flag_change::FlagChange;
use crate::state::fragment_holders::Holders;
use crate::state::group::{CountRun, Group};
use crate::state::maps::Leaves;
use crate::state::pending_clones::{CloneStep, PendingClones};
use crate::state::records::Records;
use crate::state::reserved_counts::ReservedCounts;
use crate::state::table::{Table, damaged_entry};
use crate::{BLOCK_BYTES, Blocks, Change, Error, Fingerprint, Lbn, MapId, Pbn, Result, Tag};

/// A block of new content.
#[derive(Clone, Copy, Debug)]
pub struct StoredBlock {
    /// Where it was written.
    pub pbn: Pbn,
    /// The tag of its content.
    pub tag: Tag,
    /// The fingerprint of its content, if computed.
    pub fingerprint: Option<Fingerprint>,
}

/// A new fragment.
#[derive(Clone, Copy, Debug)]
pub struct StoredFragment {
    /// Its number and its content.
    pub block: StoredBlock,
    /// Where it was written.
    pub place: FragmentPlace,
}

/// A fragment that gets another place.
#[derive(Clone, Copy, Debug)]
pub struct MovedFragment {
    /// Its number.
    pub pbn: Pbn,
    /// The content that it must still hold.
    pub tag: Tag,
    /// The place that it must still have.
    pub from: FragmentPlace,
    /// The same bytes at another place.
    pub to: FragmentPlace,
}

/// A further reference to a stored block.
#[derive(Clone, Copy, Debug)]
pub struct Incref {
    /// The block.
    pub pbn: Pbn,
    /// The content that it must still hold.
    pub tag: Tag,
}

/// Consecutive blocks of a map and their new target.
#[derive(Clone, Copy, Debug)]
pub struct Mapped {
    /// The first block.
    pub lbn: Lbn,
    /// How many, within one leaf.
    pub blocks: u16,
    /// Their new target.
    pub target: Target,
}

/// One publication: decided outside the publish lock, applied as a whole under it.
#[derive(Default)]
pub struct Plan {
    /// New blocks, each with its first reference.
    pub stores: Vec<StoredBlock>,
    /// New fragments, each with its first reference.
    pub fragments: Vec<StoredFragment>,
    /// Blocks that must still hold a fragment of the same pack, otherwise nothing is published. One that holds none any
    /// more waits to become free.
    pub entered: Vec<Pbn>,
    /// Fragments that move. None of them is released by the same plan.
    pub moves: Vec<MovedFragment>,
    /// Further references, also to blocks in `stores` and in `fragments`.
    pub increfs: Vec<Incref>,
    /// References to release, after `increfs`.
    pub decrefs: Vec<Run>,
    /// Fingerprints that were computed for stored blocks.
    pub fingerprints: Vec<(Pbn, Fingerprint)>,
    /// The map that changes, for the log.
    pub map: Option<MapId>,
    /// Its changes, in order.
    pub mapped: Vec<Mapped>,
    /// The changed leaves.
    pub leaves: Vec<(LeafKey, ExtentLeaf)>,
    /// Leaves that are removed as a whole.
    pub drops: Vec<LeafKey>,
    /// Change of the number of reserved blocks.
    pub reserved_delta: i64,
    /// Blocks claimed in addition to those for `stores`. Positive for new reservations. Negative if some stores replace
    /// reserved blocks.
    pub reserved_claim: i64,
    /// Blocks among `stores` whose content is in memory.
    pub staged: Vec<Pbn>,
    /// Blocks claimed for this plan whose claim ends with it: its stores and reservations count in the totals from now
    /// on.
    pub claimed: u64,
    /// A map to detach.
    pub detach: Option<MapId>,
    /// A new size of the data area.
    pub grow_to: Option<Blocks>,
    /// Blocks that must still hold this content, otherwise nothing is published.
    pub expected: Vec<Incref>,
    /// References that records take. They are not mapped.
    pub record_increfs: Vec<Incref>,
    /// New blocks whose first reference is a record's.
    pub record_stores: Vec<StoredBlock>,
    /// References that records release.
    pub record_decrefs: Vec<Pbn>,
    /// Changes of flags. This plan frees none of these blocks unless all its flags are cleared.
    pub flags: Vec<FlagChange>,
    /// New records of bad blocks. None: the block is not bad any more.
    pub bad: Vec<(Pbn, Option<BadRecord>)>,
    /// Blocks of a pending clone that get a reference whatever their state: what is bad for its source is bad for it.
    pub shared: Vec<Run>,
    /// A step of a pending clone. If it is not due any more, nothing is published.
    pub clone: Option<CloneStep>,
    /// The caller's records.
    pub change: Change,
}

impl Plan {
    /// Orders the references by block, so that each page of the block table is accessed once.
    pub fn sort(&mut self) {
        self.increfs.sort_unstable_by_key(|incref| incref.pbn);
        self.decrefs.sort_unstable_by_key(|run| run.pbn);
    }

    /// Pages of the block table that must be in memory.
    pub fn pages(&self) -> BTreeSet<u64> {
        let stores = self.stores.iter().map(|store| page_of(store.pbn));
        let increfs = self.increfs.iter().map(|incref| page_of(incref.pbn));
        let fingerprints = self.fingerprints.iter().map(|(pbn, _)| page_of(*pbn));
        let runs = self.decrefs.iter().chain(&self.shared);
        let runs = runs.flat_map(|run| page_of(run.pbn)..=page_of(Pbn(run.end().0 - 1)));
        let of_records = self.expected.iter().chain(&self.record_increfs).map(|incref| page_of(incref.pbn));
        let record_stores = self.record_stores.iter().map(|store| page_of(store.pbn));
        let flags = self.flags.iter().map(|change| page_of(change.pbn));
        let record_decrefs = self.record_decrefs.iter().map(|pbn| page_of(*pbn));
        let fragments = self
            .fragments
            .iter()
            .flat_map(|fragment| fragment.place.holders().map(page_of).chain([page_of(fragment.block.pbn)]));
        let moves = self.moves.iter().flat_map(MovedFragment::changed).map(page_of);
        let maps = stores.chain(increfs).chain(fingerprints).chain(runs).chain(fragments).chain(moves);
        maps.chain(of_records).chain(record_stores).chain(flags).chain(record_decrefs).collect()
    }

    /// Blocks whose entries it changes in any case. Before a reference is taken, the entry is checked first.
    fn changed_blocks(&self) -> impl Iterator<Item = Pbn> + '_ {
        let stores = self.stores.iter().chain(&self.record_stores).map(|store| store.pbn);
        let runs = self.decrefs.iter().chain(&self.shared).flat_map(|run| run.pbns());
        let fragments = self.fragments.iter().flat_map(|fragment| fragment.place.holders().chain([fragment.block.pbn]));
        stores
            .chain(fragments)
            .chain(self.moves.iter().flat_map(MovedFragment::changed))
            .chain(runs)
            .chain(self.record_decrefs.iter().copied())
            .chain(self.flags.iter().map(|change| change.pbn))
    }
}

/// Blocks freed by a durable group that wait for their readers.
pub struct Waiting {
    /// The group that freed them.
    pub sequence: u64,
    /// Readers that may still see them.
    pub epoch: EndedEpoch,
    /// The blocks.
    pub runs: Vec<Run>,
}

/// How many ids of detached maps are remembered after their blocks are freed. Only a request that was under way when
/// its map was detached can still carry one.
const DETACHED_REMEMBERED_MAX: usize = 65_536;

/// The state behind the publish lock.
pub struct State {
    /// Records in memory.
    pub records: Records,
    /// Maps in memory.
    pub leaves: Leaves,
    /// The block table in memory.
    pub table: Table,
    /// The current group.
    pub group: Group,
    /// The volume's totals.
    pub totals: Totals,
    /// The blocks that operations under way will add to the totals.
    pub claims: Claims,
    /// Freed blocks of durable groups.
    pub waiting: VecDeque<Waiting>,
    /// Freed blocks whose data rides in a log record that is not trimmed yet.
    pub wait_for_trim: Vec<Run>,
    /// Blocks whose data rides in a log record that is not trimmed yet.
    pub logged: BTreeSet<Pbn>,
    /// How many of them the running checkpoint places.
    pub(super) logged_frozen: usize,
    /// The number of the last durable group.
    pub durable_sequence: u64,
    /// How much is compressed.
    pub fragment_totals: FragmentTotals,
    /// Bytes of fragments that were freed since the mount.
    pub fragment_bytes_freed: u64,
    /// The order of the last directory of a pack.
    pub(super) pack_order: u64,
    /// Blocks known to be bad.
    pub bad: BadBlocks,
    /// Freed blocks that had a replica, which is to be dropped.
    pub orphaned: Vec<Pbn>,
    /// Maps that read leaves of others.
    pub clones: PendingClones,
    /// Reserved blocks of maps that are about to be cloned.
    pub reserved_counts: ReservedCounts,
    detached: HashSet<MapId>,
    detached_done: VecDeque<MapId>,
}

impl State {
    /// A state without any publication since `durable_sequence`.
    pub fn new(table: Table, leaves: Leaves, totals: Totals, durable_sequence: u64) -> Self {
        Self {
            records: Records::default(),
            leaves,
            table,
            group: Group::default(),
            totals,
            claims: Claims::default(),
            waiting: VecDeque::new(),
            wait_for_trim: Vec::new(),
            logged: BTreeSet::new(),
            logged_frozen: 0,
            durable_sequence,
            fragment_totals: FragmentTotals::default(),
            fragment_bytes_freed: 0,
            pack_order: 0,
            bad: BadBlocks::default(),
            orphaned: Vec::new(),
            clones: PendingClones::default(),
            reserved_counts: ReservedCounts::default(),
            detached: HashSet::new(),
            detached_done: VecDeque::new(),
        }
    }

    /// Whether a map was detached.
    pub fn is_detached(&self, map: MapId) -> bool {
        self.detached.contains(&map)
    }

    /// Learns that a detached map's blocks are all freed.
    pub fn forget_detached(&mut self, map: MapId) {
        self.detached_done.push_back(map);
        if self.detached_done.len() > DETACHED_REMEMBERED_MAX
            && let Some(oldest) = self.detached_done.pop_front()
        {
            self.detached.remove(&oldest);
        }
    }

    /// Takes in a detached map that a crash left.
    pub fn remember_detached(&mut self, map: MapId) {
        self.detached.insert(map);
    }

    /// The increfs that contradict the table (by now): the block was freed, has other content, is bad, is a replica, or
    /// is at the largest count. A block that a pending clone shares may be bad. Also the entered blocks of packs that
    /// hold nothing any more. All pages of the plan are in memory.
    pub fn refused(&mut self, plan: &Plan) -> Vec<Pbn> {
        let fragments = plan.fragments.iter().map(|fragment| fragment.block.pbn);
        let stored: HashSet<Pbn> = plan.stores.iter().map(|store| store.pbn).chain(fragments).collect();
        let mut entries = self.table.entries();
        let increfs = plan.increfs.iter().filter(|incref| !stored.contains(&incref.pbn));
        let increfs = increfs.filter(|incref| {
            let entry = entries.of(incref.pbn);
            !entry.serves(incref.tag) || ((COUNT_MAX - entry.count) as usize) < plan.increfs.len()
        });
        let mut refused: Vec<Pbn> = increfs.map(|incref| incref.pbn).collect();
        let expected = plan.expected.iter().filter(|incref| !entries.of(incref.pbn).serves(incref.tag));
        refused.extend(expected.map(|incref| incref.pbn));
        refused.extend(plan.entered.iter().copied().filter(|pbn| entries.of(*pbn).count == 0));
        let shared: u64 = plan.shared.iter().map(|run| run.blocks).sum();
        let is_full = |pbn: &Pbn| u64::from(COUNT_MAX - entries.of(*pbn).count) < shared;
        refused.extend(plan.shared.iter().flat_map(|run| run.pbns()).filter(is_full));
        let record_increfs = plan.record_increfs.iter().filter(|incref| {
            let entry = entries.of(incref.pbn);
            entry.count == 0 || entry.tag != incref.tag || entry.count > COUNT_MAX - 2
        });
        refused.extend(record_increfs.map(|incref| incref.pbn));
        refused.extend(plan.moves.iter().filter(|moved| !self.may_move(moved)).map(|moved| moved.pbn));
        refused
    }

    /// Why a plan cannot be applied: because of damage, the table and the totals contradict the maps and records whose
    /// blocks it releases, or a block that it changes is unknown. All pages of the plan are in memory.
    pub fn contradiction(&mut self, plan: &Plan) -> Option<Error> {
        if let Some(pbn) = plan.changed_blocks().find(|pbn| self.is_unknown(*pbn)) {
            return Some(damaged_entry(pbn));
        }
        let contradicts = |why| Some(Error::corrupt("the block table", why));
        let mut entries = self.table.entries();
        let mut shared = plan.shared.iter().flat_map(|run| run.pbns());
        if let Some(pbn) = shared.find(|pbn| entries.of(*pbn).count == 0) {
            return contradicts(format!("block {pbn} of a cloned map has no reference"));
        }
        let freed = match self.freed_by(plan) {
            Ok(freed) => freed,
            Err(contradiction) => return contradicts(contradiction),
        };
        let totals = self.totals;
        let is_enough = totals.mapped.0 >= plan.decrefs.iter().map(|run| run.blocks).sum() && totals.used.0 > freed;
        if is_enough && totals.reserved.0.checked_add_signed(plan.reserved_delta).is_some() {
            return None;
        }
        contradicts(format!("{freed} blocks lose their last reference, and the totals do not have them: {totals:?}"))
    }

    /// Why a plan cannot even be checked: a record names a block that does not exist.
    pub fn names_nothing(&self, plan: &Plan) -> Option<Error> {
        let named = plan.record_decrefs.iter().chain(plan.flags.iter().map(|change| &change.pbn));
        let outside = named.copied().find(|pbn| pbn.0 >= self.totals.data.0 && !is_number(*pbn))?;
        Some(Error::corrupt("a record", format!("it names block {outside}, which lies outside the data area")))
    }

    /// Whether a plan adds more to the totals than it claimed and the free room allows. It may have counted on a
    /// reservation that another change has used since, or on blocks that became shared since. All pages of the plan are
    /// in memory.
    pub fn lacks_room(&mut self, plan: &Plan) -> bool {
        let unclaimed = plan.reserved_delta.saturating_sub(plan.reserved_claim) + plan.blocks_of_moves();
        let Some(unclaimed) = u64::try_from(unclaimed).ok().filter(|unclaimed| *unclaimed > 0) else { return false };
        self.claims.free(&self.totals).0.saturating_add(self.freed_by(plan).unwrap_or(0)) < unclaimed
    }

    /// How many blocks lose their last reference by a plan. An error: the table lacks a reference that maps and records
    /// release.
    fn freed_by(&mut self, plan: &Plan) -> std::result::Result<u64, String> {
        let of_maps = plan.decrefs.iter().flat_map(|run| run.pbns());
        let mut released: Vec<Pbn> = of_maps.chain(plan.record_decrefs.iter().copied()).collect();
        released.sort_unstable();
        if released.first() == Some(&Pbn(0)) {
            return Err("a map or a record gives back the label".to_owned());
        }
        let mut freed = 0;
        let mut leaving: Vec<FragmentPlace> =
            plan.moves.iter().filter(|moved| self.may_move(moved)).map(|moved| moved.from).collect();
        let mut last_fragments = Vec::new();
        let mut entries = self.table.entries();
        for same in released.chunk_by(|one, other| one == other) {
            let count = entries.of(same[0]).count as usize;
            if count < same.len() {
                return Err(format!("block {} has {count} references, and {} are given back", same[0], same.len()));
            }
            match count == same.len() {
                true if is_fragment(same[0]) => last_fragments.push(same[0]),
                is_last => freed += u64::from(is_last),
            }
        }
        leaving.extend(last_fragments.into_iter().filter_map(|pbn| self.table.fragment_place(pbn)));
        Ok(freed + self.packs_freed_by(&leaving)?)
    }

    /// Applies a plan whose pages are in memory, without contradictions, refused increfs or lack of room. Returns the
    /// blocks that lost their last reference, with their tags.
    pub fn apply(&mut self, plan: Plan, now: Instant) -> Vec<(Tag, Pbn)> {
        let changed = plan.leaves.iter().map(|(key, _)| key).chain(&plan.drops);
        let lacking = changed.filter(|key| plan.clone != Some(CloneStep::Take(**key)));
        lacking.for_each(|key| assert_eq!(self.clones.to_take(*key), None, "{key:?} changes before it is taken"));
        self.group.touch(now);
        let compressed_before = self.fragment_totals;
        for store in plan.stores.iter().chain(&plan.record_stores) {
            self.store(store);
        }
        self.store_fragments(&plan.fragments);
        self.move_fragments(&plan.moves);
        let increfs = plan.increfs.iter().chain(&plan.record_increfs).map(|incref| incref.pbn);
        self.take_references(increfs.chain(plan.shared.iter().flat_map(|run| run.pbns())));
        let shared: u64 = plan.shared.iter().map(|run| run.blocks).sum();
        let stored = plan.stores.len() + plan.fragments.len();
        self.totals.mapped += Blocks((stored + plan.increfs.len()) as u64 + shared);
        for (pbn, fingerprint) in &plan.fingerprints {
            self.set_fingerprint(*pbn, *fingerprint);
        }
        for FlagChange { pbn, set, clear } in plan.flags.iter().copied() {
            let page = self.table.edit(page_of(pbn));
            let flags = page.entry(pbn).flags & !clear | set;
            page.set_flags(pbn, flags);
            self.group.push(&Op::Flags { pbn, flags });
        }
        self.publish_bad(&plan.bad);
        self.publish_maps(&plan);
        let record_decrefs: Vec<Run> = plan.record_decrefs.iter().map(|pbn| Run { pbn: *pbn, blocks: 1 }).collect();
        let mut freed = self.release(&plan.decrefs);
        freed.extend(self.release(&record_decrefs));
        self.totals.mapped = self.totals.mapped - Blocks(plan.decrefs.iter().map(|run| run.blocks).sum());
        self.group.staged.extend_from_slice(&plan.staged);
        self.totals.reserved = Blocks(signed_sum(self.totals.reserved.0, plan.reserved_delta));
        self.publish_clones(&plan);
        for (key, value) in plan.change.puts {
            self.records.put(key, value);
        }
        if self.fragment_totals != compressed_before {
            // Without fragments there is no record, so that versions which know none find nothing unknown.
            let totals = Some(self.fragment_totals).filter(|totals| totals.fragments > 0);
            self.records.put(keys::fragment_totals(), totals.map(|totals| totals.encode()));
        }
        self.totals.data = self.totals.data.max(plan.grow_to.unwrap_or_default());
        self.claims.release(plan.claimed);
        self.table.shrink();
        freed
    }

    fn store(&mut self, store: &StoredBlock) {
        let page = self.table.edit(page_of(store.pbn));
        assert_eq!(page.count(store.pbn), 0, "block {} is placed over a live one", store.pbn);
        let entry = Entry { tag: store.tag, fingerprint: store.fingerprint, count: 1, flags: 0 };
        page.set(store.pbn, &entry);
        self.totals.used += Blocks(1);
        self.group.push(&Op::Store { pbn: store.pbn, tag: store.tag, fingerprint: store.fingerprint });
    }

    fn set_fingerprint(&mut self, pbn: Pbn, fingerprint: Fingerprint) {
        let page = self.table.edit(page_of(pbn));
        let entry = page.entry(pbn);
        if entry.count > 0 && entry.fingerprint.is_none() {
            page.set(pbn, &Entry { fingerprint: Some(fingerprint), ..entry });
            self.group.push(&Op::Fingerprint { pbn, fingerprint });
        }
    }

    fn publish_maps(&mut self, plan: &Plan) {
        if let Some(map) = plan.map {
            for part in &plan.mapped {
                self.group.push(&Op::Map { map, lbn: part.lbn, blocks: part.blocks, target: part.target });
            }
        }
        for (key, leaf) in &plan.leaves {
            self.leaves.set(*key, Arc::new(leaf.clone()));
        }
        for key in &plan.drops {
            self.group.push(&Op::DropLeaf { key: *key });
            self.leaves.set(*key, Arc::default());
        }
        if let Some(map) = plan.detach {
            self.detached.insert(map);
            self.records.put(keys::detached(map), Some(Vec::new()));
        }
    }

    fn publish_clones(&mut self, plan: &Plan) {
        if self.reserved_counts.are_any() {
            let changed = plan.leaves.iter().map(|(key, _)| key).chain(&plan.drops);
            changed.for_each(|key| self.reserved_counts.note_changed(*key));
        }
        let changes = match (plan.clone, plan.detach) {
            (Some(step), _) => self.clones.apply(step),
            (None, Some(map)) => self.clones.give_up(map),
            (None, None) => return,
        };
        changes.into_iter().for_each(|(key, value)| self.records.put(key, value));
    }

    fn publish_bad(&mut self, bad: &[(Pbn, Option<BadRecord>)]) {
        for (pbn, record) in bad {
            self.records.put(keys::bad(*pbn), record.map(|record| record.encode()));
            self.bad.set(*pbn, *record);
        }
    }

    fn take_references(&mut self, pbns: impl Iterator<Item = Pbn>) {
        let mut counts = CountRun::default();
        self.table.edit_each(pbns, |page, pbn, times| {
            let count = page.count(pbn);
            assert!(count > 0 && COUNT_MAX - count >= times, "{times} increfs of block {pbn} with {count} references");
            page.set_count(pbn, count + times);
            counts.add(pbn, count + times, &mut self.group);
        });
        counts.end(&mut self.group);
    }

    fn release(&mut self, runs: &[Run]) -> Vec<(Tag, Pbn)> {
        let mut freed = Vec::new();
        let mut fragments = Vec::new();
        let mut counts = CountRun::default();
        self.table.edit_each(runs.iter().flat_map(|run| run.pbns()), |page, pbn, times| {
            let count = page.count(pbn);
            assert!(count >= times, "{times} releases of block {pbn}, which has {count} references");
            page.set_count(pbn, count - times);
            if count == times {
                let entry = page.entry(pbn);
                freed.push((entry.tag, pbn));
                self.group.free(pbn);
                if entry.flags & COPIED != 0 {
                    self.orphaned.push(pbn);
                }
                if is_fragment(pbn) {
                    fragments.push(pbn);
                }
            }
            counts.add(pbn, count - times, &mut self.group);
        });
        counts.end(&mut self.group);
        let mut holders = Holders::default();
        let packs_freed: u64 = fragments.iter().map(|pbn| self.free_fragment(*pbn, &mut holders)).sum();
        holders.log(&mut self.group);
        self.totals.used = self.totals.used - Blocks((freed.len() - fragments.len()) as u64 + packs_freed);
        freed
    }

    /// Bytes of changes that only the log holds.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_bytes_left() + (self.logged_frozen * BLOCK_BYTES) as u64
    }

    /// The same, without the bytes that the running checkpoint writes out.
    pub fn dirty_bytes_left(&self) -> u64 {
        let riding = ((self.logged.len() - self.logged_frozen) * BLOCK_BYTES) as u64;
        riding + self.table.dirty_bytes() + self.leaves.dirty_bytes() + self.records.dirty_bytes()
    }

    /// Sets apart the blocks that a checkpoint beginning now places.
    pub fn freeze_logged(&mut self) -> Vec<Pbn> {
        assert_eq!(self.logged_frozen, 0, "one checkpoint at a time");
        self.logged_frozen = self.logged.len();
        self.logged.iter().copied().collect()
    }

    /// Bytes that the current group will take in the log, data not included.
    pub fn group_bytes(&self) -> u64 {
        self.group.ops().len() as u64 + self.records.group_bytes()
    }
}

/// `base + delta`; a sum below zero is a broken invariant.
fn signed_sum(base: u64, delta: i64) -> u64 {
    base.checked_add_signed(delta).unwrap_or_else(|| panic!("a sum of {base} blocks changes by {delta}"))
}

impl State {
    /// Refuses a page of the block table written by a group that the log does not have.
    pub fn check_age(&self, number: u64, page: &Page) -> Result<()> {
        let (found, newest) = (page.newest_sequence(), self.durable_sequence);
        if found <= newest {
            return Ok(());
        }
        Err(Error::corrupt(
            format!("page {number} of the block table"),
            format!(
                "it was written by group {found}, but the log ends at group {newest}: log and table do not belong together"
            ),
        ))
    }
}
