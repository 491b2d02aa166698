//! oncefs: its real hint store, run detector and skipped buffer, over a model of its engine.
//!
//! Follows a block's life as the engine does. In-line: drop what the place holds already, look up in the memory level,
//! decide about runs (one that is open at a request's end is decided again with the next, see [`streams`]), confirm against the block table, store the rest. Out-of-line, in [`worker`]. What the block table
//! says is never assumed from a hint.

mod run_rule;
mod streams;
mod worker;

use oncefs_dedup::{
    Candidates, Decision, DiskLevel, Eviction, Extension, Hint, HintOptions, HintStore, Lbn, MemoryPages, Merged, Pbn,
    Sample, SkippedBuffer, Tag, Work,
};

use std::time::Duration;

use super::design::{Design, Outcome};
use crate::trace::{Content, Place, Read, Write};
use crate::volume::{Released, Volume};
use run_rule::RunRules;
use streams::{Streams, Tail};

pub(crate) use run_rule::REFS_FREE_MIN;
pub use run_rule::Threshold;

/// Share of the memory for the skipped buffer: a seventh, as SmartDedup's 0.5 of 3.5 MB.
const SKIPPED_SHARE: u64 = 7;
/// Hints in a full page of 4096 bytes on the disk level, with pbns of up to 16 M blocks.
const PAGE_HINTS_MAX: usize = 581;
/// A commit at least so often in the trace's time: what is open then is decided.
const COMMIT_EVERY: Duration = Duration::from_secs(5);

/// Memory for hints, enlarged by the skipped buffer's share.
pub fn with_skipped_buffer(hint_bytes: u64) -> u64 {
    (hint_bytes * SKIPPED_SHARE).div_ceil(SKIPPED_SHARE - 1)
}

/// How oncefs is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OncefsOptions {
    /// Memory for hints, the skipped buffer and, unless it is beside, the disk level's directory, bytes.
    pub memory: u64,
    /// Whether the directory takes memory beside `memory`: then the number of hints does not depend on it.
    pub directory_beside: bool,
    /// What leaves the memory level when it is full.
    pub eviction: Eviction,
    /// Length of the memory level's prefix; `None`: from its memory.
    pub prefix_bits: Option<u32>,
    /// Which runs are worth sharing.
    pub threshold: Threshold,
    /// Whether there are a disk level and a worker.
    pub two_levels: bool,
    /// Whether runs are extended through the block table, without look-ups.
    pub extends: bool,
}

/// oncefs's decisions, and what they need of an engine.
pub struct Oncefs {
    options: OncefsOptions,
    volume: Volume,
    hints: HintStore,
    disk: Option<Disk>,
    skipped: SkippedBuffer,
    rules: RunRules,
    streams: Streams,
    /// When the last commit was.
    committed: Duration,
    /// By the worker in the last idle phase: from which block to which.
    remapped: Vec<(Pbn, Pbn)>,
    outcome: Outcome,
}

/// Blocks that follow one another in a file and are decided together.
struct Stretch<'a> {
    first: Place,
    contents: &'a [Content],
    /// Of these, so many are stored already, as their run was open.
    tail_blocks: usize,
    /// Whether the file's next request may go on where they end.
    may_go_on: bool,
}

/// The disk level, on pages in memory that count what happens to them.
struct Disk {
    level: DiskLevel,
    pages: MemoryPages,
    swept: Tag,
}

/// Infallible results carry no error.
fn sure<T>(result: Result<T, std::convert::Infallible>) -> T {
    match result {
        Ok(value) => value,
    }
}

impl Oncefs {
    /// An empty volume that grows with what is stored.
    pub fn new(options: OncefsOptions) -> Self {
        Self::on(Volume::default(), options)
    }

    /// On this volume, which is empty.
    pub fn on(volume: Volume, options: OncefsOptions) -> Self {
        let skipped_bytes = if options.two_levels { options.memory / SKIPPED_SHARE } else { 0 };
        let hints = HintStore::new(HintOptions {
            bytes_max: options.memory - skipped_bytes,
            prefix_bits: options.prefix_bits,
            eviction: options.eviction,
            keep_evicted: options.two_levels,
            sample: Sample::ALL,
        });
        let disk = options.two_levels.then(|| Disk {
            level: DiskLevel::new(PAGE_HINTS_MAX),
            pages: MemoryPages::default(),
            swept: Tag(0),
        });
        let skipped = SkippedBuffer::with_bytes_max(skipped_bytes);
        let outcome = Outcome::default();
        let (rules, streams, committed) = (RunRules::new(options.threshold), Streams::default(), Duration::ZERO);
        Self { options, volume, hints, disk, skipped, rules, streams, committed, remapped: Vec::new(), outcome }
    }

    /// Blocks of a request, none of them zero or equal to what its place holds.
    fn write_stretch(&mut self, first: Place, contents: &[Content], ends_request: bool) {
        if contents.is_empty() {
            return;
        }
        let may_go_on = ends_request && self.rules.run_blocks_min() > 1;
        let tail = self.streams.take(first.file);
        match tail.filter(|tail| tail.end() == first) {
            Some(Tail { first, contents: mut all }) => {
                let tail_blocks = all.len();
                all.extend_from_slice(contents);
                self.decide(&Stretch { first, contents: &all, tail_blocks, may_go_on });
            }
            None => self.decide(&Stretch { first, contents, tail_blocks: 0, may_go_on }),
        }
        self.demote();
    }

    fn decide(&mut self, stretch: &Stretch) {
        let &Stretch { first, contents, tail_blocks, may_go_on } = stretch;
        let run_blocks_min = self.rules.run_blocks_min();
        let has_budget = self.rules.budget(first.file).is_some();
        let before = self.run_before(first, if has_budget { 1 } else { run_blocks_min - 1 });
        let added = (0..contents.len()).filter(|at| self.volume.at(first.plus(*at)).is_none()).count() as u64;
        let mut holders = self.holders_of(contents, before.last().copied());
        // What was stored while it was open does not hold its own content.
        for (at, holders) in holders.iter_mut().enumerate().take(tail_blocks) {
            holders.retain(|pbn| Some(*pbn) != self.volume.at(first.plus(at)));
        }
        let stays = before.iter().map(|pbn| Candidates { holders: std::slice::from_ref(pbn), current: Some(*pbn) });
        let found = (holders.iter().enumerate())
            .map(|(at, holders)| Candidates { holders, current: self.volume.at(first.plus(at)) });
        let candidates: Vec<Candidates> = stays.chain(found).collect();
        let decisions = self.rules.decide(first.file, &candidates, added, &self.volume, may_go_on);
        let mut open = None;
        for (at, decision) in decisions.into_iter().skip(before.len()).enumerate() {
            let (place, content) = (first.plus(at), contents[at]);
            match decision {
                Decision::Share(pbn) if self.confirm(pbn, content) => {
                    self.outcome.remapped += u64::from(at < tail_blocks);
                    self.share(place, pbn);
                    continue;
                }
                Decision::Open => open = open.or(Some(at)),
                _ => (),
            }
            if at >= tail_blocks {
                self.store(place, content);
            }
            if decision != Decision::Open {
                self.settle(place, content, has_budget || decision == Decision::Unknown);
            }
        }
        if let Some(at) = open {
            let evicted = self.streams.keep(Tail { first: first.plus(at), contents: contents[at..].to_vec() });
            evicted.into_iter().for_each(|tail| self.refuse(&tail));
        }
    }

    /// Pbns of the blocks before a place that lie together up to it, at most so many, in order: a run that goes on
    /// behind them is as much longer.
    fn run_before(&self, first: Place, blocks_max: u32) -> Vec<Pbn> {
        let mut pbns: Vec<Pbn> = Vec::new();
        while pbns.len() < blocks_max as usize && pbns.len() < first.lbn as usize {
            let place = Place { lbn: first.lbn - 1 - pbns.len() as u64, ..first };
            match self.volume.at(place) {
                Some(pbn) if pbns.last().is_none_or(|next| pbn.plus(1) == *next) => pbns.push(pbn),
                _ => break,
            }
        }
        pbns.reverse();
        pbns
    }

    /// What may hold each content: what the memory level names and, where runs are extended, what the block table says
    /// of the neighbours. `before`: the pbn of the block before the first.
    fn holders_of(&mut self, contents: &[Content], before: Option<Pbn>) -> Vec<Vec<Pbn>> {
        let mut holders = Vec::with_capacity(contents.len());
        for content in contents {
            let mut pbns = Vec::new();
            self.hints.lookup(content.tag(), &mut pbns);
            holders.push(pbns);
        }
        self.outcome.lookups += contents.len() as u64;
        let holders = self.extended(contents, holders, before);
        self.outcome.holders += holders.iter().map(|pbns| pbns.len() as u64).sum::<u64>();
        holders
    }

    fn extended(&self, contents: &[Content], holders: Vec<Vec<Pbn>>, before: Option<Pbn>) -> Vec<Vec<Pbn>> {
        if !self.options.extends {
            return holders;
        }
        let tags: Vec<Tag> = contents.iter().map(|content| content.tag()).collect();
        let seeds: Vec<Pbn> = before.map(|pbn| pbn.plus(1)).into_iter().collect();
        let mut extension = Extension::new(&tags, holders, &seeds);
        let missing = extension.extend(|pbn, tag| Some(self.volume.content(pbn).is_some_and(|held| held.tag() == tag)));
        assert!(missing.is_empty(), "the whole table is in memory");
        extension.into_holders()
    }

    /// No request went on where the tail ends: its run is too short.
    fn refuse(&mut self, tail: &Tail) {
        for (at, content) in tail.contents.iter().enumerate() {
            self.settle(tail.first.plus(at), *content, false);
        }
    }

    /// What is open is written out as it is.
    fn commit(&mut self) {
        self.streams.take_all().iter().for_each(|tail| self.refuse(tail));
    }

    fn commit_when_due(&mut self, time: Duration) {
        if time >= self.committed + COMMIT_EVERY {
            self.commit();
            self.committed = time;
        }
    }

    /// Whether the block table agrees with a hint.
    fn confirm(&mut self, pbn: Pbn, content: Content) -> bool {
        let holds = self.volume.holds(pbn, content);
        self.outcome.refused += u64::from(!holds);
        holds
    }

    fn share(&mut self, place: Place, pbn: Pbn) {
        self.outcome.found_inline += 1;
        let released = self.volume.share(place, pbn);
        self.release(released);
        self.skipped.remove(place.file, Lbn(place.lbn), 1);
    }

    fn store(&mut self, place: Place, content: Content) {
        let (pbn, released) = self.volume.store(place, content);
        self.release(released);
        self.rules.note_own(place.file, pbn);
    }

    /// A block that stays where it was stored becomes a holder. Without any hint it goes to the worker, and with a budget in
    /// any case, which may have room for it when the file is known as a whole; one whose run was too short is meant to stay.
    fn settle(&mut self, place: Place, content: Content, is_unknown: bool) {
        let pbn = self.volume.at(place).expect("a block that is settled was stored");
        self.hints.insert(content.tag(), pbn);
        if is_unknown || self.rules.run_blocks_min() == 1 {
            self.skipped.add(place.file, Lbn(place.lbn), 1);
        }
    }

    /// The hint of a block that became free is dropped from memory at once; on disk it is refused until swept.
    fn release(&mut self, released: Option<Released>) {
        if let Some(Released { pbn, content, count: 0 }) = released {
            self.hints.remove(content.tag(), pbn);
        }
    }

    /// What left memory goes to the disk level.
    fn demote(&mut self) {
        let volume = &self.volume;
        let Some(disk) = &mut self.disk else { return };
        let evicted = self.hints.take_evicted();
        if !evicted.is_empty() {
            let worth = |hints: &[Hint]| hints.iter().map(|hint| volume.references(hint)).collect();
            let merged = sure(disk.level.merge(&mut disk.pages, &evicted, worth));
            let Merged { added, pages_read, pages_written, .. } = merged;
            self.outcome.demoted += added;
            self.outcome.eviction_ios += pages_read + pages_written;
            self.hints.set_eviction_range_bits(Some(disk.level.eviction_range_bits()));
        }
        self.note_memory();
    }

    fn note_memory(&mut self) {
        let disk = self.disk.as_ref().map_or(0, |disk| disk.level.bytes());
        let bytes = self.hints.bytes() + disk + self.skipped.bytes();
        self.outcome.memory_bytes = self.outcome.memory_bytes.max(bytes);
    }

    /// The disk level's directory is part of the memory: what it takes, hints have to give.
    fn divide_memory(&mut self) {
        let Some(disk) = self.disk.as_ref().filter(|_| !self.options.directory_beside) else { return };
        let bytes = self.options.memory - self.skipped.bytes_max();
        self.hints.set_bytes_max(bytes.saturating_sub(disk.level.bytes()));
        self.demote();
    }
}

impl Design for Oncefs {
    fn write(&mut self, write: &Write) {
        self.commit_when_due(write.time);
        if let Some(tail) = self.streams.take(write.place.file) {
            if tail.end() == write.place {
                self.streams.keep(tail);
            } else {
                self.refuse(&tail);
            }
        }
        let mut begin = 0;
        for (at, (place, content)) in write.blocks().enumerate() {
            let is_zero = content == Content::ZERO;
            let is_same = !is_zero && self.volume.at(place).is_some_and(|pbn| self.volume.holds(pbn, content));
            if !is_zero && !is_same {
                continue;
            }
            self.write_stretch(write.place.plus(begin), &write.contents[begin..at], false);
            begin = at + 1;
            self.outcome.found_inline += u64::from(is_same);
            if is_zero {
                let released = self.volume.clear(place);
                self.release(released);
            }
        }
        self.write_stretch(write.place.plus(begin), &write.contents[begin..], true);
    }

    fn read(&mut self, read: &Read) {
        self.commit_when_due(read.time);
        let fell = self.rules.note(read);
        if fell && self.options.two_levels {
            self.skipped.put_back(Work::Owner(read.place.file));
        }
    }

    fn idle(&mut self) {
        self.remapped.clear();
        self.commit();
        if !self.options.two_levels {
            return;
        }
        self.work_off();
        self.sweep();
        self.divide_memory();
    }

    fn take_remapped(&mut self) -> Vec<(Pbn, Pbn)> {
        std::mem::take(&mut self.remapped)
    }

    fn outcome(&self) -> Outcome {
        let (disk_reads, disk_writes) = self.disk.as_ref().map_or((0, 0), |disk| (disk.pages.reads, disk.pages.writes));
        let entries = self.hints.len() as u64;
        let (stored, extents) = (self.volume.used(), self.volume.extents());
        Outcome { entries, disk_reads, disk_writes, stored, extents, ..self.outcome }
    }

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn check(&self) {
        self.volume.check();
        self.hints.check();
        self.skipped.check();
    }
}

#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod tests;
