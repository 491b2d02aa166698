//! Scrub: reads every live block in the order of pbns and compares it with its tag and its fingerprint, in turns of the
//! worker. Damaged blocks are marked (`repair`), and blocks with very many references get a replica (`replicas`).
//!
//! A pass: known bad blocks are checked again and stale replicas dropped; the data area is read; files move from bad
//! blocks to their replacements; bad blocks without a reference are tried with new bytes. A record holds its position.
//! After an unmount or a crash it continues at most `SAVE_EVERY` before that.
//!
//! A pass ends whatever is damaged. Blocks with damaged table entries are passed over and named in the status. So is
//! everything that a contradiction keeps from being repaired. The pass waits only for a device that returns nothing at
//! all, and for a volume that takes no changes.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_dedup::{Conditions, Turn};

use crate::base::part;
use crate::damage::affected_files::{AffectedFiles, FIRST_LEAF};
use crate::damage::repair::Repairs;
use crate::damage::replicas::{Replicas, SoundBlock};
use crate::format::damage_records::ScrubRecord;
use crate::format::fragment::{FIRST_NUMBER, is_fragment, is_number};
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::{self, LeafKey};
use crate::format::page::{Entry, PAGE_ENTRIES, page_of};
use crate::known_damage::scrub_progress::{ScrubCommand, ScrubPhase, ScrubStatus};
use crate::kv::FilesFound;
use crate::read::device::DataReader;
use crate::read::parts::{Part, cut_spans, runs_into};
use crate::state::loading::Metadata;
use crate::state::published::Plan;
use crate::write::publish::Publisher;
use crate::{BLOCK_BYTES, Error, Pbn, Result};

/// Most blocks checked in one turn: one request of 1 MiB.
const WINDOW_BLOCKS: u64 = 256;
/// Known bad blocks checked again in one turn.
const BAD_PORTION: usize = 16;
/// How often the position is saved.
const SAVE_EVERY: Duration = Duration::from_secs(2);
/// After a failure the scrub tries again after this time.
const SLEEP_AFTER_FAILURE: Duration = Duration::from_secs(5);
/// The longest sleep between turns.
const SLEEP_MAX: Duration = Duration::from_millis(500);

part! {
    /// Reads every live block, and hands what is damaged to the repair.
    pub struct Scrubber {
        base: damage, tuning, health, signals, foreground, state, stored, staging, hasher, stats;
        metadata: Metadata, data_reader: DataReader, publisher: Publisher, repairs: Repairs, replicas: Replicas,
        affected_files: AffectedFiles
    }
}

impl Scrubber {
    /// After opening: an unfinished pass continues where it was.
    pub fn restore_scrub(&self) -> Result<()> {
        let Some(value) = self.metadata.get(&keys::scrub())? else { return Ok(()) };
        match ScrubRecord::decode(&value) {
            Some(record) => {
                if record.unknown > 0 {
                    log::warn!(
                        "the block table is damaged: the last scrub passed over {} blocks; unmount and run oncefs fsck -y",
                        record.unknown
                    );
                }
                self.damage.scrub().restore(record, &self.tuning.settings());
            }
            None => log::warn!("the record of the last scrub is damaged; the next one starts over"),
        }
        Ok(())
    }

    /// See [`crate::Store::scrub`].
    pub fn command_scrub(&self, command: ScrubCommand) -> Result<()> {
        self.health.usable()?;
        self.damage.scrub().command(command, &self.tuning.settings())?;
        if matches!(command, ScrubCommand::Start { .. }) {
            self.damage.note_record_files(FilesFound::default());
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
            (all.len(), all.iter().filter(|(_, record)| record.replacement.is_none()).count(), state.totals.used)
        };
        ScrubStatus {
            blocks_bad: bad as u64,
            blocks_lost: lost as u64,
            unknown: self.damage.table().unknown_blocks(),
            passed_over: self.damage.passed_over(),
            record_files: self.damage.record_files(),
            ..self.damage.scrub().status(used)
        }
    }

    /// Reports requests of programs to the scrub's pace, as to the worker's.
    pub fn tell_scrub(&self, requests: u64, time: Duration, beside_work: bool) {
        self.damage.scrub().foreground(requests, time, beside_work);
    }

    /// One turn of the scrub, if it is due. Returns when the next one may be.
    pub fn scrub_turn(&self, conditions: &Conditions) -> Duration {
        let blocks_max = match self.damage.scrub().next_turn(conditions) {
            None => return SLEEP_MAX,
            Some(Turn::Wait { time, why }) => {
                self.damage.scrub().show(&why.to_string());
                return time.min(SLEEP_MAX);
            }
            Some(Turn::Run { blocks_max }) => blocks_max.min(WINDOW_BLOCKS),
        };
        let began = self.foreground.now();
        let blocks = match self.scrub_some(blocks_max) {
            Ok(blocks) => blocks,
            Err(error) => {
                // A volume that became read-only has reported it already.
                if !matches!(error, Error::ReadOnly(_)) {
                    log::warn!("the scrub failed and will try again: {error}");
                }
                self.damage.scrub().show(&format!("waiting to try again: {error}"));
                return SLEEP_AFTER_FAILURE;
            }
        };
        let now = self.foreground.now();
        self.damage.scrub().ran(blocks, now - began, &Conditions { now, ..*conditions });
        self.save_scrub_when_due(now);
        Duration::ZERO
    }

    /// A part of the pass. Returns how many blocks were read for it.
    pub fn scrub_some(&self, blocks_max: u64) -> Result<u64> {
        self.health.usable()?;
        match self.damage.scrub().phase() {
            ScrubPhase::Known(from) => self.scrub_known(from),
            ScrubPhase::Replicas => self.scrub_replicas(),
            ScrubPhase::Data => self.scrub_data(blocks_max),
            ScrubPhase::Replacements(from) => self.scrub_replacements(from),
        }
    }

    /// A part of the current pass, or of a new one. True: the pass is not complete.
    #[cfg(any(test, feature = "testing"))]
    pub fn scrub_step(&self, blocks_max: u64) -> Result<bool> {
        if !self.damage.scrub().is_running() {
            self.command_scrub(ScrubCommand::Start { rate: None })?;
        }
        self.scrub_some(blocks_max)?;
        Ok(self.damage.scrub().is_running())
    }

    fn scrub_known(&self, from: Pbn) -> Result<u64> {
        self.damage.scrub().show("looking at known bad blocks again");
        let _pin = self.metadata.pin();
        let mut known = self.state.lock().bad.list();
        known.retain(|(pbn, _)| *pbn >= from);
        known.truncate(BAD_PORTION);
        for (pbn, record) in &known {
            self.damage.pass_over_contradiction(self.repairs.look_at_bad(*pbn, *record))?;
        }
        match known.last().filter(|_| known.len() == BAD_PORTION) {
            Some((last, _)) => self.damage.scrub().enter(ScrubPhase::Known(last.plus(1))),
            None => self.damage.scrub().enter_replicas(keys::all_replicas().0),
        }
        Ok(known.len() as u64)
    }

    fn scrub_replicas(&self) -> Result<u64> {
        let scrub = self.damage.scrub();
        match self.replicas.drop_stale_replicas(&scrub.replicas_from())? {
            Some(next) => scrub.go_on_with_replicas(next),
            None => scrub.enter(ScrubPhase::Data),
        }
        Ok(0)
    }

    fn scrub_data(&self, blocks_max: u64) -> Result<u64> {
        let scrub = self.damage.scrub();
        scrub.show("reading");
        let Some((first, end)) = self.next_window(scrub.next_block(), blocks_max)? else {
            scrub.enter(ScrubPhase::Replacements(FIRST_LEAF));
            return Ok(0);
        };
        let (read, found) = match self.scrub_window(first, end) {
            // Scrubs its blocks one by one: few of them stay out.
            Err(Error::Corrupt { .. }) if end.0 - first.0 > 1 => self.scrub_apart(first, end)?,
            other => other?,
        };
        scrub.passed(end, read, found);
        Ok(read)
    }

    /// Scrubs a window block by block, because something besides its blocks' content is damaged.
    fn scrub_apart(&self, first: Pbn, end: Pbn) -> Result<(u64, u64)> {
        let (mut read, mut found) = (0, 0);
        for pbn in (first.0..end.0).map(Pbn) {
            if let Some((one, bad)) = self.damage.pass_over_contradiction(self.scrub_window(pbn, pbn.plus(1)))? {
                (read, found) = (read + one, found + bad);
            }
        }
        Ok((read, found))
    }

    fn scrub_replacements(&self, from: LeafKey) -> Result<u64> {
        self.damage.scrub().show("moving files away from bad blocks");
        if (from != FIRST_LEAF || self.affected_files.must_move_to_replacement())
            && let Some(next) = self.affected_files.move_to_replacement(from)?
        {
            self.damage.scrub().enter(ScrubPhase::Replacements(next));
            return Ok(0);
        }
        self.repairs.try_retired()?;
        // Before the pass is finished, because a waiting user is told the result.
        self.scrub_record_files();
        let unknown = self.damage.table().unknown_blocks().blocks;
        let ScrubRecord { blocks, found, .. } = self.damage.scrub().finish(unknown);
        log::info!("scrub finished: {blocks} blocks read, {found} of them are bad");
        if unknown > 0 {
            log::error!(
                "the scrub passed over {unknown} blocks, whose entries in the block table are damaged; unmount and run \
                 oncefs fsck -y"
            );
        }
        self.save_scrub()?;
        Ok(0)
    }

    /// A pass ends with the record files and their copies: a bad one is restored from the other.
    fn scrub_record_files(&self) {
        match self.stored.check_record_files(true) {
            Ok(found) => {
                found.mended.iter().for_each(|what| log::warn!("{what}"));
                found.left.iter().for_each(|what| log::error!("{what}"));
                self.damage.note_record_files(found);
            }
            Err(error) => {
                self.health.tell("comparing the record files with their copies", &error);
                let left = vec![format!("the record files could not be compared with their copies: {error}")];
                self.damage.note_record_files(FilesFound { left, ..FilesFound::default() });
            }
        }
    }

    /// The next run of at most `blocks_max` blocks that may have table entries, from a pbn on: first the data area,
    /// then fragments. None: no more follow. Parts of the table that were never written are skipped.
    fn next_window(&self, from: Pbn, blocks_max: u64) -> Result<Option<(Pbn, Pbn)>> {
        let data_end = Pbn(self.state.lock().totals.data.0);
        let fragments_end = Pbn(self.stored.fragment_pages_end()? * PAGE_ENTRIES);
        let of_blocks = match from < data_end {
            true => self.next_window_before(data_end, from.max(Pbn(1)), blocks_max)?,
            false => None,
        };
        match of_blocks {
            None if fragments_end.0 > FIRST_NUMBER => {
                self.next_window_before(fragments_end, from.max(Pbn(FIRST_NUMBER)), blocks_max)
            }
            other => Ok(other),
        }
    }

    /// The same up to `data_end`, among pages of one device.
    fn next_window_before(&self, data_end: Pbn, from: Pbn, blocks_max: u64) -> Result<Option<(Pbn, Pbn)>> {
        if from >= data_end {
            return Ok(None);
        }
        let data_end = data_end.0;
        let page = page_of(from);
        let on_disk = self.stored.next_written_page(page)?;
        let in_memory = self.state.lock().table.unwritten_from(page);
        let Some(next) = [on_disk, in_memory].into_iter().flatten().min() else { return Ok(None) };
        let first = from.0.max(next * PAGE_ENTRIES);
        let end = data_end.min(first + blocks_max.max(1));
        Ok((first < data_end).then_some((Pbn(first), Pbn(end))))
    }

    /// Reads the live blocks of a window. Returns how many there are, and how many of them are damaged.
    fn scrub_window(&self, first: Pbn, end: Pbn) -> Result<(u64, u64)> {
        assert!(Pbn(0) < first && first < end, "the window from {first} to {end}");
        // No live block is reused while it is checked.
        let _pin = self.metadata.pin();
        let live = self.live_within(first, end);
        let mut bytes = self.data_reader.take_buffer(live.len() * BLOCK_BYTES);
        let mut suspects = self.read_live(&live, &mut bytes)?;
        let read: Vec<(Pbn, Entry, &[u8])> = live
            .iter()
            .zip(bytes.chunks_exact(BLOCK_BYTES))
            .filter(|((pbn, _), _)| suspects.binary_search(pbn).is_err())
            .map(|((pbn, entry), bytes)| (*pbn, *entry, bytes))
            .collect();
        suspects.extend(self.scrub_read(&read)?);
        assert!(suspects.len() <= live.len(), "{} suspects among {} live blocks", suspects.len(), live.len());
        if !suspects.is_empty() {
            // A device that cannot even read its label gives no information about its blocks.
            self.data_reader.read_device(Pbn(0), &mut self.data_reader.take_buffer(BLOCK_BYTES))?;
        }
        let mut found = 0;
        for pbn in suspects {
            found += u64::from(self.repairs.look_at_suspect(pbn)?);
        }
        self.stats.counters.blocks_scrubbed.fetch_add(live.len() as u64, Relaxed);
        Ok((live.len() as u64, found))
    }

    /// Live blocks whose content is in the data area, except those known to be bad and those with damaged table
    /// entries.
    fn live_within(&self, first: Pbn, end: Pbn) -> Vec<(Pbn, Entry)> {
        let pages = || (page_of(first)..=page_of(Pbn(end.0 - 1))).collect();
        let mut live: Vec<(Pbn, Entry)> = self.metadata.with_readable_pages(pages, |pages| {
            let entry = |pbn: Pbn| Some((pbn, pages.entry(pbn)?));
            (first.0..end.0)
                .map(Pbn)
                .filter(|pbn| !is_fragment(*pbn) || is_number(*pbn))
                .filter_map(entry)
                .filter(|(_, entry)| entry.count > 0 && !entry.is_bad() && !entry.is_pack())
                .collect()
        });
        live.retain(|(pbn, _)| self.staging.get(*pbn).is_none());
        live
    }

    /// Reads ascending blocks into adjacent places of `bytes`, past the read cache, which says nothing about the
    /// medium. Returns all blocks of requests that failed.
    fn read_live(&self, live: &[(Pbn, Entry)], bytes: &mut [u8]) -> Result<Vec<Pbn>> {
        let mut parts = runs_into(live, bytes);
        let mut spans = cut_spans(&mut parts);
        let results = self.data_reader.read_as_they_are(&mut spans)?;
        let failed = spans.iter().zip(results).filter(|(_, result)| result.is_err());
        Ok(failed.flat_map(|(span, _)| span.iter().flat_map(Part::pbns)).collect())
    }

    /// Compares blocks with their entries, and returns those that differ. The others get missing fingerprints, so that
    /// later bit rot can be repaired, and replicas.
    fn scrub_read(&self, read: &[(Pbn, Entry, &[u8])]) -> Result<Vec<Pbn>> {
        let blocks: Vec<&[u8]> = read.iter().map(|(_, _, bytes)| *bytes).collect();
        let mut fingerprints = Vec::with_capacity(blocks.len());
        self.hasher.fingerprints(&blocks, &mut fingerprints);
        assert_eq!(fingerprints.len(), read.len(), "fingerprints of {} blocks", read.len());
        let (mut suspects, mut sound) = (Vec::new(), Vec::with_capacity(read.len()));
        for (&(pbn, entry, bytes), fingerprint) in read.iter().zip(fingerprints) {
            let is_known = entry.fingerprint.is_none_or(|known| known == fingerprint);
            match is_known && self.hasher.tag(bytes) == entry.tag {
                true => sound.push(SoundBlock { pbn, entry, fingerprint, bytes }),
                false => suspects.push(pbn),
            }
        }
        assert_eq!(sound.len() + suspects.len(), read.len(), "{} blocks are sound", sound.len());
        let completed: Vec<_> = sound
            .iter()
            .filter(|block| block.entry.fingerprint.is_none())
            .map(|block| (block.pbn, block.fingerprint))
            .collect();
        if !completed.is_empty() {
            self.publisher.room().wait_for_background_room();
            self.stats.counters.blocks_fingerprinted.fetch_add(completed.len() as u64, Relaxed);
            self.publisher.claim_and_apply(
                GroupBytes::of_blocks(completed.len() as u64),
                Plan { fingerprints: completed, ..Plan::default() },
            )?;
        }
        self.replicas.make_replicas(&sound)?;
        Ok(suspects)
    }

    fn save_scrub_when_due(&self, now: Duration) {
        if self.damage.scrub().is_save_due(now, SAVE_EVERY)
            && let Err(error) = self.save_scrub()
        {
            log::debug!("the scrub's position was not saved: {error}");
        }
    }

    /// Publishes the scrub's progress. It becomes durable with the current group, and not before the marks that the
    /// scrub set.
    pub fn save_scrub(&self) -> Result<()> {
        let Some(record) = self.damage.scrub().record_to_save(self.foreground.now()) else { return Ok(()) };
        let mut plan = Plan::default();
        plan.change.put(keys::scrub(), record.encode());
        self.publisher.claim_and_apply(GroupBytes::SMALL, plan)
    }
}
