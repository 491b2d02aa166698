//! Repair: what an audit finds and what has one right answer is mended, by ordinary commit groups.
//!
//! It goes in rounds of an audit and the mends of its lowest rank: references first, then counts, which are right
//! only when all references are, then totals. Every mend says what is afterwards, by itself and whatever the others
//! do, so a crash in the middle leaves a volume that the next repair goes on with. No content is written, none is
//! dropped, and what would be a guess stays as it is (`docs/decisions/0013-refuse-rather-than-guess.md`).
//!
//! No background thread may run during a repair: they rely on the counts that are mended here.

use std::time::Instant;

use crate::core::Core;
use crate::device::buffer::AlignedBuf;
use crate::format::keys;
use crate::format::ops::Op;
use crate::format::page::{BAD, Entry, page_of};
use crate::format::rot::ScrubRecord;
use crate::format::shard::{Extent, SHARD_BLOCKS, Target};
use crate::fsck::check::fault::{Fault, Remedy, Sum};
use crate::fsck::check::{CheckReport, Progress};
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Pbn, Result};

/// A repair ends after so many rounds: three mend everything that one audit reports.
const ROUNDS_MAX: usize = 1_000;
/// Mends described one by one.
const MENDED_MAX: usize = 100;

/// What a repair did, and what it left.
#[derive(Debug, Default)]
pub struct Fixed {
    /// What was mended, the first hundred as they were found.
    pub mended: Vec<String>,
    /// All that was mended.
    pub fixed_count: u64,
    /// Parts of maps that became holes because what they named is outside the data area, and other losses.
    pub lost: Vec<Fault>,
    /// The last audit, without data.
    pub left: CheckReport,
}

impl Fixed {
    fn note(&mut self, fault: &Fault) {
        self.fixed_count += 1;
        let described = self.mended.len() as u64;
        assert!(described < self.fixed_count, "{described} of {} mends are described", self.fixed_count);
        if self.mended.len() < MENDED_MAX {
            self.mended.push(fault.to_string());
            if matches!(fault, Fault::Outside { .. }) {
                self.lost.push(fault.clone());
            }
        }
    }
}

impl Core {
    /// Mends what `limit` allows, and makes it and the log durable in its place.
    pub fn repair(&self, limit: Remedy, progress: Progress<'_>) -> Result<Fixed> {
        let mut repaired = Fixed::default();
        for _ in 0..ROUNDS_MAX {
            repaired.left = self.audit(false, progress)?;
            if !self.repair_once(limit, &mut repaired)? {
                break;
            }
        }
        self.checkpoint_what_is_whole()?;
        Ok(repaired)
    }

    /// One round. False: there was nothing to be mended.
    fn repair_once(&self, limit: Remedy, repaired: &mut Fixed) -> Result<bool> {
        let faults = std::mem::take(&mut repaired.left.faults);
        let may = |fault: &&Fault| fault.remedy() <= limit && fault.remedy() != Remedy::None;
        let rank = faults.iter().filter(may).map(Fault::rank).min();
        let mut is_changed = false;
        for fault in faults.iter().filter(may).filter(|fault| Some(fault.rank()) == rank) {
            if self.mend(fault)? {
                is_changed = true;
                repaired.note(fault);
            }
            self.settle()?;
        }
        repaired.left.faults = faults;
        self.commit_what_is_whole()?;
        Ok(is_changed)
    }

    /// Commits a group that has become large, and checkpoints when much is in memory: for work without the threads
    /// that do so.
    pub fn settle(&self) -> Result<()> {
        let (group, dirty) = {
            let state = self.state.lock();
            (state.group_bytes(), state.dirty_bytes())
        };
        if dirty > self.journal.dirty_bytes_max() {
            return self.checkpoint_what_is_whole();
        }
        if group > self.journal.bounds().group_bytes_max() / 2 { self.commit_what_is_whole() } else { Ok(()) }
    }

    /// Mends one fault. False: something that is not mended prevents it.
    fn mend(&self, fault: &Fault) -> Result<bool> {
        let mended = match fault {
            Fault::Outside { key, extent } => self.make_hole(*key, extent),
            Fault::Count { pbn, blocks, stored, found, .. } => {
                (pbn.0..pbn.0 + blocks).map(Pbn).try_for_each(|pbn| match stored {
                    0 => self.restore_entry(pbn, *found),
                    _ => self.set_count(pbn, *found),
                })
            }
            Fault::Sum { sum, found, .. } => {
                self.set_sum(*sum, Blocks(*found));
                Ok(())
            }
            Fault::Page { number, .. } => self.empty_damaged_sectors(*number).and_then(|()| self.forget_unknown()),
            Fault::MapNumber { map, .. } => {
                self.maps.skip_to(MapId(map.0 + 1));
                self.state.lock().group.touch(Instant::now());
                Ok(())
            }
            Fault::Key { key } => {
                let mut state = self.state.lock();
                state.group.touch(Instant::now());
                state.records.put(key.clone(), None);
                Ok(())
            }
            _ => return Ok(false),
        };
        match mended {
            Ok(()) => Ok(true),
            Err(Error::Corrupt { .. } | Error::Io { .. }) if self.health.failure().is_none() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A part of a map that names nothing becomes a hole.
    fn make_hole(&self, key: crate::format::keys::ShardKey, extent: &Extent) -> Result<()> {
        let mut shard = (*self.shard(key)?).clone();
        shard.set(Extent { target: Target::Hole, ..*extent });
        let lbn = Lbn(key.shard * SHARD_BLOCKS + u64::from(extent.first));
        let mut state = self.state.lock();
        state.group.touch(Instant::now());
        state.group.push(&Op::Map { map: key.map, lbn, blocks: extent.blocks, target: Target::Hole });
        state.shards.set(key, shard.into());
        Ok(())
    }

    /// The count of a block becomes the number of its references. Without any it is free once that is durable.
    fn set_count(&self, pbn: Pbn, count: u32) -> Result<()> {
        self.with_pages(
            || vec![page_of(pbn)],
            |state| {
                state.group.touch(Instant::now());
                state.table.edit(page_of(pbn)).set_count(pbn, count);
                state.group.push(&Op::Count { pbn, blocks: 1, count });
                if count == 0 {
                    state.group.free(pbn);
                }
            },
        )
    }

    /// A block that has references and no entry gets one. Its tag is that of what is there; if the old entry says
    /// the same, it was right all along and its fingerprint is too. One that is known to be bad stays so: its record has the
    /// tag that it should have.
    fn restore_entry(&self, pbn: Pbn, count: u32) -> Result<()> {
        let bad = self.state.lock().bad.get(pbn);
        let tag = match (bad, self.staging.get(pbn)) {
            (Some(record), _) => record.tag,
            (None, Some(block)) => self.hasher.tag(&block),
            (None, None) => {
                let mut block = AlignedBuf::new(BLOCK_BYTES);
                self.data.read(pbn, &mut block)?;
                self.hasher.tag(&block)
            }
        };
        let flags = if bad.is_some() { BAD } else { 0 };
        self.with_pages(
            || vec![page_of(pbn)],
            |state| {
                let page = state.table.edit(page_of(pbn));
                let fingerprint = Some(page.entry(pbn)).filter(|old| old.tag == tag).and_then(|old| old.fingerprint);
                page.set(pbn, &Entry { tag, fingerprint, count, flags });
                state.group.touch(Instant::now());
                state.group.push(&Op::Store { pbn, tag, fingerprint });
                state.group.push(&Op::Count { pbn, blocks: 1, count });
                if flags != 0 {
                    state.group.push(&Op::Flags { pbn, flags });
                }
            },
        )
    }

    /// Sectors that cannot be read become empty ones, with what the log says of them. The next round counts their
    /// references.
    fn empty_damaged_sectors(&self, number: u64) -> Result<()> {
        let mut page = self.stored.read_pages(number, 1)?.remove(0).1;
        page.empty_damaged();
        let mut state = self.state.lock();
        // One that is not in memory gets what the log says of it by this.
        let generation = state.table.generation();
        state.table.admit(number, page, generation);
        state.table.edit(number).empty_damaged();
        state.group.touch(Instant::now());
        Ok(())
    }

    /// The scrub's record tells the next mount no more of damage that is mended. The next scrub says what is left.
    fn forget_unknown(&self) -> Result<()> {
        let record = self.get(&keys::scrub())?.as_deref().and_then(ScrubRecord::decode);
        let Some(record) = record.filter(|record| record.unknown > 0) else { return Ok(()) };
        let mut state = self.state.lock();
        state.group.touch(Instant::now());
        state.records.put(keys::scrub(), Some(ScrubRecord { unknown: 0, ..record }.encode()));
        Ok(())
    }

    /// A sum becomes what was found.
    pub fn set_sum(&self, sum: Sum, found: Blocks) {
        let mut state = self.state.lock();
        state.group.touch(Instant::now());
        match sum {
            Sum::Used => state.totals.used = found,
            Sum::Mapped => state.totals.mapped = found,
            Sum::Reserved => state.totals.reserved = found,
        }
    }

    /// The files that have a block among some: map and lbn of each place, at most `limit`.
    pub fn places_of(&self, pbns: &[Pbn], limit: usize) -> Result<Vec<(Pbn, MapId, Lbn)>> {
        let mut sorted = pbns.to_vec();
        sorted.sort_unstable();
        let mut places = Vec::new();
        self.for_each_shard_record(&mut |record| {
            let crate::fsck::check::ShardRecord::Whole(key, shard) = record else { return Ok(()) };
            for extent in shard.extents() {
                let Target::Data(pbn) = extent.target else { continue };
                let from = sorted.partition_point(|wanted| *wanted < pbn);
                let within = sorted[from..].iter().take_while(|wanted| wanted.0 < pbn.0 + u64::from(extent.blocks));
                let first = key.shard * SHARD_BLOCKS + u64::from(extent.first);
                places.extend(within.map(|wanted| (*wanted, key.map, Lbn(first + wanted.0 - pbn.0))));
                places.truncate(limit);
            }
            Ok(())
        })?;
        Ok(places)
    }
}
