//! oncefs: its real hint store, run detector and skipped buffer, over a model of its engine.
//!
//! Follows a block's life as the engine does. In-line: drop what the place holds already, look up in the memory level,
//! decide about runs, confirm against the block table, store the rest. Out-of-line, in [`worker`]. What the block table
//! says is never assumed from a hint.

mod worker;

use oncefs_dedup::{
    Candidates, Decision, DiskLevel, Eviction, HintOptions, HintStore, Lbn, MemoryPages, Merged, Pbn, RunRule, Sample,
    SkippedBuffer, Tag, detect,
};

use super::{Design, Outcome};
use crate::trace::{Content, Place, Write};
use crate::volume::{Released, Volume};

/// Share of the memory for the skipped buffer: a seventh, as SmartDedup's 0.5 of 3.5 MB.
const SKIPPED_SHARE: u64 = 7;
/// Hints in a full page of 4096 bytes on the disk level, with pbns of up to 16 M blocks.
const PAGE_HINTS_MAX: usize = 581;
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
    /// Shortest run worth sharing in-line.
    pub run_blocks_min: u32,
    /// Whether there are a disk level and a worker.
    pub two_levels: bool,
}

/// oncefs's decisions, and what they need of an engine.
pub struct Oncefs {
    options: OncefsOptions,
    volume: Volume,
    hints: HintStore,
    disk: Option<Disk>,
    skipped: SkippedBuffer,
    outcome: Outcome,
    lookups: Lookups,
}

/// The disk level, on pages in memory that count what happens to them.
struct Disk {
    level: DiskLevel,
    pages: MemoryPages,
    swept: Tag,
}

/// Answers of the memory level for the blocks of one stretch; kept for its memory.
#[derive(Default)]
struct Lookups {
    pbns: Vec<Pbn>,
    /// Per block: the end of its pbns, which begin where those of the block before end.
    ends: Vec<usize>,
}

/// Infallible results carry no error.
fn sure<T>(result: Result<T, std::convert::Infallible>) -> T {
    match result {
        Ok(value) => value,
    }
}

impl Oncefs {
    /// An empty volume.
    pub fn new(options: OncefsOptions) -> Self {
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
        let (volume, outcome, lookups) = (Volume::default(), Outcome::default(), Lookups::default());
        Self { options, volume, hints, disk, skipped, outcome, lookups }
    }

    /// Blocks that follow one another in a file, none of them zero or equal to what its place holds.
    fn write_stretch(&mut self, first: Place, contents: &[Content]) {
        let lookups = self.look_up(contents);
        let mut begin = 0;
        let candidates: Vec<Candidates> = lookups
            .ends
            .iter()
            .enumerate()
            .map(|(at, &end)| {
                let holders = &lookups.pbns[std::mem::replace(&mut begin, end)..end];
                Candidates { holders, current: self.volume.at(first.plus(at)) }
            })
            .collect();
        let rule = RunRule { run_blocks_min: self.options.run_blocks_min, may_go_on: false };
        let decisions = detect(&candidates, rule);
        for (at, (decision, candidates)) in decisions.into_iter().zip(&candidates).enumerate() {
            let (place, content) = (first.plus(at), contents[at]);
            match decision {
                Decision::Share(pbn) if self.confirm(pbn, content) => self.share(place, pbn),
                _ => self.store(place, content, candidates.holders.is_empty()),
            }
        }
        self.lookups = lookups;
        self.demote();
    }

    fn look_up(&mut self, contents: &[Content]) -> Lookups {
        let mut lookups = std::mem::take(&mut self.lookups);
        lookups.pbns.clear();
        lookups.ends.clear();
        for content in contents {
            self.hints.lookup(content.tag(), &mut lookups.pbns);
            lookups.ends.push(lookups.pbns.len());
        }
        lookups
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

    /// A block without any hint goes to the worker; one whose run was too short is meant to stay.
    fn store(&mut self, place: Place, content: Content, is_unknown: bool) {
        let (pbn, released) = self.volume.store(place, content);
        self.release(released);
        self.hints.insert(content.tag(), pbn);
        if is_unknown || self.options.run_blocks_min == 1 {
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
        let Some(disk) = &mut self.disk else { return };
        let evicted = self.hints.take_evicted();
        if !evicted.is_empty() {
            let Merged { added, pages_read, pages_written, .. } = sure(disk.level.merge(&mut disk.pages, &evicted));
            self.outcome.demoted += added;
            self.outcome.eviction_ios += pages_read + pages_written;
            self.hints.set_eviction_span_bits(Some(disk.level.span_bits()));
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
        let mut begin = 0;
        for (at, (place, content)) in write.blocks().enumerate() {
            let is_zero = content == Content::ZERO;
            let is_same = !is_zero && self.volume.at(place).is_some_and(|pbn| self.volume.holds(pbn, content));
            if !is_zero && !is_same {
                continue;
            }
            self.write_stretch(write.place.plus(begin), &write.contents[begin..at]);
            begin = at + 1;
            self.outcome.found_inline += u64::from(is_same);
            if is_zero {
                let released = self.volume.clear(place);
                self.release(released);
            }
        }
        self.write_stretch(write.place.plus(begin), &write.contents[begin..]);
    }

    fn idle(&mut self) {
        if !self.options.two_levels {
            return;
        }
        self.work_off();
        self.sweep();
        self.divide_memory();
    }

    fn outcome(&self) -> Outcome {
        let (disk_reads, disk_writes) = self.disk.as_ref().map_or((0, 0), |disk| (disk.pages.reads, disk.pages.writes));
        let entries = self.hints.len() as u64;
        let (stored, extents) = (self.volume.used(), self.volume.extents());
        Outcome { entries, disk_reads, disk_writes, stored, extents, ..self.outcome }
    }

    fn check(&self) {
        self.volume.check();
        self.hints.check();
        self.skipped.check();
    }
}

#[cfg(test)]
mod tests;
