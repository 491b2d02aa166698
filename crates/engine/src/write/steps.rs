//! The steps of a write: receive, tag, look up, decide, confirm, place, map. One function, `write_request`, holds the
//! order.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::format::extent_leaf::Target;
use crate::format::keys::{LEAF_BLOCKS, leaf_parts};
use crate::hash::is_zero;
use crate::place::free_blocks::Claim;
use crate::policy::effective::FilePolicies;
use crate::policy::inline::Stream;
use crate::space::allocator::Run;
use crate::state::loading::Metadata;
use crate::sync::RwLockWriteGuard;
use crate::write::admission::Admission;
use crate::write::backlog_notes::BacklogNotes;
use crate::write::batch::{Batch, Outcome};
use crate::write::confirm::BatchConfirmer;
use crate::write::decide::{Decider, OpenRuns};
use crate::write::in_line_compression::InLineCompressor;
use crate::write::lazy_clone::LazyClones;
use crate::write::partial_blocks::{Ends, PartialBlocks};
use crate::write::place::Placer;
use crate::write::publish::OnPublish;
use crate::write::publish_batch::BatchPublisher;
use crate::write::share_open::OpenRunSharer;
use crate::write::under_way::{AwaitedRequests, Awaits, UnderWay};
use crate::{BLOCK_BYTES, Change, Lbn, MapId, Result, Stage, WriteMode};

/// A request up to its publication.
struct Prepared<'a> {
    /// Decided and placed.
    batch: Batch<'a>,
    /// What was allocated for it.
    runs: Vec<Run>,
    open_runs: OpenRuns,
    /// Whether it was looked up.
    is_admitted: bool,
}

part! {
    /// Writes requests: it calls the steps in their order.
    pub struct Writer {
        base: health, stats;
        metadata: Metadata, file_policies: FilePolicies, lazy_clones: LazyClones, backlog_notes: BacklogNotes,
        partial_blocks: PartialBlocks, admission: Admission, decider: Decider, batch_confirmer: BatchConfirmer,
        in_line_compressor: InLineCompressor, placer: Placer, batch_publisher: BatchPublisher,
        open_run_sharer: OpenRunSharer, under_way: UnderWay
    }
}

impl Writer {
    /// See [`crate::Store::write`]. Before the publication the change is invisible, and a failure leaves everything as it
    /// was.
    ///
    /// Bytes around a partial write must not change between being read and being written back. So its map is locked
    /// from the beginning, unless the request may be compressed: that takes long, and other requests of the file go on
    /// meanwhile. If they change a block at one of its ends, it is done again with the lock.
    pub fn write_request<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        data: &[u8],
        write_mode: WriteMode,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.health.usable()?;
        self.lazy_clones.own(map, leaves_of(at, data.len()))?;
        // From here on a block that was read keeps its content under its number.
        let _pin = self.metadata.pin();
        let mut locked = None;
        let ends = match is_whole_blocks(at, data.len()) {
            true => Ends::default(),
            false if self.in_line_compressor.may_compress(map, data.len() / BLOCK_BYTES) => {
                let _map = self.metadata.lock_of(map).read();
                self.partial_blocks.merge_with_stored(map, at, data)?
            }
            false => {
                locked = Some(self.metadata.lock_of(map).write());
                self.partial_blocks.merge_with_stored(map, at, data)?
            }
        };
        let first = Lbn(at / BLOCK_BYTES as u64);
        let bytes = ends.merged.as_deref().unwrap_or(data);
        let mut prepared = self.prepare(map, first, bytes, write_mode, locked.is_some())?;
        let locked = locked.unwrap_or_else(|| self.metadata.lock_of(map).write());
        let are_unchanged = self.partial_blocks.are_unchanged(map, &ends);
        if matches!(are_unchanged, Ok(true)) {
            return self.publish(map, prepared, locked, with);
        }
        self.placer.give_up(&mut prepared.batch, &prepared.runs);
        self.leave_undone(map, &prepared.batch, prepared.open_runs.lbns());
        are_unchanged?;
        let ends = self.partial_blocks.merge_with_stored(map, at, data)?;
        let bytes = ends.merged.as_deref().unwrap_or(data);
        let prepared = self.prepare(map, first, bytes, write_mode, true)?;
        self.publish(map, prepared, locked, with)
    }

    /// The steps of a block's life, in order, from the request up to its place. Nothing is visible yet.
    fn prepare<'a>(
        &self,
        map: MapId,
        first: Lbn,
        bytes: &'a [u8],
        write_mode: WriteMode,
        is_locked: bool,
    ) -> Result<Prepared<'a>> {
        let mut batch = Batch::new(first, bytes, self.file_policies.effective_policy(map), write_mode);
        batch.is_map_locked = is_locked;
        let blocks = batch.len() as u64;
        let current = self.current_targets(map, &batch, is_locked)?;
        let mut is_admitted = batch.policy.is_inline && self.admission.admit();
        self.stats.timed(Stage::Receive, blocks, || self.receive(&mut batch));
        self.stats.timed(Stage::Tag, blocks, || self.admission.tag(&mut batch, is_admitted));
        is_admitted |= batch.policy.is_inline && !is_admitted && self.admission.is_probe_hit(&batch);
        let is_added = |index: &usize| !matches!(current[*index], Target::Data(_));
        batch.added =
            batch.indexes(|outcome| outcome != Outcome::Zero).iter().filter(|index| is_added(index)).count() as u64;
        let stream = self.decider.take_stream(map, batch.first);
        let open: Vec<Lbn> = stream.open.iter().map(|block| block.lbn).collect();
        let prepared = self.prepare_after(map, &mut batch, &current, stream, is_admitted);
        match prepared {
            Ok((runs, open_runs)) => Ok(Prepared { batch, runs, open_runs, is_admitted }),
            Err(error) => {
                self.leave_undone(map, &batch, open.into_iter());
                Err(error)
            }
        }
    }

    /// The steps from the look-up on: what is allocated for the request, and the runs that it continues. `stream` is what
    /// the file's previous request left.
    fn prepare_after(
        &self,
        map: MapId,
        batch: &mut Batch,
        current: &[Target],
        stream: Stream,
        is_admitted: bool,
    ) -> Result<(Vec<Run>, OpenRuns)> {
        let blocks = batch.len() as u64;
        let mut open_runs = OpenRuns::default();
        let mut awaited = AwaitedRequests::default();
        if is_admitted {
            let holders = self.stats.timed(Stage::Lookup, blocks, || self.decider.look_up(batch));
            open_runs = self
                .stats
                .timed(Stage::Decide, blocks, || self.decider.decide(map, batch, holders, current, stream))?;
            let awaits = if batch.is_map_locked { Awaits::None } else { self.batch_confirmer.awaits(batch) };
            let found = self.under_way.find(batch.candidates(), awaits);
            batch.set_aside(&found.awaited);
            batch.pass_over(&found.passed_over);
            awaited = found.requests;
            self.stats.timed(Stage::Confirm, blocks, || self.batch_confirmer.confirm(batch));
        } else if !stream.open.is_empty() {
            self.backlog_notes.leave_to_worker(map, stream.open.iter().map(|block| block.lbn));
        }
        let mut runs = self.stats.timed(Stage::Place, blocks, || self.place(map, batch, current))?;
        if !awaited.is_empty() {
            runs = self.stats.timed(Stage::Confirm, 0, || self.confirm_awaited(&awaited, batch, runs, current))?;
        }
        if is_admitted {
            self.batch_confirmer.note_shares(batch);
        }
        Ok((runs, open_runs))
    }

    /// The last step: a prepared request becomes visible.
    fn publish<G: OnPublish>(
        &self,
        map: MapId,
        prepared: Prepared<'_>,
        locked: RwLockWriteGuard<'_, ()>,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        let Prepared { mut batch, runs, open_runs, is_admitted } = prepared;
        self.count_request(is_admitted, batch.len() as u64);
        let published = self.batch_publisher.publish_batch(map, &mut batch, runs, with);
        drop(locked);
        if published.is_err() {
            self.leave_undone(map, &batch, open_runs.lbns());
            return published;
        }
        batch.announced.clear();
        self.follow_open_runs(map, &batch, open_runs);
        Ok(())
    }

    /// A request is not published, or is decided again: its file's account has nothing of it, and the worker visits the
    /// blocks that earlier requests left open for it.
    fn leave_undone(&self, map: MapId, batch: &Batch, open: impl Iterator<Item = Lbn>) {
        self.decider.give_back(map, batch);
        let open: Vec<Lbn> = open.collect();
        if !open.is_empty() {
            self.backlog_notes.leave_to_worker(map, open);
        }
    }

    /// Gives new blocks their places: first those that are compressed, then the others.
    fn place(&self, map: MapId, batch: &mut Batch, current: &[Target]) -> Result<Vec<Run>> {
        let mut runs = match self.in_line_compressor.compress(map, batch) {
            Some(packed) => {
                let from_reserved = reserved_among(packed.indexes(), current);
                self.placer.place_fragments(batch, packed, from_reserved)?
            }
            None => Vec::new(),
        };
        self.place_whole(batch, &mut runs, current)?;
        Ok(runs)
    }

    /// Gives the new blocks that have no place yet one each, behind those in `runs`. On failure none keeps its place.
    fn place_whole(&self, batch: &mut Batch, runs: &mut Vec<Run>, current: &[Target]) -> Result<()> {
        let anew = batch.indexes(|outcome| outcome == Outcome::Anew(None));
        let claim = Claim::Ordinary { from_reserved: reserved_among(&anew, current) };
        match self.placer.place(batch, claim) {
            Ok(more) => runs.extend(more),
            Err(error) => {
                self.placer.give_up(batch, runs);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Confirms the blocks that other requests had placed and not published, once these have. Those that are refused
    /// are stored anew.
    fn confirm_awaited(
        &self,
        awaited: &AwaitedRequests,
        batch: &mut Batch,
        mut runs: Vec<Run>,
        current: &[Target],
    ) -> Result<Vec<Run>> {
        self.under_way.wait(awaited);
        batch.take_up();
        self.batch_confirmer.confirm(batch);
        self.place_whole(batch, &mut runs, current)?;
        Ok(runs)
    }

    /// After a published request: shares the blocks that an earlier request left open, and remembers those that this
    /// one leaves open. The request itself is done, so a failure here costs a duplicate.
    fn follow_open_runs(&self, map: MapId, batch: &Batch, mut open_runs: OpenRuns) {
        let shared = std::mem::take(&mut open_runs.shared);
        self.decider.leave_open(map, batch, open_runs);
        self.decider.note_growth(map, batch);
        if !shared.is_empty()
            && let Err(error) = self.open_run_sharer.share_open(map, &shared)
        {
            self.health.tell("blocks of a run were stored twice", &error);
        }
    }

    /// The map's present target for each block of the batch.
    fn current_targets(&self, map: MapId, batch: &Batch, is_locked: bool) -> Result<Vec<Target>> {
        let _map = (!is_locked).then(|| self.metadata.lock_of(map).read());
        let mut targets = Vec::with_capacity(batch.len());
        for (key, first, end) in leaf_parts(map, batch.first, batch.len() as u64) {
            for extent in self.metadata.leaf(key)?.slice(first, end) {
                targets.extend((0..u64::from(extent.blocks)).map(|n| extent.target.plus(n)));
            }
        }
        assert_eq!(targets.len(), batch.len(), "one target for each block of map {}", map.0);
        Ok(targets)
    }

    /// Marks zero blocks: they take no space.
    fn receive(&self, batch: &mut Batch) {
        for index in 0..batch.len() {
            if is_zero(batch.block(index)) {
                batch.outcomes[index] = Outcome::Zero;
            }
        }
    }

    fn count_request(&self, is_admitted: bool, blocks: u64) {
        self.stats.counters.write_requests.fetch_add(1, Relaxed);
        self.stats.counters.blocks_written.fetch_add(blocks, Relaxed);
        if !is_admitted {
            self.stats.counters.write_requests_not_admitted.fetch_add(1, Relaxed);
            self.stats.counters.blocks_not_admitted.fetch_add(blocks, Relaxed);
        }
    }
}

/// The leaves of a map that a write at byte `at` changes.
fn leaves_of(at: u64, len: usize) -> impl Iterator<Item = u64> {
    let leaf_bytes = LEAF_BLOCKS * BLOCK_BYTES as u64;
    at / leaf_bytes..(at + len as u64).div_ceil(leaf_bytes)
}

/// Whether these bytes are whole blocks.
fn is_whole_blocks(at: u64, len: usize) -> bool {
    at.is_multiple_of(BLOCK_BYTES as u64) && len.is_multiple_of(BLOCK_BYTES)
}

/// How many of these new blocks replace reserved ones: they use up the reservation. Zero blocks do not: they stay
/// reserved.
fn reserved_among(anew: &[usize], current: &[Target]) -> u64 {
    anew.iter().filter(|index| current[**index] == Target::Reserved).count() as u64
}
