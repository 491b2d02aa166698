//! A design whose volume is read, too: a buffer cache, read-ahead, and the disk requests that are left.
//!
//! The buffer cache holds blocks by their pbn, so that a shared block is there once; what was used least recently
//! leaves. What is written stays in it. A read that continues its file's last one, or begins a file, is sequential and
//! reads ahead when it misses.

use std::collections::{BTreeMap, HashMap};

use lru::LruCache;
use oncefs_dedup::Pbn;

use crate::designs::{Design, Outcome};
use crate::device::{DiskWork, ReadOutcome};
use crate::trace::{Place, Read, Write};
use crate::volume::Volume;

/// Blocks read ahead: 128 KiB, what Linux does by default.
const READ_AHEAD_BLOCKS: u64 = 32;

/// Blocks of a read from a file's beginning to its end, what is read ahead included.
const COLD_READ_BLOCKS: usize = 48;

/// A design with a buffer cache.
pub struct Served<D> {
    design: D,
    cache: LruCache<Pbn, ()>,
    cache_blocks: u64,
    /// Per file: where its last read ended.
    ends: HashMap<u64, u64>,
    outcome: ReadOutcome,
}

/// A block to be read from the device, and whether a client waits for it.
type Missing = (Pbn, bool);

impl<D: Design> Served<D> {
    /// A design whose buffer cache holds so many blocks.
    pub fn new(design: D, cache_blocks: u64) -> Self {
        let (cache, ends) = (LruCache::unbounded(), HashMap::new());
        Self { design, cache, cache_blocks, ends, outcome: ReadOutcome::default() }
    }

    /// What became of the reads so far.
    pub fn reads(&self) -> &ReadOutcome {
        &self.outcome
    }

    fn keep(&mut self, pbn: Pbn) {
        self.cache.put(pbn, ());
        if self.cache.len() as u64 > self.cache_blocks {
            self.cache.pop_lru();
        }
    }

    /// Blocks that are read ahead of a request if it misses.
    fn ahead(&mut self, read: &Read) -> u64 {
        let Place { file, lbn } = read.place;
        let last = self.ends.insert(file, lbn + read.blocks);
        if lbn == 0 || last == Some(lbn) { READ_AHEAD_BLOCKS } else { 0 }
    }

    /// Blocks that the device has to read: what is asked for, and with it what is read ahead.
    fn missing(&mut self, read: &Read, ahead: u64) -> Vec<Missing> {
        let mut missing = Vec::new();
        for at in 0..read.blocks + ahead {
            let (is_asked, pbn) = (at < read.blocks, self.design.volume().at(read.place.plus(at as usize)));
            if !is_asked && (missing.is_empty() || pbn.is_none()) {
                break;
            }
            let is_cached = pbn.is_none_or(|pbn| self.cache.get(&pbn).is_some());
            self.outcome.blocks += u64::from(is_asked);
            self.outcome.hits += u64::from(is_asked && is_cached);
            if let Some(pbn) = pbn.filter(|_| !is_cached) {
                self.keep(pbn);
                missing.push((pbn, is_asked));
            }
        }
        missing
    }
}

/// Reads blocks in the order in which they lie, adjacent ones with one request, and notes the requests. Returns what a
/// client waits for.
fn fetch(mut missing: Vec<Missing>, disk_requests: &mut BTreeMap<u32, u64>) -> DiskWork {
    missing.sort_unstable();
    let mut waited = DiskWork::default();
    for request in missing.chunk_by(|(a, _), (b, _)| a.plus(1) == *b) {
        let blocks = request.len() as u32;
        *disk_requests.entry(blocks).or_default() += 1;
        if request.iter().any(|(_, is_asked)| *is_asked) {
            waited.requests += 1;
            waited.blocks += blocks;
        }
    }
    waited
}

/// Each of these files is read once from its beginning to its end, and nothing of it is cached.
pub fn read_cold(volume: &Volume, files: impl Iterator<Item = u64>) -> ReadOutcome {
    let mut outcome = ReadOutcome::default();
    for file in files {
        for lbns in volume.lbns(file).chunks(COLD_READ_BLOCKS) {
            let pbns = lbns.iter().filter_map(|lbn| volume.at(Place { file, lbn: lbn.0 }));
            let waited = fetch(pbns.map(|pbn| (pbn, true)).collect(), &mut outcome.disk_requests);
            outcome.blocks += lbns.len() as u64;
            *outcome.waits.entry(waited).or_default() += 1;
        }
    }
    outcome
}

impl<D: Design> Design for Served<D> {
    fn write(&mut self, write: &Write) {
        self.design.write(write);
        for (place, _) in write.blocks() {
            if let Some(pbn) = self.design.volume().at(place) {
                self.keep(pbn);
            }
        }
    }

    fn read(&mut self, read: &Read) {
        self.design.read(read);
        let ahead = self.ahead(read);
        let missing = self.missing(read, ahead);
        let waited = fetch(missing, &mut self.outcome.disk_requests);
        *self.outcome.waits.entry(waited).or_default() += 1;
    }

    /// What is remapped meanwhile stays in the cache: both blocks were read to be compared.
    fn idle(&mut self) {
        self.design.idle();
        for (from, to) in self.design.take_remapped() {
            if self.cache.pop(&from).is_some() {
                self.keep(to);
            }
        }
    }

    fn outcome(&self) -> Outcome {
        self.design.outcome()
    }

    fn volume(&self) -> &Volume {
        self.design.volume()
    }

    fn check(&self) {
        self.design.check();
        let waits: u64 = self.outcome.waits.iter().map(|(work, count)| u64::from(work.requests) * count).sum();
        assert!(waits <= self.outcome.disk_requests.values().sum(), "clients wait for requests that there are");
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::designs::{Inline, NoIndex};
    use crate::testing::write;

    fn read(served: &mut Served<Inline<NoIndex>>, lbn: u64, blocks: u64) {
        served.read(&Read { time: Duration::ZERO, place: Place { file: 1, lbn }, blocks });
    }

    /// A file of 100 blocks, in two extents of 40 and 60 blocks, and nothing of it in the cache.
    fn broken_file(cache_blocks: u64) -> Served<Inline<NoIndex>> {
        let mut served = Served::new(Inline::new(NoIndex), 0);
        write(&mut served, 40, &(40..100).collect::<Vec<u64>>());
        write(&mut served, 0, &(0..40).collect::<Vec<u64>>());
        Served { cache_blocks, ..served }
    }

    #[test]
    fn a_sequential_read_is_read_ahead_in_requests_as_long_as_extents_are() {
        let mut served = broken_file(1_000);
        (0..10).for_each(|at| read(&mut served, at * 10, 10));
        // 0 to 42 in two extents, of which a client waits for the first; then 42 to 82 and 82 to 100.
        assert_eq!(served.reads().disk_requests, [(2, 1), (40, 2), (18, 1)].into());
        let waits = [(0, 0, 7), (1, 40, 2), (1, 18, 1)];
        let waits = waits.map(|(requests, blocks, count)| (DiskWork { requests, blocks }, count));
        assert_eq!(served.reads().waits, waits.into());
        served.check();
    }

    #[test]
    fn what_is_asked_for_at_random_is_read_alone() {
        let mut served = broken_file(1_000);
        for lbn in [70, 20, 70] {
            read(&mut served, lbn, 1);
        }
        assert_eq!((served.reads().disk_requests.clone(), served.reads().hits), ([(1, 2)].into(), 1));
    }

    #[test]
    fn cold_files_are_read_in_the_order_in_which_they_lie() {
        let served = broken_file(0);
        let outcome = read_cold(served.volume(), [1].into_iter());
        // Of the blocks 0 to 47 the last eight lie first; then come 48 to 95 and 96 to 99.
        assert_eq!(outcome.disk_requests, [(8, 1), (40, 1), (48, 1), (4, 1)].into());
        assert_eq!((outcome.blocks, outcome.hits), (100, 0));
    }

    #[test]
    fn without_a_cache_everything_is_read_each_time() {
        let mut served = broken_file(0);
        for _ in 0..2 {
            read(&mut served, 50, 4);
        }
        assert_eq!((served.reads().disk_requests.clone(), served.reads().hits), ([(4, 2)].into(), 0));
    }

    #[test]
    fn what_was_just_written_need_not_be_read() {
        let mut served = Served::new(Inline::new(NoIndex), 10);
        write(&mut served, 0, &[1, 2, 3]);
        read(&mut served, 0, 3);
        assert_eq!((served.reads().hit_percent(), served.reads().disk_requests.len()), (100.0, 0));
    }
}
