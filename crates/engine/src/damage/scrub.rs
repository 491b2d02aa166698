//! Scrub: every live block is read in the order of pbns and compared with its tag and its fingerprint, in turns of the
//! worker. What is damaged is marked (`mend`), what many files refer to is copied (`copies`).
//!
//! A pass: known bad blocks are looked at again and stale copies dropped; the data area is read; files move from bad
//! blocks to their homes; bad blocks that nobody refers to any more are tried with new bytes. Where it is stands in a
//! record, so that it goes on after an unmount or a crash, at most `SAVE_EVERY` before where it was.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_dedup::{Conditions, Pace, Progress, Turn};

use crate::core::Core;
use crate::damage::replicas::SoundBlock;
use crate::damage::scrub_progress::{ScrubCommand, ScrubPart, ScrubStatus, scrub_pace_rule};
use crate::device::buffer::PooledBuf;
use crate::format::keys::{self, ShardKey};
use crate::format::page::{Entry, PAGE_ENTRIES, page_of};
use crate::format::rot::{ScrubRecord, ScrubState};
use crate::state::published::Plan;
use crate::{BLOCK_BYTES, Error, MapId, Pbn, Result};

/// Blocks looked at in one turn at most: one request of 1 MiB.
const WINDOW_BLOCKS: u64 = 256;
/// Live blocks with at most this gap between them are read in one request.
const GAP_BLOCKS_MAX: u64 = 8;
/// Known bad blocks looked at again in one turn.
const BAD_PORTION: usize = 16;
/// How often the position is saved.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// After a failure the scrub tries again so much later.
const SLEEP_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The longest sleep between turns.
const SLEEP_MAX: Duration = Duration::from_millis(500);

impl Core {
    /// After opening: a pass that was under way goes on where it was.
    pub fn restore_scrub(&self) -> Result<()> {
        let Some(value) = self.get(&keys::scrub())? else { return Ok(()) };
        match ScrubRecord::decode(&value) {
            Some(record) => {
                let rule = scrub_pace_rule(&self.tuning.settings.lock(), record.rate);
                let mut scrub = self.damage.scrub.lock();
                scrub.pace = Pace::new(rule);
                scrub.record = record;
                scrub.part = if record.next.0 > 0 { ScrubPart::Data } else { ScrubPart::Known(Pbn(0)) };
            }
            None => log::warn!("how far the last scrub was is not known: its record is damaged"),
        }
        Ok(())
    }

    /// See [`crate::Store::scrub`].
    pub fn command_scrub(&self, command: ScrubCommand) -> Result<()> {
        self.health.usable()?;
        let settings = self.tuning.settings.lock().clone();
        {
            let mut scrub = self.damage.scrub.lock();
            let state = scrub.record.state;
            match command {
                ScrubCommand::Start { rate } => {
                    scrub.record.rate = rate.unwrap_or(scrub.record.rate);
                    let rule = scrub_pace_rule(&settings, scrub.record.rate);
                    scrub.pace.set_rule(rule).map_err(|error| Error::Invalid(error.to_string()))?;
                    match state {
                        ScrubState::Running => {}
                        ScrubState::Paused => scrub.record.state = ScrubState::Running,
                        _ => scrub.begin(),
                    }
                }
                ScrubCommand::Pause if state == ScrubState::Running => scrub.record.state = ScrubState::Paused,
                ScrubCommand::Resume if state == ScrubState::Paused => scrub.record.state = ScrubState::Running,
                ScrubCommand::Stop if matches!(state, ScrubState::Running | ScrubState::Paused) => {
                    scrub.record.state = ScrubState::Stopped;
                }
                ScrubCommand::Pause | ScrubCommand::Resume | ScrubCommand::Stop => {
                    return Err(Error::Invalid("no scrub is under way".to_owned()));
                }
            }
        }
        self.save_scrub()?;
        self.signals.wake_worker();
        Ok(())
    }

    /// See [`crate::Store::scrub_status`].
    pub fn scrub_status(&self) -> ScrubStatus {
        let (bad, lost, used) = {
            let state = self.state.lock();
            let all = state.bad.list();
            (all.len(), all.iter().filter(|(_, record)| record.replacement.is_none()).count(), state.sums.used)
        };
        let scrub = self.damage.scrub.lock();
        let record = scrub.record;
        let blocks = match record.state {
            ScrubState::Running | ScrubState::Paused => used.0.saturating_sub(1).max(record.blocks),
            _ => record.blocks,
        };
        let progress = Progress { done: record.blocks, all: blocks, spent: Duration::from_micros(record.spent) };
        ScrubStatus {
            state: record.state.name().to_owned(),
            doing: if scrub.is_running() { scrub.doing.clone() } else { String::new() },
            blocks_done: record.blocks,
            blocks,
            eta_seconds: progress.eta().filter(|_| scrub.is_running()).map(|eta| eta.as_secs()),
            bytes_per_second_max: record.rate,
            blocks_bad_found: record.found,
            passes: record.passes,
            blocks_bad: bad as u64,
            blocks_lost: lost as u64,
        }
    }

    /// Told of requests of programs, as the worker's pace is.
    pub fn tell_scrub(&self, requests: u64, time: Duration, beside_work: bool) {
        self.damage.scrub.lock().pace.foreground(requests, time, beside_work);
    }

    /// One turn of the scrub, if it is due. Gives when the next one may be.
    pub fn scrub_turn(&self, conditions: &Conditions) -> Duration {
        let turn = {
            let mut scrub = self.damage.scrub.lock();
            if !scrub.is_running() {
                scrub.counted_at = None;
                return SLEEP_MAX;
            }
            // A pass that waits takes its time too.
            let counted_at = scrub.counted_at.replace(conditions.now).unwrap_or(conditions.now);
            scrub.record.spent += (conditions.now - counted_at).as_micros() as u64;
            scrub.pace.next(conditions)
        };
        let blocks_max = match turn {
            Turn::Wait { time, why } => {
                self.damage.scrub.lock().doing = why.to_string();
                return time.min(SLEEP_MAX);
            }
            Turn::Run { blocks_max } => blocks_max.min(WINDOW_BLOCKS),
        };
        let began = self.foreground.now();
        let blocks = match self.scrub_some(blocks_max) {
            Ok(blocks) => blocks,
            Err(error) => {
                log::warn!("the scrub does not get on: {error}");
                self.damage.scrub.lock().doing = format!("waiting to try again: {error}");
                return SLEEP_AFTER_FAILURE;
            }
        };
        let now = self.foreground.now();
        self.damage.scrub.lock().pace.ran(blocks, now - began, &Conditions { now, ..*conditions });
        self.save_scrub_when_due(now);
        Duration::ZERO
    }

    /// A part of the pass. Gives how many blocks were read for it.
    pub fn scrub_some(&self, blocks_max: u64) -> Result<u64> {
        self.health.usable()?;
        let part = self.damage.scrub.lock().part;
        match part {
            ScrubPart::Known(from) => self.scrub_known(from),
            ScrubPart::Replicas => self.scrub_replicas(),
            ScrubPart::Data => self.scrub_data(blocks_max),
            ScrubPart::Replacements(from) => self.scrub_replacements(from),
        }
    }

    /// A part of the pass that is under way, or of a new one. True: it is not through.
    pub fn scrub_step(&self, blocks_max: u64) -> Result<bool> {
        if !self.damage.scrub.lock().is_running() {
            self.command_scrub(ScrubCommand::Start { rate: None })?;
        }
        self.scrub_some(blocks_max)?;
        Ok(self.damage.scrub.lock().is_running())
    }

    fn say(&self, doing: &str) {
        let mut scrub = self.damage.scrub.lock();
        if scrub.doing != doing {
            scrub.doing = doing.to_owned();
        }
    }

    fn scrub_known(&self, from: Pbn) -> Result<u64> {
        self.say("looking at known bad blocks again");
        let _pin = self.space.pins.pin();
        let mut known = self.state.lock().bad.list();
        known.retain(|(pbn, _)| *pbn >= from);
        known.truncate(BAD_PORTION);
        known.iter().try_for_each(|(pbn, record)| self.look_at_bad(*pbn, *record))?;
        let mut scrub = self.damage.scrub.lock();
        match known.last().filter(|_| known.len() == BAD_PORTION) {
            Some((last, _)) => scrub.part = ScrubPart::Known(last.plus(1)),
            None => {
                (scrub.replicas_from, _) = keys::all_replicas();
                scrub.part = ScrubPart::Replicas;
            }
        }
        Ok(known.len() as u64)
    }

    fn scrub_replicas(&self) -> Result<u64> {
        let from = self.damage.scrub.lock().replicas_from.clone();
        let next = self.drop_stale_replicas(&from)?;
        let mut scrub = self.damage.scrub.lock();
        match next {
            Some(next) => scrub.replicas_from = next,
            None => scrub.part = ScrubPart::Data,
        }
        Ok(0)
    }

    fn scrub_data(&self, blocks_max: u64) -> Result<u64> {
        self.say("reading");
        let from = self.damage.scrub.lock().record.next;
        let Some((first, end)) = self.next_window(from, blocks_max)? else {
            self.damage.scrub.lock().part = ScrubPart::Replacements(ShardKey { map: MapId(0), shard: 0 });
            return Ok(0);
        };
        let (read, found) = self.scrub_window(first, end)?;
        let mut scrub = self.damage.scrub.lock();
        scrub.record.next = end;
        scrub.record.blocks += read;
        scrub.record.found += found;
        Ok(read)
    }

    fn scrub_replacements(&self, from: ShardKey) -> Result<u64> {
        self.say("moving files away from bad blocks");
        if self.must_move_to_replacement()?
            && let Some(next) = self.move_to_replacement(from)?
        {
            self.damage.scrub.lock().part = ScrubPart::Replacements(next);
            return Ok(0);
        }
        self.try_retired()?;
        {
            let mut scrub = self.damage.scrub.lock();
            scrub.record.state = ScrubState::Finished;
            scrub.record.passes += 1;
            let ScrubRecord { blocks, found, .. } = scrub.record;
            log::info!("scrub: {blocks} blocks were read, {found} of them are bad");
        }
        self.save_scrub()?;
        Ok(0)
    }

    /// The next stretch of at most `blocks_max` blocks that the table may say something of, from a pbn on. None: the
    /// data area ends. Parts of the table that were never written are skipped.
    fn next_window(&self, from: Pbn, blocks_max: u64) -> Result<Option<(Pbn, Pbn)>> {
        let from = Pbn(from.0.max(1));
        let data_end = self.state.lock().sums.data.0;
        let page = page_of(from);
        let on_disk = self.stored.table.next_data(page * crate::format::page::PAGE_BYTES as u64);
        let on_disk = on_disk.map_err(|e| Error::io("scanning the block table", e))?;
        let on_disk = on_disk.map(|at| at / crate::format::page::PAGE_BYTES as u64);
        let in_memory = self.state.lock().table.unwritten_from(page);
        let Some(next) = [on_disk, in_memory].into_iter().flatten().min() else { return Ok(None) };
        let first = from.0.max(next * PAGE_ENTRIES);
        let end = data_end.min(first + blocks_max.max(1));
        Ok((first < data_end).then_some((Pbn(first), Pbn(end))))
    }

    /// Reads the live blocks of a window. Gives how many these are, and how many of them are damaged.
    fn scrub_window(&self, first: Pbn, end: Pbn) -> Result<(u64, u64)> {
        // Of the blocks that are live now, none is reused while it is looked at.
        let _pin = self.space.pins.pin();
        let live = self.live_within(first, end)?;
        let (mut suspects, mut read) = (Vec::new(), Vec::with_capacity(live.len()));
        let is_near = |a: &(Pbn, Entry), b: &(Pbn, Entry)| b.0.0 <= a.0.0 + 1 + GAP_BLOCKS_MAX;
        for run in live.chunk_by(is_near) {
            match self.read_whole_run(run) {
                Some(bytes) => read.push((run, bytes)),
                None => suspects.extend(run.iter().map(|(pbn, _)| *pbn)),
            }
        }
        for (run, bytes) in &read {
            suspects.extend(self.scrub_run(run, bytes)?);
        }
        if !suspects.is_empty() {
            // A device that gives nothing any more tells nothing of its blocks.
            self.read_device(Pbn(0), &mut self.data.pool.take(BLOCK_BYTES))?;
        }
        let mut found = 0;
        for pbn in suspects {
            found += u64::from(self.look_at_suspect(pbn)?);
        }
        self.stats.counters.blocks_scrubbed.fetch_add(live.len() as u64, Relaxed);
        Ok((live.len() as u64, found))
    }

    /// Live blocks whose content is in the data area, those known to be bad left out.
    fn live_within(&self, first: Pbn, end: Pbn) -> Result<Vec<(Pbn, Entry)>> {
        let pages = || (page_of(first)..=page_of(Pbn(end.0 - 1))).collect();
        let mut live: Vec<(Pbn, Entry)> = self.with_pages(pages, |state| {
            let entry = |pbn: Pbn| (pbn, state.table.entry(pbn).expect("its page is in memory"));
            (first.0..end.0).map(Pbn).map(entry).filter(|(_, entry)| entry.count > 0 && !entry.is_bad()).collect()
        })?;
        live.retain(|(pbn, _)| self.staging.get(*pbn).is_none());
        Ok(live)
    }

    /// Reads neighbours and the gaps between them past the read cache, which knows nothing of the medium.
    fn read_whole_run(&self, run: &[(Pbn, Entry)]) -> Option<PooledBuf> {
        let blocks = run[run.len() - 1].0.0 + 1 - run[0].0.0;
        let mut bytes = self.data.pool.take(blocks as usize * BLOCK_BYTES);
        self.read_device(run[0].0, &mut bytes).is_ok().then_some(bytes)
    }

    /// Compares blocks with what the table says of them, and gives those that are otherwise. The others get the
    /// fingerprints that they have not got yet, so that rot that comes later can be healed, and second copies.
    fn scrub_run(&self, run: &[(Pbn, Entry)], bytes: &[u8]) -> Result<Vec<Pbn>> {
        let content = |pbn: Pbn| &bytes[(pbn.0 - run[0].0.0) as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        let blocks: Vec<&[u8]> = run.iter().map(|(pbn, _)| content(*pbn)).collect();
        let mut fingerprints = Vec::with_capacity(blocks.len());
        self.hasher.fingerprints(&blocks, &mut fingerprints);
        let (mut suspects, mut sound) = (Vec::new(), Vec::with_capacity(run.len()));
        for (((pbn, entry), bytes), fingerprint) in run.iter().zip(blocks).zip(fingerprints) {
            let is_known = entry.fingerprint.is_none_or(|known| known == fingerprint);
            match is_known && self.hasher.tag(bytes) == entry.tag {
                true => sound.push(SoundBlock { pbn: *pbn, entry: *entry, fingerprint, bytes }),
                false => suspects.push(*pbn),
            }
        }
        let completed: Vec<_> = sound
            .iter()
            .filter(|block| block.entry.fingerprint.is_none())
            .map(|block| (block.pbn, block.fingerprint))
            .collect();
        if !completed.is_empty() {
            self.wait_for_background_room();
            self.stats.counters.blocks_fingerprinted.fetch_add(completed.len() as u64, Relaxed);
            self.apply_certain(Plan { fingerprints: completed, ..Plan::default() })?;
        }
        self.make_replicas(&sound)?;
        Ok(suspects)
    }

    fn save_scrub_when_due(&self, now: Duration) {
        let is_due = now.saturating_sub(self.damage.scrub.lock().saved_at) >= SAVE_EVERY;
        if is_due && let Err(error) = self.save_scrub() {
            log::debug!("how far the scrub is was not saved: {error}");
        }
    }

    /// Publishes how far the scrub is: durable with the current group, before which no mark of it is lost.
    pub fn save_scrub(&self) -> Result<()> {
        let record = {
            let mut scrub = self.damage.scrub.lock();
            scrub.saved_at = self.foreground.now();
            scrub.record
        };
        if record.state == ScrubState::Never {
            return Ok(());
        }
        let mut plan = Plan::default();
        plan.change.put(keys::scrub(), record.encode());
        self.apply_certain(plan)
    }
}
