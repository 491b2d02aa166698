//! Makes a trace of a file server: files written in order, some of them patched, all of them read.
//!
//! A file has two natures that stay with it. By **texture** it is plain (all new), copied (long runs of duplicates with
//! something new between them) or stitched (short runs). By **use** it is streamed (read from its beginning to its end)
//! or paged (patched and read block by block, as databases, mail stores and images of machines are). Shares that
//! [`FilerSpec`] states are kept by doing next what is furthest behind.

use std::time::Duration;

use super::address::FILE_FIRST;
use super::distance::Distance;
use super::history::History;
use crate::trace::{Content, Event, Place, Read, Source, TraceError, Write};
use oncefs_toolbox::Random;

/// Blocks of a request at most: CIFS's 64 KiB.
const REQUEST_BLOCKS_MAX: u64 = 16;
/// Time between the requests of one burst.
const REQUEST_EVERY: Duration = Duration::from_millis(1);
/// Blocks that a file has at most, 32 MiB: one file is a small part of a small twin.
const FILE_BLOCKS_MAX: u64 = 8_192;
/// Mean requests to a paged file one after the other.
const BURST_REQUESTS: f64 = 32.0;
/// A paged file's block is drawn as its size times a fraction to this power: a tenth of it takes nearly half of all.
const HOT_POWER: i32 = 3;
/// Sources that are tried for a run of duplicates; the longest is taken if none is long enough.
const SOURCES_TRIED: u32 = 16;
/// Shortest long run.
const LONG_BLOCKS_MIN: u64 = 8;
/// Mean new blocks between two long runs.
const BETWEEN_LONG_BLOCKS: f64 = 64.0;
/// Files of one use whose last bursts are remembered, to come back to them.
const BURSTS_MAX: usize = 1 << 20;
/// Short runs: their least and greatest length.
const SHORT_CLASSES: [(u64, u64); 3] = [(1, 1), (2, 3), (4, 7)];

/// What a file server's trace shall be like. Shares are of the blocks written, 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct FilerSpec {
    /// Blocks written in all.
    pub written_blocks: u64,
    /// Blocks read in all.
    pub read_blocks: u64,
    /// Mean blocks of a write.
    pub write_blocks: f64,
    /// Mean blocks of a read.
    pub read_request_blocks: f64,
    /// Duplicates in runs of 1, of 2 and 3, of 4 to 7 blocks.
    pub short: [f64; 3],
    /// Duplicates in runs of 8 blocks and more.
    pub long: f64,
    /// Mean length of those.
    pub long_run_blocks: f64,
    /// Mean new blocks between two short runs.
    pub between_short_blocks: f64,
    /// How far back a duplicate's source lies, in blocks written.
    pub reuse: Distance,
    /// Blocks written to places that hold something.
    pub overwrites: f64,
    /// Sizes of streamed files.
    pub streamed_blocks: Distance,
    /// Sizes of paged files.
    pub paged_blocks: Distance,
    /// Of the files that are not stitched, those that are paged.
    pub paged: f64,
    /// Of the stitched files, those that are paged.
    pub stitched_paged: f64,
    /// How many bursts ago the streamed file was last used that is read next.
    pub reread: Distance,
    /// The same of paged files, which are patched as often as they are read.
    pub reread_paged: Distance,
    /// Time from the first request to the last.
    pub duration: Duration,
    /// Repeats a trace exactly.
    pub seed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Texture {
    Plain,
    Copied,
    Stitched,
}

#[derive(Clone, Copy, Debug)]
struct File {
    /// In the history: addresses from here on.
    address: u64,
    blocks: u64,
    texture: Texture,
    is_paged: bool,
}

/// Counts of what was made so far.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    writes: u64,
    reads: u64,
    read_blocks: u64,
    short: [u64; 3],
    long: u64,
    overwrites: u64,
}

/// Requests that follow one another.
#[derive(Default)]
struct Burst {
    time: Duration,
    file: u64,
    /// Lbn and blocks of each request; those of a write burst have their contents in `contents`, in order.
    requests: Vec<(u64, u64)>,
    is_write: bool,
    contents: Vec<Content>,
    next: usize,
    contents_used: usize,
}

/// A trace being made.
pub struct Filer {
    spec: FilerSpec,
    random: Random,
    history: History,
    files: Vec<File>,
    /// Files by their last bursts, oldest first: streamed and paged ones.
    bursts: [Vec<u32>; 2],
    made: Made,
    burst: Burst,
}

impl FilerSpec {
    /// Names what cannot be made.
    pub fn check(&self) -> Result<(), String> {
        let shares = [self.long, self.overwrites, self.paged, self.stitched_paged, self.duplicates()];
        if shares.iter().chain(&self.short).any(|share| !(0.0..=1.0).contains(share)) || self.duplicates() > 0.9 {
            return Err(format!("a share that is none, or more than 0.9 duplicates: {self:?}"));
        }
        if self.written_blocks == 0 || self.written_blocks + self.read_blocks > u64::from(u32::MAX) {
            return Err(format!(
                "{} blocks written, {} read: expected 1 to 2^32",
                self.written_blocks, self.read_blocks
            ));
        }
        let means = [self.write_blocks, self.read_request_blocks, self.between_short_blocks];
        if means.iter().any(|mean| *mean < 1.0) || self.long_run_blocks < LONG_BLOCKS_MIN as f64 {
            return Err("requests have at least one block, and long runs eight".to_owned());
        }
        Ok(())
    }

    /// Share of all duplicates.
    pub fn duplicates(&self) -> f64 {
        self.short.iter().sum::<f64>() + self.long
    }
}

impl Filer {
    /// Begins a trace; an error names what is wrong with the specification.
    pub fn new(spec: FilerSpec) -> Result<Self, String> {
        spec.check()?;
        let random = Random::mixed(spec.seed);
        let (history, files, bursts) = (History::default(), Vec::new(), [Vec::new(), Vec::new()]);
        Ok(Self { spec, random, history, files, bursts, made: Made::default(), burst: Burst::default() })
    }

    /// How much more of something there should be by now, blocks.
    fn behind(&self, share: f64, so_far: u64) -> f64 {
        share * self.history.blocks() as f64 - so_far as f64
    }

    /// Part of the trace that is made, 0 to 1.
    fn progress(&self) -> f64 {
        let blocks = self.history.blocks() + self.made.read_blocks;
        blocks as f64 / (self.spec.written_blocks + self.spec.read_blocks) as f64
    }

    fn make_burst(&mut self) {
        let time = self.spec.duration.mul_f64(self.progress()).max(self.burst.time);
        let contents = std::mem::take(&mut self.burst.contents);
        self.burst = Burst { time, contents, ..Burst::default() };
        self.burst.contents.clear();
        let written = self.history.blocks() as f64 / self.spec.written_blocks as f64;
        if written <= self.made.read_blocks as f64 / self.spec.read_blocks.max(1) as f64 {
            self.make_writes();
        } else {
            self.make_reads();
        }
    }

    fn make_writes(&mut self) {
        self.burst.is_write = true;
        let has_paged = !self.bursts[1].is_empty();
        let file = if has_paged && (self.made.writes as f64) * self.spec.write_blocks < self.history.blocks() as f64 {
            self.patch()
        } else {
            self.write_file()
        };
        self.made.writes += self.burst.requests.len() as u64;
        self.note_burst(file);
    }

    /// Writes new contents to single blocks of a paged file.
    fn patch(&mut self) -> u64 {
        let file = self.used_file(true);
        let File { address, blocks, .. } = self.files[file as usize];
        for _ in 0..self.random.geometric(BURST_REQUESTS) {
            let lbn = self.hot_block(blocks);
            self.burst.requests.push((lbn, 1));
            self.write_new(address + lbn);
        }
        file
    }

    /// Writes a file from its beginning to its end: a new one, or one that is replaced.
    fn write_file(&mut self) -> u64 {
        let texture = self.next_texture();
        let file = self.replaced(texture).unwrap_or_else(|| self.create(texture));
        let File { address, blocks, .. } = self.files[file as usize];
        let end = address + blocks;
        match texture {
            Texture::Plain => self.write_new_run(address, end - address),
            Texture::Copied => self.write_copied(address, end),
            Texture::Stitched => self.write_stitched(address, end),
        };
        let starts = (0..blocks).step_by(REQUEST_BLOCKS_MAX as usize);
        self.burst.requests.extend(starts.map(|lbn| (lbn, REQUEST_BLOCKS_MAX.min(blocks - lbn))));
        file
    }

    fn next_texture(&self) -> Texture {
        if self.history.blocks() == 0 {
            Texture::Plain
        } else if self.behind(self.spec.short.iter().sum(), self.made.short.iter().sum()) > 0.0 {
            Texture::Stitched
        } else if self.behind(self.spec.long, self.made.long) > 0.0 {
            Texture::Copied
        } else {
            Texture::Plain
        }
    }

    /// A file of this texture to write over, if overwrites are behind.
    fn replaced(&mut self, texture: Texture) -> Option<u64> {
        if self.behind(self.spec.overwrites, self.made.overwrites) <= 0.0 {
            return None;
        }
        let drawn = (0..SOURCES_TRIED).map(|_| self.random.scaled(self.files.len() as u64)).collect::<Vec<u64>>();
        drawn.into_iter().find(|file| self.files[*file as usize].texture == texture)
    }

    fn create(&mut self, texture: Texture) -> u64 {
        let stitched = texture == Texture::Stitched;
        let is_paged = self.random.chance(if stitched { self.spec.stitched_paged } else { self.spec.paged });
        let sizes = if is_paged { self.spec.paged_blocks } else { self.spec.streamed_blocks };
        let blocks = sizes.draw(&mut self.random);
        let least = if texture == Texture::Copied { self.spec.long_run_blocks as u64 } else { 1 };
        let address = self.files.last().map_or(0, |file| file.address + file.blocks);
        self.files.push(File { address, blocks: blocks.clamp(least, FILE_BLOCKS_MAX), texture, is_paged });
        self.files.len() as u64 - 1
    }

    fn write_copied(&mut self, address: u64, end: u64) {
        let mut at = address;
        while at < end {
            let wanted =
                LONG_BLOCKS_MIN - 1 + self.random.geometric(self.spec.long_run_blocks - (LONG_BLOCKS_MIN - 1) as f64);
            let (source, blocks) = self.source(wanted.min(end - at), LONG_BLOCKS_MIN);
            self.made.long += blocks;
            self.write_run(at, source, blocks);
            at += blocks;
            let between = self.random.geometric(BETWEEN_LONG_BLOCKS).min(end - at);
            self.write_new_run(at, between);
            at += between;
        }
    }

    fn write_stitched(&mut self, address: u64, end: u64) {
        let mut at = address;
        while at < end {
            let class = self.next_short_class();
            let (least, most) = SHORT_CLASSES[class];
            let wanted = least + self.random.scaled(most - least + 1);
            let (source, blocks) = self.source(wanted.min(end - at), least);
            self.made.short[class] += blocks;
            self.write_run(at, source, blocks);
            at += blocks;
            let between = self.random.geometric(self.spec.between_short_blocks).min(end - at);
            self.write_new_run(at, between);
            at += between;
        }
    }

    /// The class that is furthest behind its share.
    fn next_short_class(&self) -> usize {
        let behind = |class: usize| self.behind(self.spec.short[class], self.made.short[class]);
        (0..SHORT_CLASSES.len()).max_by(|a, b| behind(*a).total_cmp(&behind(*b))).expect("there are classes")
    }

    /// First content and length of a run that some file holds and that was written together: as long as wanted, or the
    /// longest that was met; no blocks if that is shorter than `least`.
    fn source(&mut self, wanted: u64, least: u64) -> (u64, u64) {
        let mut best = (0, 0);
        for _ in 0..SOURCES_TRIED {
            let distance = within(self.spec.reuse.draw(&mut self.random), self.history.blocks(), &mut self.random);
            let (content, _) = self.history.back(distance);
            let blocks = self.together(distance, wanted);
            if blocks > best.1 {
                best = (content, blocks);
            }
            if blocks == wanted {
                break;
            }
        }
        if best.1 < least { (0, 0) } else { best }
    }

    /// How many blocks from this distance on have contents that follow one another, at places that do, and that are
    /// held still; at most `most`.
    fn together(&self, distance: u64, most: u64) -> u64 {
        let (content, address) = self.history.back(distance);
        let follows = |at: &u64| {
            *at < distance && {
                let (next, place) = self.history.back(distance - at);
                (next, place) == (content + at, address + at) && self.history.is_live(next)
            }
        };
        (0..most).take_while(follows).count() as u64
    }

    fn write_run(&mut self, address: u64, content: u64, blocks: u64) {
        (0..blocks).for_each(|at| self.write_block(content + at, address + at));
    }

    fn write_new_run(&mut self, address: u64, blocks: u64) {
        (address..address + blocks).for_each(|address| self.write_new(address));
    }

    fn write_new(&mut self, address: u64) {
        let content = self.history.make_content();
        self.write_block(content, address);
    }

    fn write_block(&mut self, content: u64, address: u64) {
        self.made.overwrites += u64::from(address < self.history.addresses());
        self.history.write(content, address);
        self.burst.contents.push(Content::numbered(content ^ self.spec.seed << u32::BITS));
    }

    fn make_reads(&mut self) {
        let behind = (self.made.reads as f64) * self.spec.read_request_blocks < self.made.read_blocks as f64;
        let is_paged = self.bursts[0].is_empty() || behind && !self.bursts[1].is_empty();
        let file = self.used_file(is_paged);
        let blocks = self.files[file as usize].blocks;
        if is_paged {
            for _ in 0..self.random.geometric(BURST_REQUESTS) {
                let lbn = self.hot_block(blocks);
                self.burst.requests.push((lbn, 1));
            }
        } else {
            let starts = (0..blocks).step_by(REQUEST_BLOCKS_MAX as usize);
            self.burst.requests.extend(starts.map(|lbn| (lbn, REQUEST_BLOCKS_MAX.min(blocks - lbn))));
        }
        self.made.reads += self.burst.requests.len() as u64;
        self.made.read_blocks += self.burst.requests.iter().map(|(_, blocks)| blocks).sum::<u64>();
        self.note_burst(file);
    }

    /// A file that was used so many bursts ago as drawn; any of the remembered ones when that is too far.
    fn used_file(&mut self, is_paged: bool) -> u64 {
        let bursts = &self.bursts[usize::from(is_paged)];
        let distances = if is_paged { self.spec.reread_paged } else { self.spec.reread };
        let ago = within(distances.draw(&mut self.random), bursts.len() as u64, &mut self.random);
        u64::from(bursts[bursts.len() - ago as usize])
    }

    fn hot_block(&mut self, blocks: u64) -> u64 {
        (blocks as f64 * self.random.fraction().powi(HOT_POWER)) as u64
    }

    fn note_burst(&mut self, file: u64) {
        self.burst.file = file;
        let bursts = &mut self.bursts[usize::from(self.files[file as usize].is_paged)];
        if bursts.len() == BURSTS_MAX {
            bursts.drain(..BURSTS_MAX / 2);
        }
        bursts.push(u32::try_from(file).expect("every file has a block, and there are fewer than 2^32"));
    }
}

/// A distance, or any up to `most` if it is beyond.
fn within(distance: u64, most: u64, random: &mut Random) -> u64 {
    if distance <= most { distance } else { 1 + random.scaled(most) }
}

impl Source for Filer {
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        if self.burst.next == self.burst.requests.len() {
            if self.progress() >= 1.0 {
                return Ok(None);
            }
            self.make_burst();
        }
        let burst = &mut self.burst;
        let (lbn, blocks) = burst.requests[burst.next];
        let (time, place) = (burst.time, Place { file: FILE_FIRST + burst.file, lbn });
        burst.next += 1;
        burst.time += REQUEST_EVERY;
        if !burst.is_write {
            return Ok(Some(Event::Read(Read { time, place, blocks })));
        }
        let begin = burst.contents_used;
        burst.contents_used += blocks as usize;
        Ok(Some(Event::Write(Write { time, place, contents: &burst.contents[begin..burst.contents_used] })))
    }
}

#[cfg(test)]
mod tests;
