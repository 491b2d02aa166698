//! Commit: makes the current group durable, then makes the blocks that it freed reusable.
//!
//! The order, and what a crash leaves: (1) the group is taken; (2) its data is in the data area and flushed,
//! or is small and rides in the record; (3) the record is written and flushed. A crash before the end of (3)
//! leaves the group before; after it, this group. (4) Freed blocks wait for readers, then are free.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::base::part;
use crate::commit::change_room::ChangeRoom;
use crate::commit::log::{CommitUnderWay, Mark};
use crate::commit::log_room::RECORD_SHARE;
use crate::format::ops::{Op, OpWriter};
use crate::format::record::Totals;
use crate::place::write_out::BlockWriter;
use crate::space::allocator::Run;
use crate::state::group::Group;
use crate::state::maps::LeafMap;
use crate::state::published::Waiting;
use crate::state::records::RecordMap;
use crate::state::table::Pages;
use crate::{BLOCK_BYTES, Pbn, Result, Stage};

/// Above this share of the log a checkpoint is requested.
pub const CHECKPOINT_FULLNESS: f64 = 0.5;
/// Above this share a commit becomes a checkpoint. The rest has room for the largest group, which crosses the bound,
/// for the checkpoint's own group, and for the space that one of them wastes at the ring's end.
pub const FULLNESS_MAX: f64 = 0.6;
const _: () = assert!(1.0 - FULLNESS_MAX > 3.0 / RECORD_SHARE as f64);

/// On a host with little room a checkpoint starts while it still fits into the space set aside there.
const SHORT_DIRTY_BYTES_MAX: u64 = 4 << 20;

/// All changes up to a point in the log.
pub struct Frozen {
    /// The objects.
    pub layers: Layers,
    /// The point.
    pub mark: Mark,
    /// The volume's totals there.
    pub totals: Totals,
}

/// Changed objects, set apart.
pub struct Layers {
    /// Records.
    pub records: Arc<RecordMap>,
    /// Parts of maps.
    pub leaves: Arc<LeafMap>,
    /// Pages of the block table.
    pub pages: Arc<Pages>,
    /// Blocks whose data rides in the log.
    pub logged: Vec<Pbn>,
}

/// A group on its way to the log.
struct Taken {
    group: Group,
    records: RecordMap,
    totals: Totals,
    layers: Option<Layers>,
}

part! {
    /// Makes groups durable in the log, and frees the blocks that durable groups released.
    pub struct GroupCommitter {
        base: health, stats, journal, maps, space, state, data, staging, read_cache, signals;
        block_writer: BlockWriter, change_room: ChangeRoom
    }
}

impl GroupCommitter {
    /// Commits. False: the log is so full that only a checkpoint may follow. This is checked with the right to append,
    /// because other threads commit meanwhile and a single group may cross the bound.
    pub fn commit_unless_full(&self) -> Result<bool> {
        let log = self.journal.begin_commit();
        if log.fullness() > FULLNESS_MAX {
            return Ok(false);
        }
        self.commit_to(log, false)?;
        Ok(true)
    }

    /// Asks for a checkpoint if the log will still be too full after the running one.
    pub fn ask_for_checkpoint_if_due(&self) {
        let dirty_bytes = self.state.lock().dirty_bytes_left();
        let is_much = dirty_bytes > self.journal.dirty_bytes_max()
            || dirty_bytes > SHORT_DIRTY_BYTES_MAX && self.space.is_host_short();
        if self.journal.fullness_left() > CHECKPOINT_FULLNESS || is_much {
            self.signals.want_checkpoint();
        }
    }

    /// When the current group's first and last changes came.
    pub fn group_times(&self) -> (Option<Instant>, Option<Instant>) {
        let state = self.state.lock();
        (state.group.began, state.group.last)
    }

    /// Commits the current group. For a checkpoint (`freeze`) it sets apart all changes up to here, even if the group
    /// is empty.
    pub fn commit_group(&self, freeze: bool) -> Result<Option<Frozen>> {
        self.commit_to(self.journal.begin_commit(), freeze)
    }

    fn commit_to(&self, mut log: CommitUnderWay<'_>, freeze: bool) -> Result<Option<Frozen>> {
        self.health.usable()?;
        let began = Instant::now();
        let Taken { group, records, totals, layers } = self.take_group(freeze, log.next_sequence());
        self.change_room.group_taken();
        if !group.is_empty() {
            let staged = group.staged.len() as u64;
            self.write_group(&mut log, group, records, totals, freeze).inspect_err(|error| self.health.fail(error))?;
            self.stats.record(Stage::Commit, staged, began.elapsed());
        }
        let frozen = layers.map(|layers| Frozen { layers, mark: log.begin_checkpoint(), totals });
        drop(log);
        assert_eq!(frozen.is_some(), freeze, "what a checkpoint writes is set apart for it alone");
        self.release_waiting();
        Ok(frozen)
    }

    fn take_group(&self, freeze: bool, sequence: u64) -> Taken {
        let _whole = self.journal.close_gate();
        let mut state = self.state.lock();
        let records = state.records.end_group();
        let mut group = std::mem::take(&mut state.group);
        self.journal.room().note_group(state.group_bytes());
        let runs = std::mem::take(&mut group.freed);
        drop_freed(&mut group.staged, &runs);
        if !runs.is_empty() {
            state.waiting.push_back(Waiting { sequence, epoch: self.space.end_epoch(), runs });
        }
        state.totals.next_map = self.maps.next_id();
        let layers = freeze.then(|| Layers {
            records: state.records.freeze(),
            leaves: state.leaves.freeze(),
            pages: state.table.freeze(),
            logged: state.freeze_logged(),
        });
        let before = state.durable_sequence;
        assert_eq!(sequence, before + 1, "group {sequence} is taken, {before} is the last durable one");
        Taken { group, records, totals: state.totals, layers }
    }

    /// Steps (2) and (3).
    fn write_group(
        &self,
        log: &mut CommitUnderWay<'_>,
        mut group: Group,
        records: RecordMap,
        totals: Totals,
        place_all: bool,
    ) -> Result<()> {
        // A thread that took staged blocks before the group was taken finishes writing them first.
        self.data.wait_for_write_outs();
        // If one of these writes failed, blocks of this group are only in memory.
        self.health.usable()?;
        let staged = std::mem::take(&mut group.staged);
        let is_small = staged.len() * BLOCK_BYTES <= self.journal.bounds().riding_bytes_max();
        let rides = is_small && !place_all && !self.data.is_dirty();
        let mut ops = group.into_ops();
        for (key, value) in &records {
            ops.push(&match value {
                Some(value) => Op::Put { key, value },
                None => Op::Delete { key },
            });
        }
        let riders = if rides { self.push_data(&mut ops, &staged) } else { Vec::new() };
        if !rides {
            self.block_writer.write_out(staged)?;
        }
        self.flush_data()?;
        // A host that writes every block to a new place needs room for the log too.
        let (sequence, bytes) = self.space.ballast().retry_releasing_reserve(|| log.append(ops.bytes(), totals))?;
        self.stats.counters.log_bytes_written.fetch_add(bytes, Relaxed);
        self.stats.counters.log_flushes.fetch_add(1, Relaxed);
        self.stats.counters.groups_committed.fetch_add(1, Relaxed);
        let mut state = self.state.lock();
        assert_eq!(sequence, state.durable_sequence + 1, "the durable group, and the one before");
        state.durable_sequence = sequence;
        state.logged.extend(riders);
        Ok(())
    }

    /// Adds the content of staged blocks to the record. They stay in memory until a checkpoint places them.
    fn push_data(&self, ops: &mut OpWriter, staged: &[Pbn]) -> Vec<Pbn> {
        let riding_bytes_max = self.journal.bounds().riding_bytes_max();
        assert!(staged.len() * BLOCK_BYTES <= riding_bytes_max, "{} blocks ride in a record", staged.len());
        let mut riders = Vec::with_capacity(staged.len());
        for &pbn in staged {
            if let Some(bytes) = self.staging.get(pbn) {
                ops.push(&Op::Data { pbn, bytes: &bytes });
                riders.push(pbn);
            }
        }
        self.stats.counters.log_data_bytes.fetch_add((riders.len() * BLOCK_BYTES) as u64, Relaxed);
        riders
    }

    /// Makes everything written to the data area before this call durable.
    pub fn flush_data(&self) -> Result<()> {
        if self.data.flush_if_dirty(&self.health)? {
            self.stats.counters.data_flushes.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Frees blocks that durable groups released and that no reader can see any more. Blocks whose data rides in the
    /// log wait for its trim.
    pub fn release_waiting(&self) {
        while self.space.release(|| self.state.lock().take_released(), |run| self.forget(run)) {}
    }

    /// Whether every reader that began before now is done. The caller holds no pin and has committed, because a block
    /// that waits for its commit counts as being read.
    pub fn are_earlier_readers_gone(&self) -> bool {
        {
            let mut state = self.state.lock();
            // Queued like the epoch of every release, because later ones rely on the order.
            let (sequence, epoch) = (state.durable_sequence, self.space.end_epoch());
            state.waiting.push_back(Waiting { sequence, epoch, runs: Vec::new() });
        }
        self.release_waiting();
        self.state.lock().waiting.is_empty()
    }

    /// Drops the cached content of blocks that become free: no reader sees them, and no cache may serve them any more.
    pub fn forget(&self, run: Run) {
        self.staging.remove_run(run.pbn, run.blocks);
        run.pbns().for_each(|pbn| self.read_cache.remove(pbn));
    }
}

/// Drops staged blocks that the group itself freed again: they need no write. Readers that still see them find them in
/// memory until they are released.
fn drop_freed(staged: &mut Vec<Pbn>, freed: &[Run]) {
    staged.sort_unstable();
    for run in freed {
        // Few blocks are staged, and a deleted file may have freed millions. So this looks only at the few under the
        // publish lock.
        let first = staged.partition_point(|pbn| *pbn < run.pbn);
        let end = staged.partition_point(|pbn| *pbn < run.end());
        staged.drain(first..end);
    }
}
