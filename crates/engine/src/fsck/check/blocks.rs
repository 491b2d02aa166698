//! Compares the content of live blocks with their tags: the third part of an audit, done along with the second.
//!
//! Blocks are gathered in order until there are enough for long requests by several threads, which keep the device busy
//! and hash the data. A few blocks are read without threads.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;

use parking_lot::Mutex;

use super::CheckReport;
use super::fault::Fault;
use crate::device::buffer::AlignedBuf;
use crate::format::fragment::is_fragment;
use crate::fsck::check::Checker;
use crate::read::parts::Part;
use crate::{BLOCK_BYTES, Blocks, Pbn, Result, Tag};

/// Blocks gathered before they are read: 256 MiB, so that threads waiting at the end cost little.
const GATHERED_BLOCKS_MAX: usize = 1 << 16;
/// Blocks of one request: 1 MiB.
const REQUEST_BLOCKS: u64 = 256;
/// A gap up to this long is read over, because that costs less than a second request.
const GAP_BLOCKS_MAX: u64 = 8;
/// Concurrent requests: enough that a device is never idle while a thread hashes.
const READERS: usize = 4;
/// Fewer requests than this are not worth a thread.
const THREADED_REQUESTS_MIN: usize = 8;

/// Live blocks and the tags of their expected content, ascending.
#[derive(Default)]
pub struct Contents {
    blocks: Vec<(Pbn, Tag)>,
}

impl Contents {
    /// Adds a block. False: the list is full, and has to be verified first.
    pub fn add(&mut self, pbn: Pbn, tag: Tag) -> bool {
        let has_room = self.blocks.len() < GATHERED_BLOCKS_MAX;
        if has_room {
            let before = self.blocks.last().map(|(last, _)| *last);
            debug_assert!(before.is_none_or(|before| before < pbn), "block {pbn} is gathered after {before:?}");
            self.blocks.push((pbn, tag));
        }
        has_room
    }
}

impl Checker {
    /// Reads the gathered blocks, reports those with wrong content, and empties the list.
    pub fn verify(&self, contents: &mut Contents, report: &mut CheckReport) -> Result<()> {
        let blocks = std::mem::take(&mut contents.blocks);
        let requests = requests(&blocks);
        let requested = requests.iter().map(|request| request.len()).sum::<usize>();
        assert_eq!(requested, blocks.len(), "{} requests leave out gathered blocks", requests.len());
        let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let work = || {
            let mut buffer = AlignedBuf::new(0);
            while let Some(request) = requests.get(next.fetch_add(1, Relaxed)) {
                let faults = self.verify_request(request, &mut buffer);
                found.lock().extend(faults);
            }
        };
        if requests.len() < THREADED_REQUESTS_MIN {
            work();
        } else {
            thread::scope(|scope| {
                for _ in 1..READERS {
                    // With one thread fewer the read is slower, but as good.
                    let _ = thread::Builder::new().name("oncefs-read".to_owned()).spawn_scoped(scope, work);
                }
                work();
            });
        }
        report.read += Blocks(blocks.len() as u64);
        let mut faults = found.into_inner();
        faults.sort_unstable_by_key(|(pbn, _)| *pbn);
        faults.into_iter().for_each(|(_, fault)| report.note(fault));
        contents.blocks = blocks;
        contents.blocks.clear();
        Ok(())
    }

    /// Expands fragments and compares them with their tags.
    fn verify_fragments(&self, fragments: &[(Pbn, Tag)]) -> Vec<(Pbn, Fault)> {
        let mut bytes = AlignedBuf::new(fragments.len() * BLOCK_BYTES);
        let blocks = fragments.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES));
        let mut parts: Vec<Part<'_>> = blocks.map(|((pbn, _), bytes)| Part { pbn: *pbn, bytes }).collect();
        let results = self.fragment_reader.read_spans(parts.chunks_mut(1).collect());
        let mut faults = Vec::new();
        for (((pbn, tag), result), block) in fragments.iter().zip(results).zip(bytes.chunks_exact(BLOCK_BYTES)) {
            let found = self.hasher.tag(block);
            match result {
                Err(error) => faults.push((*pbn, Fault::Unreadable { pbn: *pbn, error: error.to_string() })),
                Ok(()) if found != *tag => faults.push((*pbn, Fault::Rot { pbn: *pbn, stored: *tag, found })),
                Ok(()) => {}
            }
        }
        faults
    }

    /// Reads blocks that are near each other in one request. If that fails, reads them one by one, to name the
    /// unreadable ones.
    fn verify_request(&self, blocks: &[(Pbn, Tag)], buffer: &mut AlignedBuf) -> Vec<(Pbn, Fault)> {
        if blocks.first().is_some_and(|(pbn, _)| is_fragment(*pbn)) {
            return self.verify_fragments(blocks);
        }
        let Some((first, end)) = blocks.first().map(|first| first.0).zip(blocks.last().map(|last| last.0.plus(1)))
        else {
            return Vec::new();
        };
        assert!(end.0 - first.0 <= REQUEST_BLOCKS, "one request from {first} to {end}");
        let bytes = (end.0 - first.0) as usize * BLOCK_BYTES;
        if buffer.len() < bytes {
            *buffer = AlignedBuf::new(bytes);
        }
        match self.data.try_read(first, &mut buffer[..bytes]) {
            Ok(()) => {}
            Err(error) if blocks.len() == 1 => {
                return vec![(first, Fault::Unreadable { pbn: first, error: error.to_string() })];
            }
            Err(_) => return blocks.chunks(1).flat_map(|block| self.verify_request(block, buffer)).collect(),
        }
        let wrong = blocks.iter().filter_map(|(pbn, tag)| {
            let at = (pbn.0 - first.0) as usize * BLOCK_BYTES;
            // A staged block is not on the device yet.
            let found = match self.staging.get(*pbn) {
                Some(block) => self.hasher.tag(&block),
                None => self.hasher.tag(&buffer[at..at + BLOCK_BYTES]),
            };
            (found != *tag).then_some((*pbn, Fault::Rot { pbn: *pbn, stored: *tag, found }))
        });
        wrong.collect()
    }
}

/// Splits ascending blocks where a gap or a request would be too long.
fn requests(mut blocks: &[(Pbn, Tag)]) -> Vec<&[(Pbn, Tag)]> {
    let mut requests = Vec::new();
    while let Some((first, _)) = blocks.first() {
        let within = &blocks[..blocks.partition_point(|(pbn, _)| pbn.0 < first.0 + REQUEST_BLOCKS)];
        let gap = within.windows(2).position(|pair| pair[1].0.0 > pair[0].0.0 + 1 + GAP_BLOCKS_MAX);
        let fits = gap.map_or(within.len(), |gap| gap + 1);
        let (request, rest) = blocks.split_at(fits);
        requests.push(request);
        blocks = rest;
    }
    requests
}
