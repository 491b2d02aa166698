//! Online repair: how a block is marked bad, how its content gets a replacement, and how it comes back into use. All of
//! it runs on the worker's thread. Reads and writes only report what they noticed.
//!
//! While a file refers to a bad block, it is never overwritten, shared or freed: a record holds one reference to it. A
//! replacement is any sound block with the same content. The record refers to it, and reads go there. Each step is one
//! publication, so that a crash leaves the state before it or after it.

use std::sync::atomic::Ordering::Relaxed;

use crate::base::part;
use crate::commit::checkpoint::Commits;
use crate::commit::commit_group::GroupCommitter;
use crate::damage::replicas::Replicas;
use crate::device::buffer::PooledBuf;
use crate::format::damage_records::BadRecord;
use crate::format::fragment::is_fragment;
use crate::format::group_bytes::GroupBytes;
use crate::format::page::{BAD, Entry, REPLICA};
use crate::hints::levels::HintLevels;
use crate::known_damage::notices::Noticed;
use crate::place::free_blocks::{Claim, FreeBlocks};
use crate::read::cache::NOBODY;
use crate::read::device::DataReader;
use crate::space::allocator::Run;
use crate::state::flag_change::FlagChange;
use crate::state::loading::Metadata;
use crate::state::published::{Incref, Plan, StoredBlock};
use crate::write::publish::Publisher;
use crate::{BLOCK_BYTES, Error, Pbn, Result};

/// The unit in which devices lose data.
const SECTOR_BYTES: usize = 512;
/// Content that replaces a block without a fingerprint must have the block's tag and agree with at least this many of
/// its 8 sectors: equal tags alone do not prove equal content.
const AGREEING_SECTORS_MIN: usize = 4;
const _: () = assert!(AGREEING_SECTORS_MIN * SECTOR_BYTES <= BLOCK_BYTES);

/// The result of a second look at a block.
pub enum Look {
    /// It has the right content.
    Sound,
    /// It has the wrong content, or (None) cannot be read.
    Damaged(Option<PooledBuf>),
    /// The device cannot even read its label, so the block's state is unknown.
    Unknown,
}

part! {
    /// Repairs blocks while the volume is in use.
    pub struct Repairs {
        base: damage, state, staging, hasher, stats, hints, read_cache;
        metadata: Metadata, data_reader: DataReader, free_blocks: FreeBlocks, publisher: Publisher,
        hint_levels: HintLevels, commits: Commits, groups: GroupCommitter, replicas: Replicas
    }
}

impl Repairs {
    /// Handles everything that was noticed.
    pub fn repair_noticed(&self) -> Result<()> {
        if self.publisher.usable().is_err() {
            // The volume has reported why, and repairs nothing before it is opened again.
            return Ok(());
        }
        let Noticed { suspects, offers } = self.damage.take_noticed();
        let orphaned = std::mem::take(&mut self.state.lock().orphaned);
        if suspects.is_empty() && offers.is_empty() && orphaned.is_empty() {
            return Ok(());
        }
        // From here on no visited block is reused.
        let _pin = self.metadata.pin();
        let orphaned = orphaned.into_iter().map(|pbn| self.replicas.drop_orphaned_replica(pbn));
        let suspects = suspects.into_iter().map(|pbn| self.look_at_suspect(pbn).map(drop));
        let offers = offers.into_iter().map(|(bad, holder)| self.give_replacement(bad, holder).map(drop));
        // A failure of one does not affect the others. A notice without a result comes again with the next read or
        // scrub.
        let failed: Vec<Error> = orphaned.chain(suspects).chain(offers).filter_map(Result::err).collect();
        failed.into_iter().next().map_or(Ok(()), Err)
    }

    /// Checks a block once more, alone, and marks it if it is damaged. True: it is bad from now on. The caller has it
    /// pinned.
    pub fn look_at_suspect(&self, pbn: Pbn) -> Result<bool> {
        let Some(entry) = self.metadata.known_entry(pbn) else { return Ok(false) };
        if entry.count == 0 || entry.is_bad() || entry.is_pack() || self.staging.get(pbn).is_some() {
            return Ok(false);
        }
        match self.look_closely(pbn, &entry) {
            Look::Sound | Look::Unknown => Ok(false),
            Look::Damaged(remains) => self.mark_bad(pbn, &entry, remains.as_deref()),
        }
    }

    /// Reads a block of the data area again. A device that cannot even read its label gives no information about its
    /// blocks.
    pub fn look_closely(&self, pbn: Pbn, entry: &Entry) -> Look {
        let mut block = self.data_reader.take_buffer(BLOCK_BYTES);
        match self.data_reader.read_device(pbn, &mut block) {
            Ok(()) if self.hasher.is_sound(entry, &block) => Look::Sound,
            Ok(()) => Look::Damaged(Some(block)),
            Err(_) if self.data_reader.read_device(Pbn(0), &mut block).is_err() => Look::Unknown,
            Err(_) => Look::Damaged(None),
        }
    }

    /// Marks a block as bad, with a replacement if its content is found. False: it was freed meanwhile.
    fn mark_bad(&self, pbn: Pbn, entry: &Entry, remains: Option<&[u8]>) -> Result<bool> {
        let count = entry.count;
        assert!(count > 0 && !entry.is_bad(), "block {pbn} with {count} references cannot become bad");
        self.publisher.room().wait_for_background_room();
        let tag = entry.tag;
        let flags = vec![FlagChange { pbn, set: BAD, clear: !(REPLICA | BAD) }];
        let mut plan = Plan { record_increfs: vec![Incref { pbn, tag }], flags, ..Plan::default() };
        let mut runs = Vec::new();
        let replacement = match self.replicas.take_over_replica(pbn, entry, &mut plan)? {
            Some(copy) => Some(copy),
            // A replica is not read while its block is sound.
            None if entry.flags & REPLICA != 0 => None,
            None => match self.holder_elsewhere(pbn, entry, remains)? {
                Some(holder) => {
                    plan.record_increfs.push(Incref { pbn: holder, tag });
                    Some(holder)
                }
                None => self.store_cached(pbn, entry, &mut plan, &mut runs),
            },
        };
        plan.bad = vec![(pbn, Some(BadRecord { replacement, tag }))];
        if !self.replicas.publish_repair(plan, &runs)? {
            return Ok(false);
        }
        self.hint_levels.update_hints(
            &[(tag, pbn)],
            &replacement.map(|replacement| (tag, replacement)).into_iter().collect::<Vec<_>>(),
        );
        self.stats.counters.blocks_bad.fetch_add(1, Relaxed);
        self.stats.counters.blocks_repaired.fetch_add(u64::from(replacement.is_some()), Relaxed);
        match replacement {
            Some(replacement) => {
                log::warn!("block {pbn} of the data area is damaged; block {replacement} replaces it")
            }
            None => log::error!(
                "block {pbn} of the data area is damaged; run oncefs scrub to see which files it belongs to"
            ),
        }
        Ok(true)
    }

    /// A sound block with the content of a damaged one, found by the hints of both levels.
    fn holder_elsewhere(&self, pbn: Pbn, entry: &Entry, remains: Option<&[u8]>) -> Result<Option<Pbn>> {
        let mut hints = self.hints.peek(&[entry.tag]);
        hints.extend(self.hints.look_up_on_disk(&[entry.tag], &self.stats.counters));
        let mut holders: Vec<Pbn> = hints.into_iter().map(|(_, pbn)| pbn).collect();
        holders.sort_unstable();
        holders.dedup();
        for holder in holders.into_iter().filter(|holder| *holder != pbn) {
            if self.holds_content_of(holder, entry, remains)? {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// Whether a block is sound, may be referred to, and has the lost content of a damaged block.
    fn holds_content_of(&self, holder: Pbn, lost: &Entry, remains: Option<&[u8]>) -> Result<bool> {
        let Some(entry) = self.metadata.known_entry(holder).filter(|entry| entry.serves(lost.tag)) else {
            return Ok(false);
        };
        let mut block = self.data_reader.take_buffer(BLOCK_BYTES);
        match self.staging.get(holder) {
            Some(staged) => block.copy_from_slice(&staged),
            None if self.data_reader.read_device(holder, &mut block).is_err() => return Ok(false),
            None => {}
        }
        let agrees = |remains: &[u8]| {
            let pairs = remains.chunks(SECTOR_BYTES).zip(block.chunks(SECTOR_BYTES));
            pairs.filter(|(a, b)| a == b).count() >= AGREEING_SECTORS_MIN
        };
        let is_same = match lost.fingerprint {
            Some(known) => known == self.hasher.fingerprint_of(&block),
            None => remains.is_some_and(agrees),
        };
        Ok(is_same && self.hasher.is_sound(&entry, &block))
    }

    /// Places a damaged block's content from the read cache. None: the cache lacks it, or there is no space.
    fn store_cached(&self, pbn: Pbn, entry: &Entry, plan: &mut Plan, runs: &mut Vec<Run>) -> Option<Pbn> {
        let mut block = self.data_reader.take_buffer(BLOCK_BYTES);
        self.read_cache.get(pbn, NOBODY, &mut block).filter(|_| self.hasher.is_sound(entry, &block))?;
        let placed = self.free_blocks.allocate(1, Claim::Ordinary { from_reserved: 0 }).ok()?;
        if self.free_blocks.write_run(placed[0], &mut std::iter::once(&block[..])).is_err() {
            self.free_blocks.give_back(&placed);
            return None;
        }
        assert!(placed.len() == 1 && placed[0].blocks == 1, "{placed:?} was allocated for one block");
        let replacement = placed[0].pbn;
        let fingerprint = Some(self.hasher.fingerprint_of(&block));
        plan.record_stores.push(StoredBlock { pbn: replacement, tag: entry.tag, fingerprint });
        *runs = placed;
        Some(replacement)
    }

    /// Gives a lost block a replacement. False: the other block has different content. The caller has it pinned.
    fn give_replacement(&self, pbn: Pbn, holder: Pbn) -> Result<bool> {
        assert_ne!(pbn, holder, "a damaged block does not replace itself");
        let record = self.state.lock().bad.get(pbn);
        let Some(record) = record.filter(|record| record.replacement.is_none()) else { return Ok(false) };
        let Some(entry) = self.metadata.known_entry(pbn).filter(|entry| entry.is_bad() && entry.flags & REPLICA == 0)
        else {
            return Ok(false);
        };
        let mut remains = self.data_reader.take_buffer(BLOCK_BYTES);
        let remains = self.data_reader.read_device(pbn, &mut remains).is_ok().then_some(&*remains);
        if !self.holds_content_of(holder, &entry, remains)? {
            return Ok(false);
        }
        self.publisher.room().wait_for_background_room();
        let record_increfs = vec![Incref { pbn: holder, tag: entry.tag }];
        let bad = vec![(pbn, Some(BadRecord { replacement: Some(holder), ..record }))];
        let is_repaired = self.replicas.publish_repair(Plan { record_increfs, bad, ..Plan::default() }, &[])?;
        if is_repaired {
            self.stats.counters.blocks_repaired.fetch_add(1, Relaxed);
            log::info!("the damaged block {pbn} of the data area is repaired: block {holder} replaces it");
        }
        Ok(is_repaired)
    }

    /// Checks a bad block again: it may be sound after all, or its content may be found. The caller has it pinned.
    pub fn look_at_bad(&self, pbn: Pbn, record: BadRecord) -> Result<()> {
        let Some(entry) = self.metadata.known_entry(pbn).filter(Entry::is_bad) else { return Ok(()) };
        match self.look_closely(pbn, &entry) {
            Look::Unknown => Ok(()),
            Look::Sound => self.restore(pbn, &entry, record),
            Look::Damaged(remains) if record.replacement.is_none() && entry.count > 1 => {
                match self.holder_elsewhere(pbn, &entry, remains.as_deref())? {
                    Some(holder) => self.give_replacement(pbn, holder).map(drop),
                    None => Ok(()),
                }
            }
            Look::Damaged(_) => Ok(()),
        }
    }

    /// Takes a bad block back into use. If only its record refers to it, it becomes free.
    fn restore(&self, pbn: Pbn, entry: &Entry, record: BadRecord) -> Result<()> {
        assert!(entry.is_bad(), "block {pbn} with {} references is not bad", entry.count);
        self.publisher.room().wait_for_background_room();
        let flags = vec![FlagChange::clear(pbn, BAD)];
        let record_decrefs = std::iter::once(pbn).chain(record.replacement).collect();
        self.publisher.claim_and_apply(
            GroupBytes::SMALL,
            Plan { flags, record_decrefs, bad: vec![(pbn, None)], ..Plan::default() },
        )?;
        self.stats.counters.blocks_restored.fetch_add(1, Relaxed);
        log::info!("block {pbn} of the data area is sound again and back in use");
        Ok(())
    }

    /// Writes new bytes to bad blocks that no file refers to any more. Blocks that keep them become free.
    pub fn try_retired(&self) -> Result<()> {
        let all = self.state.lock().bad.list();
        let mut retired = Vec::new();
        for (pbn, record) in all {
            match self.metadata.known_entry(pbn) {
                Some(entry) if entry.is_bad() && entry.count == 1 => retired.push((pbn, entry, record)),
                _ => {}
            }
        }
        if retired.is_empty() {
            return Ok(());
        }
        // The release of the last reference has to be durable before the block is overwritten.
        self.commits.commit()?;
        if !self.groups.are_earlier_readers_gone() {
            // A reader may have seen a map that still named the block. The next scrub tries again.
            return Ok(());
        }
        for (pbn, entry, record) in retired {
            let done = if self.takes_new_bytes(pbn) {
                self.restore(pbn, &entry, record)
            } else if let Some(replacement) = record.replacement {
                let bad = vec![(pbn, Some(BadRecord { replacement: None, ..record }))];
                self.publisher.claim_and_apply(
                    GroupBytes::SMALL,
                    Plan { record_decrefs: vec![replacement], bad, ..Plan::default() },
                )
            } else {
                Ok(())
            };
            self.damage.pass_over_contradiction(done)?;
        }
        Ok(())
    }

    /// Never a fragment: other fragments lie in the same blocks.
    fn takes_new_bytes(&self, pbn: Pbn) -> bool {
        if is_fragment(pbn) {
            return false;
        }
        let mut written = self.data_reader.take_buffer(BLOCK_BYTES);
        let mut read = self.data_reader.take_buffer(BLOCK_BYTES);
        [0xA5, 0x5A].into_iter().all(|pattern: u8| {
            written.chunks_exact_mut(8).zip(pbn.0..).for_each(|(word, n)| {
                word.copy_from_slice(&(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(pattern)).to_le_bytes());
            });
            let run = Run { pbn, blocks: 1 };
            let is_written = self.free_blocks.write_run(run, &mut std::iter::once(&written[..])).is_ok();
            is_written && self.data_reader.read_device(pbn, &mut read).is_ok() && read[..] == written[..]
        })
    }

    /// After opening: reads the records of bad blocks.
    pub fn restore_bad(&self) -> Result<()> {
        let (from, to) = crate::format::keys::all_bad();
        for (key, value) in self.metadata.scan(&from, &to, usize::MAX)? {
            match (crate::format::keys::parse_bad(&key), BadRecord::decode(&value)) {
                (Some(pbn), Some(record)) => self.state.lock().bad.set(pbn, Some(record)),
                _ => log::error!("{}", Error::corrupt("the record of a bad block", "its checksum does not match")),
            }
        }
        let (known, lost) = {
            let state = self.state.lock();
            self.damage.follow(&state.bad);
            (state.bad.len(), state.bad.list().iter().filter(|(_, record)| record.replacement.is_none()).count())
        };
        if known > 0 {
            log::warn!(
                "{known} blocks of the data area are known to be damaged, and the content of {lost} of them is lost; \
                 oncefs scrub --status names the files"
            );
        }
        Ok(())
    }
}
