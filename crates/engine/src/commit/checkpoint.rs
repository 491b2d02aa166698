//! Checkpoint: brings changes that only the log and memory hold to their place, then trims the log.
//!
//! The order, and what a crash leaves: everything up to a group is durable in the log before it is set apart; then (1)
//! data that rode in the log is placed and flushed, (2) table pages are written and flushed, (3) records and leaves are
//! written and flushed, and the checkpoint record after all others. A crash before the end of (3) leaves the old
//! checkpoint with any of the new records, and redo from the log repeats the partial work: it sets each record and each
//! leaf to what the new checkpoint has, whatever it finds. A crash after it leaves the new one.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use crate::base::part;
use crate::commit::change_room::ChangeRoom;
use crate::commit::commit_group::{CHECKPOINT_FULLNESS, FULLNESS_MAX, Frozen, GroupCommitter, Layers};
use crate::format::checkpoint::Checkpoint;
use crate::format::fragment::FIRST_PAGE;
use crate::format::keys;
use crate::format::page::{PAGE_BYTES, page_of};
use crate::kv::Put;
use crate::place::write_out::BlockWriter;
use crate::state::loading::Metadata;
use crate::state::table::Pages;
use crate::sync::MutexGuard;
use crate::{Error, Pbn, Result};

/// Objects with redo from a crash are loaded in portions of this many.
const REDO_PORTION: usize = 256;
/// Records are handed to the sorted state in batches of about this size.
const BATCH_BYTES: usize = 1 << 20;
/// Table pages are written in requests of at most this many.
const REQUEST_PAGES: usize = 256;

/// Host space that a checkpoint takes beside twice the changes in memory.
const CHECKPOINT_BYTES: u64 = 8 << 20;
/// How often, and for how long in total, the record store is asked whether it noticed that space is free again.
const NOTICES_AFTER: Duration = Duration::from_millis(500);
const NOTICES_MAX: u32 = 24;

part! {
    /// Commits, and checkpoints when the log or memory needs it.
    pub struct Commits {
        base: health, journal, space, state, stored, stats;
        metadata: Metadata, groups: GroupCommitter, block_writer: BlockWriter, change_room: ChangeRoom
    }
}

impl Commits {
    /// Commits and checkpoints. A full host gets the ballast before the volume fails.
    ///
    /// A read error here would keep the log from ever being trimmed. So the open group becomes durable, as far as the
    /// log has room, and the volume takes no more changes. A crash then leaves the old checkpoint and the log.
    pub fn checkpoint(&self) -> Result<()> {
        self.change_room.tell_failure(self.checkpoint_holding(&self.journal.hold_checkpoints()))
    }

    /// Like `checkpoint`, for a caller that holds off checkpoints.
    pub fn checkpoint_holding(&self, held: &MutexGuard<'_, ()>) -> Result<()> {
        // A device that failed for a moment gets a second try.
        if let Err(error) = self.read_for_checkpoint().or_else(|_| self.read_for_checkpoint()) {
            self.groups.commit_group(false)?;
            self.health.fail(&error);
            return Err(error);
        }
        self.write_checkpoint(held)
    }

    /// Like `checkpoint`, for a volume under repair by fsck: if something cannot be read, it only commits.
    pub fn checkpoint_what_is_whole(&self) -> Result<()> {
        let held = self.journal.hold_checkpoints();
        match self.read_for_checkpoint() {
            Ok(()) => self.write_checkpoint(&held),
            Err(error) => {
                log::warn!("the log cannot be emptied: {error}");
                self.groups.commit_group(false).map(drop)
            }
        }
    }

    /// Applies all redo of the log and stamps the table. A stamp in a damaged sector stays as it is: a table without a
    /// stamp counts as belonging to the volume.
    fn read_for_checkpoint(&self) -> Result<()> {
        self.redo_all()?;
        let mut state = self.metadata.lock_with_pages(&self.state, || vec![0])?;
        if !state.table.is_damaged(Pbn(0)) {
            state.table.edit(0).stamp(self.journal.volume_id());
        }
        state.table.shrink();
        Ok(())
    }

    /// Writes a checkpoint. The caller holds off other checkpoints.
    fn write_checkpoint(&self, _held: &MutexGuard<'_, ()>) -> Result<()> {
        let dirty = self.state.lock().dirty_bytes();
        let Some(frozen) = self.groups.commit_group(true)? else { return Ok(()) };
        let (opened_at, reached) = (self.journal.opened_at(), frozen.mark.sequence);
        assert!(opened_at <= reached, "a checkpoint of group {reached}, the volume was opened at {opened_at}");
        self.space.ballast().make_room(2 * dirty + CHECKPOINT_BYTES);
        let result = match self.write_with_ballast(&frozen) {
            Err(Error::Corrupt { .. }) if self.stored.restore_records() => self.write_with_ballast(&frozen),
            other => other,
        };
        result.inspect_err(|error| self.health.fail(error))?;
        self.finish(frozen);
        Ok(())
    }

    /// Writes a checkpoint, with the ballast's space if the host is full. The record store notices freed space only
    /// after some seconds, and repeats its first answer until then.
    fn write_with_ballast(&self, frozen: &Frozen) -> Result<()> {
        let mut tries_left = 0;
        loop {
            match self.write_frozen(frozen) {
                Err(error) if self.health.failure().is_some() => return Err(error),
                Err(Error::NoSpace) if self.space.ballast().let_go_some() => tries_left = NOTICES_MAX,
                Err(Error::NoSpace) if tries_left > 0 => tries_left -= 1,
                Err(Error::NoSpace) => return Err(self.space.ballast().host_full()),
                other => return other,
            }
            thread::sleep(NOTICES_AFTER);
        }
    }

    /// Applies the log's redo to objects that were not read since a crash.
    pub fn redo_all(&self) -> Result<()> {
        loop {
            let (pages, leaves) = {
                let state = self.state.lock();
                (state.table.pages_with_redo(REDO_PORTION), state.leaves.with_redo(REDO_PORTION))
            };
            if pages.is_empty() && leaves.is_empty() {
                return Ok(());
            }
            let mut pages = pages;
            pages.sort_unstable();
            self.metadata.load_pages(&pages)?;
            // Without the map's lock: a leaf with redo stays in memory until the checkpoint that calls this.
            leaves.iter().try_for_each(|key| self.metadata.leaf(*key).map(drop))?;
        }
    }

    fn write_frozen(&self, frozen: &Frozen) -> Result<()> {
        // Blocks freed meanwhile are not worth writing. They stay in memory until they are released.
        let Layers { logged, pages, .. } = &frozen.layers;
        let is_live = |pbn: &Pbn| pages.get(&page_of(*pbn)).is_none_or(|page| page.count(*pbn) > 0);
        self.block_writer.write_out(logged.iter().copied().filter(is_live).collect())?;
        self.groups.flush_data()?;
        self.write_pages(&frozen.layers.pages, frozen.mark.sequence)?;
        self.write_records(frozen)
    }

    fn write_pages(&self, pages: &Pages, sequence: u64) -> Result<()> {
        if pages.is_empty() {
            return Ok(());
        }
        let mut all: Vec<u64> = pages.keys().copied().collect();
        all.sort_unstable();
        // A reader may still look up where a fragment lay, until its number is used again.
        let may_go = |number: &u64| *number < FIRST_PAGE && pages[number].is_free(*number);
        let (free, mut numbers): (Vec<u64>, Vec<u64>) = all.into_iter().partition(may_go);
        numbers.extend(free.into_iter().filter(|number| !self.punch_page(*number)));
        numbers.sort_unstable();
        for run in numbers.chunk_by(|a, b| a + 1 == *b) {
            for part in run.chunks(REQUEST_PAGES) {
                let bytes: Vec<u8> = part.iter().flat_map(|number| pages[number].sealed(*number, sequence)).collect();
                assert_eq!(bytes.len(), part.len() * PAGE_BYTES, "{} sealed pages from {} on", part.len(), part[0]);
                self.stored.write_pages(part[0], &bytes)?;
                self.stats.counters.table_bytes_written.fetch_add(bytes.len() as u64, Relaxed);
            }
        }
        self.stored.flush_pages()
    }

    /// Makes a page without a live entry a hole, which reads like such a page: it costs no write, and its space goes
    /// back to the host. If a crash comes before the checkpoint's end, zeros are found where the old checkpoint has
    /// entries, and redo of the log ends with all of them free. False: the host does not support it.
    fn punch_page(&self, number: u64) -> bool {
        self.stored.punch_page(number)
    }

    fn write_records(&self, frozen: &Frozen) -> Result<()> {
        let records = frozen.layers.records.iter().map(|(key, value)| (key.clone(), value.clone()));
        let leaves = frozen
            .layers
            .leaves
            .iter()
            .map(|(key, leaf)| (keys::leaf(*key), (!leaf.is_empty()).then(|| leaf.encode(*key))));
        let mut batch: Vec<Put> = Vec::new();
        let mut batch_bytes = 0;
        for (key, value) in records.chain(leaves).chain(self.advice()) {
            batch_bytes += key.len() + value.as_ref().map_or(0, Vec::len);
            batch.push((key, value));
            if batch_bytes >= BATCH_BYTES {
                self.write_batch(std::mem::take(&mut batch), std::mem::take(&mut batch_bytes))?;
            }
        }
        if !batch.is_empty() {
            self.write_batch(batch, batch_bytes)?;
        }
        let checkpoint = Checkpoint { sequence: frozen.mark.sequence, log_at: frozen.mark.head, totals: frozen.totals };
        self.stored.seal_records((keys::checkpoint(), Some(checkpoint.encode(self.journal.volume_id()))))
    }

    fn write_batch(&self, batch: Vec<Put>, bytes: usize) -> Result<()> {
        self.stats.counters.record_bytes_written.fetch_add(bytes as u64, Relaxed);
        self.stored.write_records(batch)
    }

    /// Free counts of regions, for the next opening. They are advice, so no crash can make them wrong enough to matter.
    fn advice(&self) -> Vec<Put> {
        let Some(free) = self.space.changed_advice() else { return Vec::new() };
        keys::advice(&free)
    }

    fn finish(&self, frozen: Frozen) {
        let Frozen { layers: Layers { logged, pages, .. }, mark, .. } = frozen;
        drop(pages);
        self.journal.trim(mark);
        let trimmed = || Some(self.state.lock().trimmed(mark.sequence, &logged));
        self.space.release(trimmed, |run| self.groups.forget(run));
        self.stats.counters.checkpoints.fetch_add(1, Relaxed);
        self.change_room.checkpoint_ended();
    }

    /// Makes everything published so far durable.
    pub fn commit(&self) -> Result<()> {
        self.change_room.tell_failure(self.commit_with_room())
    }

    /// Commits, or checkpoints if the log needs it.
    fn commit_with_room(&self) -> Result<()> {
        loop {
            if self.journal.fullness() > FULLNESS_MAX {
                let held = self.journal.hold_checkpoints();
                // A checkpoint that was under way may have trimmed the log. Then a second one is not needed.
                if self.journal.fullness() > FULLNESS_MAX {
                    return self.checkpoint_holding(&held);
                }
            }
            if self.groups.commit_unless_full()? {
                self.groups.ask_for_checkpoint_if_due();
                return Ok(());
            }
        }
    }

    /// Commits, and leaves the commits of the next moments no checkpoint to wait for: the one under way ends, and
    /// another follows if the log, or what memory holds of changes, has come half the way to the next one.
    pub fn settle(&self) -> Result<()> {
        let held = self.journal.hold_checkpoints();
        let is_much = self.journal.fullness() > CHECKPOINT_FULLNESS / 2.0
            || self.state.lock().dirty_bytes() > self.journal.dirty_bytes_max() / 2;
        if is_much {
            return self.change_room.tell_failure(self.checkpoint_holding(&held));
        }
        drop(held);
        self.commit()
    }

    /// Like `commit`, for a volume under repair by fsck.
    pub fn commit_what_is_whole(&self) -> Result<()> {
        if self.journal.fullness() > FULLNESS_MAX {
            return self.checkpoint_what_is_whole();
        }
        self.groups.commit_group(false).map(drop)
    }
}
