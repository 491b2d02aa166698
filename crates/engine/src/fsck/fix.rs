//! Repair: fixes the faults of an audit that have one right answer, by ordinary commit groups.
//!
//! It works in rounds: an audit, then the repairs of its lowest rank. References come first, then counts, which are
//! right only when all references are, then totals. Every repair sets an absolute value, independent of the others. So
//! a crash in the middle leaves a volume that the next repair continues with. No content is written and none is
//! dropped. A fault whose repair would be a guess stays as it is (`docs/decisions/0013-refuse-rather-than-guess.md`).
//!
//! No background thread may run during a repair, because the threads rely on the counts that are being repaired.

use std::time::Instant;

use crate::base::part;
use crate::commit::checkpoint::Commits;
use crate::damage::lost_places::{LostPlaces, Places};
use crate::device::buffer::AlignedBuf;
use crate::format::damage_records::ScrubRecord;
use crate::format::extent_leaf::{Extent, LEAF_BLOCKS, Target};
use crate::format::fragment::{FragmentPlace, is_fragment};
use crate::format::keys;
use crate::format::ops::Op;
use crate::format::page::{BAD, Entry, PACK, page_of};
use crate::fsck::check::Checker;
use crate::fsck::check::fault::{Fault, Remedy, Sum};
use crate::fsck::check::{CheckReport, Progress};
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Pbn, Result, Tag};

/// A repair ends after this many rounds. Three repair everything that one audit reports.
const ROUNDS_MAX: usize = 1_000;
/// Repairs described one by one.
const MENDED_MAX: usize = 100;

/// The faults that a repair fixed, and those that it left.
#[derive(Debug, Default)]
pub struct Fixed {
    /// Repaired faults as they were found, the first hundred.
    pub mended: Vec<String>,
    /// The number of all repaired faults.
    pub fixed_count: u64,
    /// Parts of maps that became holes because they named blocks outside the data area, and other losses.
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

part! {
    /// Repairs what a check finds.
    pub struct Fixer {
        base: state, stored, journal, maps, health, data, hasher, staging;
        metadata: Metadata, commits: Commits, checker: Checker, lost_places: LostPlaces
    }
}

impl Fixer {
    /// Repairs what `limit` allows, commits it and checkpoints the log.
    pub fn repair(&self, limit: Remedy, progress: Progress<'_>) -> Result<Fixed> {
        let mut repaired = Fixed::default();
        for _ in 0..ROUNDS_MAX {
            repaired.left = self.checker.audit(false, progress)?;
            if !self.repair_once(limit, &mut repaired)? {
                break;
            }
        }
        self.commits.checkpoint_what_is_whole()?;
        Ok(repaired)
    }

    /// One round. False: there was nothing to repair.
    fn repair_once(&self, limit: Remedy, repaired: &mut Fixed) -> Result<bool> {
        let faults = std::mem::take(&mut repaired.left.faults);
        let may = |fault: &&Fault| fault.remedy() <= limit && fault.remedy() != Remedy::None;
        let rank = faults.iter().filter(may).map(Fault::rank).min();
        let mut is_changed = false;
        let of_rank = || faults.iter().filter(may).filter(move |fault| Some(fault.rank()) == rank);
        let lost = of_rank().filter_map(|fault| match fault {
            Fault::Count { pbn, blocks, stored: 0, .. } if is_fragment(*pbn) => Some((pbn.0..pbn.0 + blocks).map(Pbn)),
            _ => None,
        });
        let places = self.lost_places.find(lost.flatten().collect())?;
        for fault in of_rank() {
            if self.mend(fault, &places)? {
                is_changed = true;
                repaired.note(fault);
            }
            self.settle()?;
        }
        repaired.left.faults = faults;
        self.commits.commit_what_is_whole()?;
        Ok(is_changed)
    }

    /// Commits a group that has become large, and checkpoints when much is in memory, because a repair runs without the
    /// threads that do so.
    pub fn settle(&self) -> Result<()> {
        let (group, dirty) = {
            let state = self.state.lock();
            (state.group_bytes(), state.dirty_bytes())
        };
        if dirty > self.journal.dirty_bytes_max() {
            return self.commits.checkpoint_what_is_whole();
        }
        if group > self.journal.bounds().group_bytes_max() / 2 { self.commits.commit_what_is_whole() } else { Ok(()) }
    }

    /// Repairs one fault. False: another fault that is not repaired prevents it.
    fn mend(&self, fault: &Fault, places: &Places) -> Result<bool> {
        let mended = match fault {
            Fault::Outside { key, extent } => self.make_hole(*key, extent),
            Fault::Count { pbn, blocks, stored, found, .. } => {
                (pbn.0..pbn.0 + blocks).map(Pbn).try_for_each(|pbn| match stored {
                    0 if is_fragment(pbn) => self.restore_fragment(pbn, *found, places.get(&pbn)),
                    0 => self.restore_entry(pbn, *found),
                    _ => self.set_count(pbn, *found),
                })
            }
            Fault::PackBytes { pbn, found, .. } => self.set_pack_bytes(*pbn, *found),
            Fault::Sum { sum, found, .. } => {
                self.set_sum(*sum, Blocks(*found));
                Ok(())
            }
            Fault::FragmentTotals { found, .. } => {
                let mut state = self.state.lock();
                state.group.touch(Instant::now());
                state.fragment_totals = *found;
                state.records.put(keys::fragment_totals(), Some(found.encode()));
                Ok(())
            }
            Fault::Page { number, .. } => self.empty_damaged_sectors(*number).and_then(|()| self.forget_unknown()),
            Fault::MapNumber { map, .. } => {
                self.maps.skip_to(MapId(map.0 + 1));
                self.state.lock().group.touch(Instant::now());
                Ok(())
            }
            Fault::Key { key } | Fault::Clone { key, .. } => {
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

    /// Makes a part of a map that names no valid block a hole.
    fn make_hole(&self, key: crate::format::keys::LeafKey, extent: &Extent) -> Result<()> {
        let mut leaf = (*self.metadata.leaf(key)?).clone();
        leaf.set(Extent { target: Target::Hole, ..*extent });
        let lbn = Lbn(key.leaf * LEAF_BLOCKS + u64::from(extent.first));
        let mut state = self.state.lock();
        state.group.touch(Instant::now());
        state.group.push(&Op::Map { map: key.map, lbn, blocks: extent.blocks, target: Target::Hole });
        state.leaves.set(key, leaf.into());
        Ok(())
    }

    /// Sets the count of a block to the number of its references. Without references it is free once that is durable.
    fn set_count(&self, pbn: Pbn, count: u32) -> Result<()> {
        let mut state = self.metadata.lock_with_pages(&self.state, || vec![page_of(pbn)])?;
        state.group.touch(Instant::now());
        state.table.edit(page_of(pbn)).set_count(pbn, count);
        state.group.push(&Op::Count { pbn, blocks: 1, count });
        if count == 0 {
            state.group.free(pbn);
        }
        state.table.shrink();
        Ok(())
    }

    /// Gives a block that has references but no entry a new one. Its tag is that of the present content. If the old
    /// entry has the same tag, it was right, and its fingerprint is kept. A block that is known to be bad stays bad:
    /// its record has the tag of its right content.
    /// A block that holds fragments becomes a pack again.
    fn restore_entry(&self, pbn: Pbn, count: u32) -> Result<()> {
        if let Some(bytes) = self.checker.pack_bytes_of(pbn)? {
            let mut state = self.metadata.lock_with_pages(&self.state, || vec![page_of(pbn)])?;
            let entry = Entry { count, flags: PACK, tag: Tag(bytes), fingerprint: None };
            state.table.edit(page_of(pbn)).set(pbn, &entry);
            state.group.touch(Instant::now());
            state.group.push(&Op::Pack { pbn, blocks: 1 });
            state.group.push(&Op::Count { pbn, blocks: 1, count });
            state.group.push(&Op::PackBytes { pbn, bytes });
            state.table.shrink();
            return Ok(());
        }
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
        let mut state = self.metadata.lock_with_pages(&self.state, || vec![page_of(pbn)])?;
        let page = state.table.edit(page_of(pbn));
        let fingerprint = Some(page.entry(pbn)).filter(|old| old.tag == tag).and_then(|old| old.fingerprint);
        page.set(pbn, &Entry { tag, fingerprint, count, flags });
        state.group.touch(Instant::now());
        state.group.push(&Op::Store { pbn, tag, fingerprint });
        state.group.push(&Op::Count { pbn, blocks: 1, count });
        if flags != 0 {
            state.group.push(&Op::Flags { pbn, flags });
        }
        state.table.shrink();
        Ok(())
    }

    /// Gives a fragment that has references but no entry a new one, with the place that a directory names. Without such
    /// a directory its content is lost: it has no place.
    fn restore_fragment(&self, pbn: Pbn, count: u32, found: Option<&(Tag, FragmentPlace)>) -> Result<()> {
        let bad = self.state.lock().bad.get(pbn);
        let tag = bad.map(|record| record.tag).or(found.map(|(tag, _)| *tag)).unwrap_or_default();
        let flags = if bad.is_some() { BAD } else { 0 };
        let mut state = self.metadata.lock_with_pages(&self.state, || vec![page_of(pbn)])?;
        let page = state.table.edit(page_of(pbn));
        page.set(pbn, &Entry { tag, fingerprint: None, count, flags });
        if let Some((_, place)) = found {
            page.set_fragment_place(pbn, *place);
        }
        state.group.touch(Instant::now());
        match found {
            Some((_, place)) => state.group.push(&Op::Fragment { pbn, place: *place, tag, fingerprint: None }),
            None => state.group.push(&Op::Store { pbn, tag, fingerprint: None }),
        }
        state.group.push(&Op::Count { pbn, blocks: 1, count });
        if flags != 0 {
            state.group.push(&Op::Flags { pbn, flags });
        }
        state.table.shrink();
        Ok(())
    }

    /// Sets the length of a pack to that of its fragments.
    fn set_pack_bytes(&self, pbn: Pbn, bytes: u64) -> Result<()> {
        let mut state = self.metadata.lock_with_pages(&self.state, || vec![page_of(pbn)])?;
        let page = state.table.edit(page_of(pbn));
        let entry = Entry { tag: Tag(bytes), ..page.entry(pbn) };
        page.set(pbn, &entry);
        state.group.touch(Instant::now());
        state.group.push(&Op::PackBytes { pbn, bytes });
        state.table.shrink();
        Ok(())
    }

    /// Makes unreadable sectors empty ones, and applies the log's redo to them. The next round counts their references.
    fn empty_damaged_sectors(&self, number: u64) -> Result<()> {
        let mut page = self.stored.read_pages(number, 1)?.remove(0).1;
        page.empty_damaged();
        let mut state = self.state.lock();
        // If the page is not in memory, this also applies the log's redo to it.
        let generation = state.table.generation();
        state.table.admit(number, page, generation);
        state.table.edit(number).empty_damaged();
        state.group.touch(Instant::now());
        Ok(())
    }

    /// Removes repaired damage from the scrub's record, so that the next mount does not report it. The next scrub
    /// reports what is left.
    fn forget_unknown(&self) -> Result<()> {
        let record = self.metadata.get(&keys::scrub())?.as_deref().and_then(ScrubRecord::decode);
        let Some(record) = record.filter(|record| record.unknown > 0) else { return Ok(()) };
        let mut state = self.state.lock();
        state.group.touch(Instant::now());
        state.records.put(keys::scrub(), Some(ScrubRecord { unknown: 0, ..record }.encode()));
        Ok(())
    }

    /// Sets a total to the sum that was found.
    pub fn set_sum(&self, sum: Sum, found: Blocks) {
        let mut state = self.state.lock();
        state.group.touch(Instant::now());
        match sum {
            Sum::Used => state.totals.used = found,
            Sum::Mapped => state.totals.mapped = found,
            Sum::Reserved => state.totals.reserved = found,
        }
    }

    /// The places in files that refer to some blocks, as map and lbn, at most `limit`. Of places that follow each
    /// other with one and the same block only the first.
    pub fn places_of(&self, pbns: &[Pbn], limit: usize) -> Result<Vec<(Pbn, MapId, Lbn)>> {
        let mut sorted = pbns.to_vec();
        sorted.sort_unstable();
        let mut places = Vec::new();
        let mut before = None;
        self.checker.for_each_leaf_record(&mut |record| {
            let crate::fsck::check::LeafRecord::Whole(key, leaf) = record else { return Ok(()) };
            for extent in leaf.extents() {
                let Target::Data(pbn) = extent.target else { continue };
                let from = sorted.partition_point(|wanted| *wanted < pbn);
                let within = sorted[from..].iter().take_while(|wanted| wanted.0 < pbn.0 + u64::from(extent.blocks));
                let first = key.leaf * LEAF_BLOCKS + u64::from(extent.first);
                for wanted in within {
                    let lbn = first + wanted.0 - pbn.0;
                    let goes_on = before == lbn.checked_sub(1).map(|before| (*wanted, key.map, Lbn(before)));
                    before = Some((*wanted, key.map, Lbn(lbn)));
                    places.extend(before.filter(|_| !goes_on && places.len() < limit));
                }
            }
            Ok(())
        })?;
        Ok(places)
    }
}
