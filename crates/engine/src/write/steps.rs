//! The steps of a write: receive, tag, look up, decide, confirm, place, map. One function, `write_request`, holds the
//! order.

use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::shard_parts;
use crate::format::shard::Target;
use crate::settings::values::Inline;
use crate::space::allocator::Run;
use crate::space::claim::Claim;
use crate::write::batch::{Batch, Outcome};
use crate::write::decide::OpenRuns;
use crate::write::hash::is_zero;
use crate::write::publish::OnPublish;
use crate::{BLOCK_BYTES, Change, Lbn, MapId, Pbn, Result, Stage, Urgency};

/// Writes of at least this many new blocks go to the data area at once. Smaller ones are collected in memory, so that
/// scattered small writes become few large ones, or ride in the log.
const DIRECT_BLOCKS_MIN: usize = 32;
/// Collected blocks are written out when there are this many bytes of them.
const STAGED_BYTES_MAX: u64 = 4 << 20;
/// How many blocks are looked up of a request that was not admitted.
const PROBED_BLOCKS: usize = 4;
/// Size of one request to the data area.
pub const REQUEST_BYTES: usize = 1 << 20;

/// Receives the bytes of a device request while the request is under way.
type Look<'a> = &'a mut dyn FnMut(&[u8]);

impl Core {
    /// See [`crate::Store::write`]. The steps of a block's life, in order, from the request to its publication. Before
    /// the publication the change is invisible, and a failure leaves everything as it was.
    pub fn write_request<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        data: &[u8],
        urgency: Urgency,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.health.usable()?;
        let _pin = self.space.pin();
        let mut locked = None;
        let mut merged = None;
        if !is_whole_blocks(at, data.len()) {
            // Bytes around a partial write must not change between being read and being written back.
            locked = Some(self.maps.lock(map).write());
            merged = Some(self.merge_with_stored(map, at, data)?);
        }
        let whole = merged.as_deref().unwrap_or(data);
        let mut batch =
            Batch::new(Lbn(at / BLOCK_BYTES as u64), whole, self.file_policies.effective_policy(map), urgency);
        let blocks = batch.len() as u64;
        let current = self.current_targets(map, &batch, locked.is_some())?;
        let mut is_admitted = batch.policy.is_inline && self.admit();
        self.stats.timed(Stage::Receive, blocks, || self.receive(&mut batch));
        self.stats.timed(Stage::Tag, blocks, || self.tag(&mut batch, is_admitted));
        is_admitted |= batch.policy.is_inline && !is_admitted && self.is_probe_hit(&batch);
        let is_added = |index: &usize| !matches!(current[*index], Target::Data(_));
        batch.added =
            batch.indexes(|outcome| outcome != Outcome::Zero).iter().filter(|index| is_added(index)).count() as u64;
        let stream = self.take_stream(map, batch.first);
        let mut open_runs = OpenRuns::default();
        if is_admitted {
            let holders = self.stats.timed(Stage::Lookup, blocks, || self.look_up(&batch));
            open_runs =
                self.stats.timed(Stage::Decide, blocks, || self.decide(map, &mut batch, holders, &current, stream))?;
            self.stats.timed(Stage::Confirm, blocks, || self.confirm(&mut batch));
        } else if !stream.open.is_empty() {
            self.backlog_notes.leave_to_worker(map, stream.open.iter().map(|block| block.lbn));
        }
        self.count_request(is_admitted, blocks);
        let runs = self.stats.timed(Stage::Place, blocks, || {
            let claim = claim_of(&batch, &current);
            self.place(&mut batch, claim)
        })?;
        let locked = locked.unwrap_or_else(|| self.maps.lock(map).write());
        let room = self.change_room.claim_log_room(GroupBytes::of_blocks(blocks));
        self.publish_batch(map, &mut batch, runs, with)?;
        drop((room, locked));
        self.follow_open_runs(map, &batch, open_runs);
        Ok(())
    }

    /// After a published request: shares the blocks that an earlier request left open, and remembers those that this
    /// one leaves open. The request itself is done, so a failure here costs a duplicate.
    fn follow_open_runs(&self, map: MapId, batch: &Batch, mut open_runs: OpenRuns) {
        let shared = std::mem::take(&mut open_runs.shared);
        self.leave_open(map, batch, open_runs);
        self.note_growth(map, batch);
        if !shared.is_empty()
            && let Err(error) = self.share_open(map, &shared)
        {
            self.health.tell("blocks of a run were stored twice", &error);
        }
    }

    /// The map's present target for each block of the batch.
    fn current_targets(&self, map: MapId, batch: &Batch, is_locked: bool) -> Result<Vec<Target>> {
        let _map = (!is_locked).then(|| self.maps.lock(map).read());
        let mut targets = Vec::with_capacity(batch.len());
        for (key, first, end) in shard_parts(map, batch.first, batch.len() as u64) {
            for extent in self.metadata.shard(key)?.slice(first, end) {
                targets.extend((0..u64::from(extent.blocks)).map(|n| extent.target.plus(n)));
            }
        }
        assert_eq!(targets.len(), batch.len(), "one target for each block of map {}", map.0);
        Ok(targets)
    }

    /// Whether the next written request is looked up and fingerprinted.
    pub fn admit(&self) -> bool {
        // The settings are not locked while this waits for the controller.
        let mode = self.tuning.with(|settings| settings.inline);
        self.inline.admit(mode, self.foreground.now())
    }

    /// Whether any written request is looked up.
    fn looks_up(&self) -> bool {
        self.tuning.with(|settings| settings.inline != Inline::Off)
    }

    /// Whether a few blocks of a request that was not admitted show that it has duplicates. If so, it and the requests
    /// after it are admitted.
    fn is_probe_hit(&self, batch: &Batch) -> bool {
        let mode = self.tuning.with(|settings| settings.inline);
        if !self.inline.is_probed(mode) {
            return false;
        }
        let step = batch.len().div_ceil(PROBED_BLOCKS);
        let tag = |index: usize| (batch.outcomes[index] != Outcome::Zero).then(|| batch.tags[index]);
        let holders = self.hints.look_up((0..batch.len()).step_by(step).map(tag));
        let is_hit = holders.iter().any(|holders| !holders.is_empty());
        if is_hit {
            self.inline.note_hit();
        }
        is_hit
    }

    /// Marks zero blocks: they take no space.
    fn receive(&self, batch: &mut Batch) {
        for index in 0..batch.len() {
            if is_zero(batch.block(index)) {
                batch.outcomes[index] = Outcome::Zero;
            }
        }
    }

    /// A request that is not admitted gets tags, which are checksums too. If a program waits for it and any request is
    /// looked up, or if the device hides their cost, it gets fingerprints as well, so that later duplicates of it are
    /// confirmed without reading it. They are computed as the blocks are placed.
    fn tag(&self, batch: &mut Batch, is_admitted: bool) {
        let stored = batch.indexes(|outcome| outcome != Outcome::Zero);
        for &index in &stored {
            batch.tags[index] = self.hasher.tag(batch.block(index));
        }
        let is_awaited = batch.urgency == Urgency::Awaited && batch.policy.is_inline && self.looks_up();
        let mode = self.tuning.with(|settings| settings.inline);
        batch.fingerprints_all = is_awaited
            || match is_admitted {
                true => self.inline.fingerprints_all(),
                false => batch.policy.is_inline && self.inline.fingerprints_unadmitted(mode),
            };
    }

    fn count_request(&self, is_admitted: bool, blocks: u64) {
        self.stats.counters.write_requests.fetch_add(1, Relaxed);
        self.stats.counters.blocks_written.fetch_add(blocks, Relaxed);
        if !is_admitted {
            self.stats.counters.write_requests_not_admitted.fetch_add(1, Relaxed);
            self.stats.counters.blocks_not_admitted.fetch_add(blocks, Relaxed);
        }
    }

    /// Computes the missing fingerprints of these blocks.
    pub fn fingerprint(&self, batch: &mut Batch, indexes: &[usize]) {
        let unknown: Vec<usize> =
            indexes.iter().copied().filter(|index| batch.fingerprints[*index].is_none()).collect();
        let blocks: Vec<&[u8]> = unknown.iter().map(|index| batch.block(*index)).collect();
        let mut fingerprints = Vec::with_capacity(blocks.len());
        self.hasher.fingerprints(&blocks, &mut fingerprints);
        self.stats.counters.blocks_fingerprinted.fetch_add(blocks.len() as u64, Relaxed);
        for (index, fingerprint) in unknown.into_iter().zip(fingerprints) {
            batch.fingerprints[index] = Some(fingerprint);
        }
    }

    /// Allocates new blocks and writes or stages them. Nothing is visible yet.
    pub fn place(&self, batch: &mut Batch, claim: Claim) -> Result<Vec<Run>> {
        let anew = batch.indexes(|outcome| outcome == Outcome::Anew(None));
        if anew.is_empty() {
            return Ok(Vec::new());
        }
        let runs = self.free_blocks.allocate(anew.len() as u64, claim)?;
        let from_reserved = if let Claim::Ordinary { from_reserved } = claim { from_reserved } else { 0 };
        batch.from_reserved += from_reserved;
        batch.claimed += anew.len() as u64 - from_reserved;
        let allocated: u64 = runs.iter().map(|run| run.blocks).sum();
        assert_eq!(allocated, anew.len() as u64, "as many blocks are allocated as are placed");
        let pbns = runs.iter().flat_map(|run| (0..run.blocks).map(|n| run.pbn.plus(n)));
        for (&index, pbn) in anew.iter().zip(pbns) {
            batch.outcomes[index] = Outcome::Anew(Some(pbn));
        }
        self.stats.counters.blocks_placed.fetch_add(anew.len() as u64, Relaxed);
        let direct = anew.len() - batch.open.len().min(anew.len());
        let direct = if direct < DIRECT_BLOCKS_MIN { 0 } else { direct };
        if let Err(error) = self.write_placed(batch, &anew[..direct], &first_blocks(&runs, direct as u64)) {
            self.free_blocks.unclaim(std::mem::take(&mut batch.claimed));
            self.space.give_back(&runs);
            return Err(error);
        }
        if batch.fingerprints_all {
            self.fingerprint(batch, &anew[direct..]);
        }
        // After everything that can fail: blocks that are given back must not be in memory.
        anew[direct..].iter().for_each(|index| self.stage(batch, *index));
        Ok(runs)
    }

    /// Writes blocks to the runs where they are placed. If they get fingerprints, these are computed while the device
    /// writes, so they cost device time instead of the writer's.
    fn write_placed(&self, batch: &mut Batch, indexes: &[usize], runs: &[Run]) -> Result<()> {
        let mut blocks = indexes.iter().map(|index| batch.block(*index));
        let mut fingerprints = Vec::new();
        let mut hash = |bytes: &[u8]| {
            let blocks: Vec<&[u8]> = bytes.chunks_exact(BLOCK_BYTES).collect();
            self.hasher.fingerprints(&blocks, &mut fingerprints);
        };
        for run in runs {
            let look: Option<Look<'_>> = if batch.fingerprints_all { Some(&mut hash) } else { None };
            self.write_run_beside(*run, &mut blocks, look)?;
        }
        self.stats.counters.blocks_fingerprinted.fetch_add(fingerprints.len() as u64, Relaxed);
        for (index, fingerprint) in indexes.iter().zip(fingerprints) {
            batch.fingerprints[*index] = Some(fingerprint);
        }
        Ok(())
    }

    /// Keeps a placed block's content in memory.
    pub fn stage(&self, batch: &mut Batch, index: usize) {
        let pbn = batch.pbn(index).expect("a block is placed before it is staged");
        self.staging.put(pbn, batch.block(index));
        batch.staged.push(pbn);
    }

    /// Writes the next blocks to a run of the data area, in large requests.
    pub fn write_run<'a>(&self, run: Run, blocks: &mut impl Iterator<Item = &'a [u8]>) -> Result<()> {
        self.write_run_beside(run, blocks, None)
    }

    /// The same, and passes the bytes of each request to `look` while it is under way.
    fn write_run_beside<'a>(
        &self,
        run: Run,
        blocks: &mut impl Iterator<Item = &'a [u8]>,
        mut look: Option<Look<'_>>,
    ) -> Result<()> {
        let mut pbn = run.pbn;
        assert!(pbn > Pbn(0), "block 0 of the data area is its label");
        while pbn < run.end() {
            let count = (run.end().0 - pbn.0).min((REQUEST_BYTES / BLOCK_BYTES) as u64);
            let mut buffer = self.data.take_buffer(count as usize * BLOCK_BYTES);
            for (target, block) in buffer.chunks_exact_mut(BLOCK_BYTES).zip(blocks.by_ref().take(count as usize)) {
                target.copy_from_slice(block);
            }
            self.inline.timed_device_write(count, || match &mut look {
                Some(look) => self.data.write_beside(pbn, &buffer, &mut || look(&buffer)),
                None => self.data.write(pbn, &buffer),
            })?;
            self.stats.counters.data_bytes_written.fetch_add(buffer.len() as u64, Relaxed);
            pbn = pbn.plus(count);
        }
        Ok(())
    }

    /// Writes staged blocks to the data area, neighbours in one request. On a full host it uses the ballast. A failure
    /// is the volume's, because the blocks were acknowledged.
    pub fn write_out(&self, mut pbns: Vec<Pbn>) -> Result<()> {
        pbns.sort_unstable();
        pbns.dedup();
        let staged: Vec<_> = pbns.iter().filter_map(|pbn| Some((*pbn, self.staging.get(*pbn)?))).collect();
        let follows = |a: &(Pbn, _), b: &(Pbn, _)| a.0.plus(1) == b.0;
        for run in staged.chunk_by(follows) {
            let place = Run { pbn: run[0].0, blocks: run.len() as u64 };
            let blocks = || run.iter().map(|(_, block)| &**block);
            let written = self.space.with_host_room(|| self.write_run(place, &mut blocks()));
            written.inspect_err(|error| self.health.fail(error))?;
        }
        self.staging.remove(pbns);
        Ok(())
    }

    /// After a publication: if too much is staged, the publishing thread writes it out.
    pub fn write_out_if_much(&self) -> Result<()> {
        if self.staging.bytes() < STAGED_BYTES_MAX {
            return Ok(());
        }
        // Begins before the blocks are taken, and outside the publish lock: a commit that waits holds off new
        // write-outs.
        let _under_way = self.data.begin_write_out();
        let pbns = {
            let mut state = self.state.lock();
            // The rest of the staged blocks already rides in the log.
            if ((state.group.staged.len() * BLOCK_BYTES) as u64) < STAGED_BYTES_MAX {
                return Ok(());
            }
            std::mem::take(&mut state.group.staged)
        };
        self.write_out(pbns)
    }
}

/// Whether these bytes are whole blocks.
fn is_whole_blocks(at: u64, len: usize) -> bool {
    at.is_multiple_of(BLOCK_BYTES as u64) && len.is_multiple_of(BLOCK_BYTES)
}

/// New blocks over a reserved range use up the reservation. Zero blocks do not: they stay reserved.
fn claim_of(batch: &Batch, current: &[Target]) -> Claim {
    let anew = batch.indexes(|outcome| outcome == Outcome::Anew(None));
    let from_reserved = anew.iter().filter(|index| current[**index] == Target::Reserved).count();
    Claim::Ordinary { from_reserved: from_reserved as u64 }
}

/// The first blocks of some runs.
fn first_blocks(runs: &[Run], mut blocks: u64) -> Vec<Run> {
    let mut first = Vec::with_capacity(runs.len());
    for run in runs {
        let part = run.blocks.min(blocks);
        if part > 0 {
            first.push(Run { pbn: run.pbn, blocks: part });
        }
        blocks -= part;
    }
    assert_eq!(blocks, 0, "the runs hold so many blocks");
    first
}
