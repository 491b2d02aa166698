//! Check: every invariant across the engine's structures, as code. Tests, the crash explorer and fsck share it.
//!
//! (1) Every block of a map lies in the data area, or is a fragment. (2) A block's reference count equals its
//! references from all maps and from records; that of a block that holds fragments, how many it holds. (3) The totals
//! equal the table and the maps, and never promise more than the data area has. (4) No live block is free in the
//! allocator. (5) When data is read: every live block's content has the tag in the table, except for blocks known to be
//! bad. (6) Every page of the table and every leaf can be decoded, and no page is newer than the log. (7) Every map's
//! id was handed out. (8) Every record of the engine has a key of a known form. (9) A pending clone has a younger id
//! than its source, both were handed out, and its marks lie within the leaves that it may lack. (10) No two fragments
//! share a byte, and the last block of a pack has the length of its fragments.
//!
//! An audit reads all maps once, then the block table once, then the live blocks of the data area once. The references
//! are sorted in between (`sort.rs`). So its memory is bounded whatever the size of the volume, and proportional to the
//! content of a small one.

mod blocks;
pub mod fault;
mod packs;
mod reference_counts;
mod table_against_references;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use fault::{Fault, Sum};
use reference_counts::References;

use crate::base::part;
use crate::damage::affected_files::AffectedFiles;
use crate::format::damage_records::{BadRecord, decode_replica};
use crate::format::extent_leaf::{Extent, ExtentLeaf, Target};
use crate::format::fragment::{is_fragment, is_number};
use crate::format::fragment_totals::FragmentTotals;
use crate::format::keys::{self, LeafKey};
use crate::format::pending_clone::PendingClone;
use crate::read::fragments::FragmentReader;
use crate::space::allocator::Run;
use crate::state::loading::Metadata;
use crate::{BadBlock, Blocks, Error, MapId, Pbn, Result};

/// Faults kept as values. Further ones are only counted.
const FAULTS_MAX: usize = 1 << 16;
/// Problems described one by one.
const PROBLEMS_MAX: usize = 100;
/// Records fetched at a time.
const PORTION: usize = 1024;

/// The current part of an audit, and the unit of its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Reading the maps. Progress: references seen, out of those in the totals.
    Maps,
    /// Reading the block table, and the data if requested. Progress: live blocks seen, out of those in the totals.
    Blocks,
}

/// Receives the phase, the amount done and the total amount.
pub type Progress<'a> = &'a mut dyn FnMut(Phase, u64, u64);

/// The result of a check.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Descriptions, the first hundred.
    pub problems: Vec<String>,
    /// All problems.
    pub problems_count: u64,
    /// The same as values, the first 65,536.
    pub faults: Vec<Fault>,
    /// Live blocks seen.
    pub live: Blocks,
    /// Live fragments seen, and their lengths together.
    pub fragments: FragmentTotals,
    /// References seen.
    pub mapped: Blocks,
    /// Reserved blocks seen.
    pub reserved: Blocks,
    /// Blocks whose content was read.
    pub read: Blocks,
    /// Blocks that were found damaged earlier and are kept apart. They contradict nothing, so they are not problems
    /// here.
    pub bad: Vec<BadBlock>,
}

impl CheckReport {
    fn note(&mut self, fault: Fault) {
        self.problems_count += 1;
        let described = self.problems.len() as u64;
        assert!(described < self.problems_count, "{described} of {} problems are described", self.problems_count);
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(fault.to_string());
        }
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(fault);
        }
    }

    /// Whether there are no problems.
    pub fn is_clean(&self) -> bool {
        self.problems_count == 0
    }
}

/// A running audit.
struct Audit<'a> {
    checker: &'a Checker,
    read_data: bool,
    report: CheckReport,
    progress: Progress<'a>,
    /// Whether references are missing because a part of a map cannot be decoded.
    is_in_doubt: bool,
    /// Whether entries of fragments are damaged. What counts fragments may be right then with more than were found.
    has_unknown_fragments: bool,
    /// Whether live blocks are missing because a page of the table cannot be decoded.
    has_damaged_pages: bool,
}

part! {
    /// Checks a volume that nothing else uses.
    pub struct Checker {
        pub(super) base: space, journal, state, stored, maps, data, hasher, staging;
        metadata: Metadata, affected_files: AffectedFiles, fragment_reader: FragmentReader
    }
}

impl Checker {
    /// Checks the whole volume, which nothing else uses meanwhile. `progress` gets the amount done and the total, in
    /// blocks, first of the references and then of the blocks.
    pub fn check(&self, read_data: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.audit(read_data, &mut |_, done, total| progress(done, total))
    }

    /// The same, with the phase.
    pub fn audit(&self, read_data: bool, progress: Progress<'_>) -> Result<CheckReport> {
        // Otherwise an object that a checkpoint moves would be seen in two places, or in none.
        let _quiet = self.journal.hold_checkpoints();
        self.redo_what_is_whole()?;
        let report = CheckReport::default();
        let mut audit = Audit {
            checker: self,
            read_data,
            report,
            progress,
            is_in_doubt: false,
            has_unknown_fragments: false,
            has_damaged_pages: false,
        };
        let mut references = audit.maps()?;
        let packs = audit.fragments_in_blocks(&mut references)?;
        audit.table(references.counts()?, packs)?;
        audit.records()?;
        audit.totals();
        let mut report = audit.report;
        report.bad.extend(self.affected_files.bad_blocks());
        Ok(report)
    }

    /// References to blocks from outside the maps. Each block of a run has one. The records of bad blocks refer to them
    /// and to their replacements, and those of replicas to the replicas.
    fn references_beside_maps(&self, visit: &mut dyn FnMut(Run) -> Result<()>) -> Result<()> {
        for ((mut from, to), of_bad) in [(keys::all_bad(), true), (keys::all_replicas(), false)] {
            loop {
                let records = self.metadata.scan(&from, &to, PORTION)?;
                for (key, value) in &records {
                    let held = match of_bad {
                        true => [keys::parse_bad(key), BadRecord::decode(value).and_then(|record| record.replacement)],
                        false => [decode_replica(value), None],
                    };
                    held.into_iter().flatten().try_for_each(|pbn| visit(Run { pbn, blocks: 1 }))?;
                }
                match records.last() {
                    Some((key, _)) if records.len() == PORTION => from = [key.as_slice(), &[0]].concat(),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// Applies redo that a crash left in the log, except to damaged objects: the audit finds them later, in their
    /// places.
    fn redo_what_is_whole(&self) -> Result<()> {
        let (mut pages, leaves) = {
            let state = self.state.lock();
            (state.table.pages_with_redo(usize::MAX), state.leaves.with_redo(usize::MAX))
        };
        pages.sort_unstable();
        let whole = |result| match result {
            Err(Error::Corrupt { .. }) => Ok(()),
            other => other,
        };
        for portion in pages.chunks(PORTION) {
            if self.metadata.load_pages(portion).is_err() {
                portion.iter().try_for_each(|page| whole(self.metadata.load_pages(&[*page])))?;
            }
        }
        leaves.iter().try_for_each(|key| whole(self.metadata.leaf(*key).map(drop)))
    }

    /// Visits the newest value of every leaf that memory or the sorted state has, in the order of maps.
    pub fn for_each_leaf_record(&self, visit: &mut dyn FnMut(LeafRecord<'_>) -> Result<()>) -> Result<()> {
        let end = keys::leaf(LeafKey { map: MapId(u64::MAX), leaf: u64::MAX });
        let mut from = LeafKey { map: MapId(0), leaf: 0 };
        loop {
            // Memory first: a checkpoint in between moves leaves from memory into the sorted state.
            let in_memory = self.state.lock().leaves.keys_from(from, PORTION);
            let stored = self.stored.scan(&keys::leaf(from), &end, PORTION)?;
            let newest_stored = stored.iter().rev().find_map(|(key, _)| keys::parse_leaf(key));
            let bounds = [
                in_memory.last().copied().filter(|_| in_memory.len() == PORTION),
                newest_stored.filter(|_| stored.len() == PORTION),
            ];
            let last = bounds.into_iter().flatten().min();
            self.visit_portion(&in_memory, &stored, last, visit)?;
            let Some(last) = last else { return Ok(()) };
            from = LeafKey { map: last.map, leaf: last.leaf + 1 };
        }
    }

    /// Visits leaves that are in memory or stored, up to `last`.
    fn visit_portion(
        &self,
        in_memory: &[LeafKey],
        stored: &[(Vec<u8>, Vec<u8>)],
        last: Option<LeafKey>,
        visit: &mut dyn FnMut(LeafRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut found: Vec<(LeafKey, Option<&Vec<u8>>)> = Vec::with_capacity(stored.len() + in_memory.len());
        for (key, value) in stored {
            match keys::parse_leaf(key) {
                Some(key) => found.push((key, Some(value))),
                None => visit(LeafRecord::Unknown(key))?,
            }
        }
        found.extend(in_memory.iter().map(|key| (*key, None)));
        found.sort_by_key(|(key, value)| (*key, value.is_none()));
        found.dedup_by_key(|(key, _)| *key);
        for (key, value) in found.into_iter().take_while(|(key, _)| last.is_none_or(|last| *key <= last)) {
            let newer = self.state.lock().leaves.get(key);
            let leaf = match (newer, value) {
                (Some(leaf), _) => Some(leaf),
                (None, Some(value)) => ExtentLeaf::decode(key, value).map(Arc::new),
                (None, None) => match self.metadata.leaf(key) {
                    Err(Error::Corrupt { .. }) => None,
                    read => Some(read?),
                },
            };
            match leaf {
                None => visit(LeafRecord::Damaged(key))?,
                Some(leaf) if leaf.is_empty() => {}
                Some(leaf) => visit(LeafRecord::Whole(key, &leaf))?,
            }
        }
        Ok(())
    }
}

/// An item of a visit to all leaves.
pub enum LeafRecord<'a> {
    /// A non-empty leaf.
    Whole(LeafKey, &'a ExtentLeaf),
    /// A leaf that cannot be decoded.
    Damaged(LeafKey),
    /// A key that begins like a leaf's but is not one.
    Unknown(&'a [u8]),
}

impl Audit<'_> {
    /// (1), (7), and the references to blocks.
    fn maps(&mut self) -> Result<References> {
        let checker = self.checker;
        let totals = checker.state.lock().totals;
        let next = checker.maps.next_id();
        let mut references = References::default();
        let mut before = MapId(0);
        checker.for_each_leaf_record(&mut |record| {
            match record {
                LeafRecord::Unknown(key) => self.report.note(Fault::Key { key: key.to_vec() }),
                LeafRecord::Damaged(key) => {
                    self.is_in_doubt = true;
                    self.report.note(Fault::Leaf { key });
                }
                LeafRecord::Whole(key, leaf) => {
                    if key.map >= next && key.map != before {
                        self.report.note(Fault::MapNumber { map: key.map, next });
                    }
                    before = key.map;
                    leaf.extents()
                        .iter()
                        .try_for_each(|extent| self.extent(key, extent, totals.data, &mut references))?;
                }
            }
            (self.progress)(Phase::Maps, self.report.mapped.0, totals.mapped.0);
            Ok(())
        })?;
        checker.references_beside_maps(&mut |run| references.add(run))?;
        Ok(references)
    }

    fn extent(&mut self, key: LeafKey, extent: &Extent, data: Blocks, references: &mut References) -> Result<()> {
        let blocks = u64::from(extent.blocks);
        let Target::Data(pbn) = extent.target else {
            self.report.reserved += Blocks(blocks);
            return Ok(());
        };
        for outside in outside(extent, data) {
            self.report.note(Fault::Outside { key, extent: outside });
        }
        let (first, end) = match is_fragment(pbn) {
            true => (pbn.0, pbn.0 + numbers_from(pbn, blocks)),
            false => (pbn.0.max(1), pbn.0.saturating_add(blocks).min(data.0)),
        };
        if first < end {
            self.report.mapped += Blocks(end - first);
            references.add(Run { pbn: Pbn(first), blocks: end - first })?;
        }
        Ok(())
    }

    /// (8), except for leaves, which were all visited already, and (9).
    fn records(&mut self) -> Result<()> {
        for (mut from, to) in keys::all_but_leaves() {
            loop {
                let records = self.checker.metadata.scan(&from, &to, PORTION)?;
                let unknown = records.iter().filter(|(key, _)| !keys::is_known(key));
                unknown.for_each(|(key, _)| self.report.note(Fault::Key { key: key.clone() }));
                records.iter().for_each(|(key, value)| self.clone_record(key, value));
                match records.last() {
                    Some((key, _)) if records.len() == PORTION => from = [key, &[0][..]].concat(),
                    _ => break,
                }
            }
        }
        Ok(())
    }

    /// (9)
    fn clone_record(&mut self, key: &[u8], value: &[u8]) {
        let next = self.checker.maps.next_id();
        if let Some(map) = keys::parse_pending_clone(key) {
            if map >= next || PendingClone::decode(map, value).is_none() {
                self.report.note(Fault::Clone { key: key.to_vec(), map: Some(map) });
            }
        } else if let Some(mark) = keys::parse_taken_leaf(key) {
            let record = self.checker.state.lock().clones.record(mark.map);
            if record.is_none_or(|record| mark.leaf < record.next) {
                self.report.note(Fault::Clone { key: key.to_vec(), map: None });
            }
        }
    }

    /// (3). Damaged parts may account for an excess of a sum.
    fn totals(&mut self) {
        let totals = self.checker.state.lock().totals;
        let label = Blocks(1);
        for (sum, stored, found) in [
            (Sum::Used, totals.used, self.report.live + label),
            (Sum::Mapped, totals.mapped, self.report.mapped),
            (Sum::Reserved, totals.reserved, self.report.reserved),
        ] {
            let in_doubt = self.is_in_doubt || self.has_damaged_pages;
            if found > stored || found < stored && !in_doubt {
                self.report.note(Fault::Sum { sum, stored: stored.0, found: found.0 });
            }
        }
        let compressed = self.checker.state.lock().fragment_totals;
        if compressed != self.report.fragments && !self.has_damaged_pages {
            self.report.note(Fault::FragmentTotals { stored: compressed, found: self.report.fragments });
        }
        let promised = (self.report.live + label + self.report.reserved).0;
        if promised > totals.data.0 {
            self.report.note(Fault::Promised { promised, data: totals.data.0 });
        }
    }
}

/// How many numbers of fragments follow each other from this one on, up to `count`.
fn numbers_from(first: Pbn, count: u64) -> u64 {
    (0..count).take_while(|n| is_number(first.plus(*n))).count() as u64
}

/// The parts of a data extent that lie outside a data area of this many blocks, or on its label.
fn outside(extent: &Extent, data: Blocks) -> impl Iterator<Item = Extent> + use<> {
    let Extent { first, blocks, target } = *extent;
    let Target::Data(pbn) = target else { unreachable!("only data lies anywhere") };
    let label = u16::from(pbn.0 == 0);
    let fits = match is_fragment(pbn) {
        true => numbers_from(pbn, u64::from(blocks)) as u16,
        false => data.0.saturating_sub(pbn.0).min(u64::from(blocks)) as u16,
    };
    let beyond = Extent { first: first + fits, blocks: blocks - fits, target: target.plus(u64::from(fits)) };
    [Extent { first, blocks: label, target }, beyond].into_iter().filter(|part| part.blocks > 0)
}
