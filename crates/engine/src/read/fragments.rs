//! Reads fragments: the blocks of the device that hold them, in as few requests as possible and all of them at once,
//! and expands each into its place. What comes out is compared with tags like any block that was read.
//!
//! A read has three steps. Planning looks up the places. The caller makes the requests, together with those for blocks
//! that are not compressed. Then the fragments are expanded straight into the caller's memory, those of a large read by
//! several threads.

use std::thread;

use oncefs_compress::Expander;

use crate::base::part;
use crate::device::Io;
use crate::device::buffer::PooledBuf;
use crate::format::fragment::{FragmentPlace, is_number};
use crate::format::page::page_of;
use crate::read::parts::Part;
use crate::state::loading::Metadata;
use crate::state::table::damaged_entry;
use crate::sync::{LockRank, Mutex};
use crate::{BLOCK_BYTES, Error, Pbn, Result, Tag};

/// Fragments this near to each other are read in one request. So a request of a program reads at most four times as
/// much as it wants.
pub const GAP_BYTES_MAX: u64 = 8 << 10;
/// Most bytes of a request.
const REQUEST_BYTES_MAX: u64 = 1 << 20;
/// Pages of the block table looked at together.
const PORTION_PAGES: usize = 32;
/// Idle expanders that are kept.
const EXPANDERS_MAX: usize = 4;
/// Most threads that expand the fragments of one read, including the caller's.
const THREADS_MAX: usize = 4;
/// A further thread is started for each this many fragments. Starting it takes as long as expanding a few of them.
const FRAGMENTS_PER_THREAD_MIN: usize = 48;
/// How many fragments a thread takes at a time.
const SHARE: usize = 16;

part! {
    /// Reads fragments, unverified.
    pub struct FragmentReader {
        base: data, hasher;
        metadata: Metadata
    } own {
        /// How many threads may expand the fragments of one read.
        threads: usize = threads(),
        /// Expanders that no thread uses.
        idle: Mutex<Vec<Expander>> = Mutex::new(LockRank::Part, Vec::new())
    }
}

fn threads() -> usize {
    // A scheduler of tests knows no other threads than its own.
    match cfg!(feature = "schedules") {
        true => 1,
        false => thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX),
    }
}

/// A read of fragments whose places are known.
pub struct PlannedRead<'a> {
    /// In the order of their places.
    placed: Vec<(FragmentPlace, Wanted<'a>)>,
    extents: Vec<Extent>,
    /// The bytes of each extent.
    buffers: Vec<PooledBuf>,
    /// The result of each span so far.
    results: Vec<Result<()>>,
}

impl PlannedRead<'_> {
    /// The requests, one for each extent.
    pub fn reads(&mut self) -> impl Iterator<Item = Io<'_>> {
        self.extents.iter().zip(&mut self.buffers).map(|(extent, buffer)| Io::read(extent.at, &mut buffer[..]))
    }
}

/// A fragment that is wanted.
struct Wanted<'a> {
    pbn: Pbn,
    /// The index of its span.
    span: usize,
    /// The tag that its content must have, if the table cannot say it.
    tag: Option<Tag>,
    block: &'a mut [u8],
}

/// A fragment that was read, and the destination of its content.
struct Found<'a> {
    wanted: Wanted<'a>,
    place: FragmentPlace,
    bytes: &'a [u8],
}

/// Adjacent blocks of the device that are read together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    at: u64,
    end: u64,
}

impl FragmentReader {
    /// Looks up where the fragments of spans lie. Spans come in ascending order of their numbers.
    pub fn plan<'a>(&self, spans: Vec<&'a mut [Part<'_>]>) -> PlannedRead<'a> {
        let mut results: Vec<Result<()>> = spans.iter().map(|_| Ok(())).collect();
        let mut wanted = Vec::new();
        for (span, parts) in spans.into_iter().enumerate() {
            for part in parts {
                let blocks = part.pbns().zip(part.bytes.chunks_exact_mut(BLOCK_BYTES));
                wanted.extend(blocks.map(|(pbn, block)| Wanted { pbn, span, tag: None, block }));
            }
        }
        let mut placed = Vec::with_capacity(wanted.len());
        let places = self.places_of(&wanted.iter().map(|wanted| wanted.pbn).collect::<Vec<_>>());
        for (wanted, place) in wanted.into_iter().zip(places) {
            match place {
                Ok((tag, place)) => placed.push((place, Wanted { tag, ..wanted })),
                Err(error) => note(&mut results, wanted.span, error),
            }
        }
        placed.sort_by_key(|(place, _)| place.at);
        let extents = extents_of(placed.iter().map(|(place, _)| *place));
        let buffers = extents.iter().map(|extent| self.data.take_buffer((extent.end - extent.at) as usize)).collect();
        PlannedRead { placed, extents, buffers, results }
    }

    /// Reads spans of fragments, and returns the result of each.
    pub fn read_spans(&self, spans: Vec<&mut [Part<'_>]>) -> Vec<Result<()>> {
        let mut planned = self.plan(spans);
        let mut reads: Vec<Io<'_>> = planned.reads().collect();
        let read = self.data.read_many(&mut reads);
        drop(reads);
        self.expand(planned, &read)
    }

    /// Expands the fragments of a read whose requests had these results. Returns the result of each span. After an
    /// error the bytes of a span are undefined.
    pub fn expand(&self, planned: PlannedRead<'_>, read: &[Result<()>]) -> Vec<Result<()>> {
        let PlannedRead { placed, extents, buffers, mut results } = planned;
        assert_eq!(read.len(), extents.len(), "a result for each request");
        let mut found = Vec::with_capacity(placed.len());
        for (place, wanted) in placed {
            let index = extents.partition_point(|extent| extent.end < place.end());
            if let Err(error) = &read[index] {
                let error = Error::corrupt(format!("fragment {}", wanted.pbn), error.to_string());
                note(&mut results, wanted.span, error);
                continue;
            }
            let from = (place.at - extents[index].at) as usize;
            found.push(Found { wanted, place, bytes: &buffers[index][from..from + usize::from(place.bytes)] });
        }
        for (span, error) in self.expand_all(&mut found) {
            note(&mut results, span, error);
        }
        results
    }

    /// Expands fragments, by several threads if they are many. Returns what failed, by span.
    fn expand_all(&self, found: &mut [Found<'_>]) -> Vec<(usize, Error)> {
        match (found.len() / FRAGMENTS_PER_THREAD_MIN).clamp(1, self.threads) {
            1 => self.with_expander(|expander| self.expand_share(found, expander)),
            threads => self.expand_together(found, threads),
        }
    }

    fn expand_together(&self, found: &mut [Found<'_>], threads: usize) -> Vec<(usize, Error)> {
        let left = Mutex::new(LockRank::Leaf, found.chunks_mut(SHARE));
        let failed = Mutex::new(LockRank::Leaf, Vec::new());
        let expand_what_is_left = || {
            self.with_expander(|expander| {
                loop {
                    let Some(share) = left.lock().next() else { break };
                    let errors = self.expand_share(share, expander);
                    failed.lock().extend(errors);
                }
            });
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                let thread = thread::Builder::new().name("oncefs-expand".to_owned());
                // Without another thread the caller's expands all of them.
                if thread.spawn_scoped(scope, expand_what_is_left).is_err() {
                    break;
                }
            }
            expand_what_is_left();
        });
        failed.into_inner()
    }

    /// Works with an expander that no other thread uses, and keeps it for the next read.
    fn with_expander<T>(&self, work: impl FnOnce(&mut Expander) -> T) -> T {
        let mut expander = self.idle.lock().pop().unwrap_or_default();
        let result = work(&mut expander);
        let mut idle = self.idle.lock();
        if idle.len() < EXPANDERS_MAX {
            idle.push(expander);
        }
        result
    }

    /// Expands some fragments. Returns what failed, by span.
    fn expand_share(&self, share: &mut [Found<'_>], expander: &mut Expander) -> Vec<(usize, Error)> {
        let expanded = share.iter_mut().map(|Found { wanted, place, bytes }| {
            let result = expander.expand(place.coding, bytes, wanted.block);
            result.map_err(|_| (wanted.span, not_expanded(wanted.pbn, *place)))?;
            match wanted.tag.is_none_or(|tag| self.hasher.tag(wanted.block) == tag) {
                true => Ok(()),
                false => Err((wanted.span, not_as_listed(wanted.pbn, *place))),
            }
        });
        expanded.filter_map(std::result::Result::err).collect()
    }

    /// Where fragments lie. Of one whose entry is damaged, also the tag in the directory of its pack.
    fn places_of(&self, numbers: &[Pbn]) -> Vec<Result<(Option<Tag>, FragmentPlace)>> {
        let by_page: Vec<&[Pbn]> = numbers.chunk_by(|a, b| page_of(*a) == page_of(*b)).collect();
        let portions = by_page.chunks(PORTION_PAGES);
        portions.flat_map(|portion| self.places_in(portion)).collect()
    }

    fn places_in(&self, portion: &[&[Pbn]]) -> Vec<Result<(Option<Tag>, FragmentPlace)>> {
        let pages = || portion.iter().map(|numbers| page_of(numbers[0])).collect();
        let numbers = || portion.iter().flat_map(|numbers| numbers.iter().copied());
        self.metadata.bring_fragment_pages(pages());
        let places = self.metadata.with_pages(pages, |pages| {
            let place = |pbn: Pbn| match is_number(pbn) {
                true if pages.is_damaged(pbn) => match self.metadata.found_place(pbn) {
                    Some((tag, place)) => Ok((Some(tag), place)),
                    None => Err(damaged_entry(pbn)),
                },
                true => pages.fragment_place(pbn).map(|place| (None, place)).ok_or_else(|| no_place(pbn)),
                false => Err(no_place(pbn)),
            };
            numbers().map(place).collect::<Vec<_>>()
        });
        places.unwrap_or_else(|error| numbers().map(|pbn| Err(unread(pbn, &error))).collect())
    }
}

/// Notes the first error of a span.
fn note(results: &mut [Result<()>], span: usize, error: Error) {
    if results[span].is_ok() {
        results[span] = Err(error);
    }
}

/// The requests for places, which come in ascending order.
fn extents_of(places: impl Iterator<Item = FragmentPlace>) -> Vec<Extent> {
    let block = BLOCK_BYTES as u64;
    let mut extents: Vec<Extent> = Vec::new();
    for place in places {
        let (at, end) = (place.at / block * block, place.end().next_multiple_of(block));
        match extents.last_mut() {
            Some(last) if at <= last.end + GAP_BYTES_MAX && end.max(last.end) - last.at <= REQUEST_BYTES_MAX => {
                last.end = last.end.max(end);
            }
            _ => extents.push(Extent { at, end }),
        }
    }
    extents
}

fn no_place(pbn: Pbn) -> Error {
    Error::corrupt("the block table", format!("fragment {pbn} has no place"))
}

fn unread(pbn: Pbn, error: &Error) -> Error {
    Error::corrupt(format!("the place of fragment {pbn}"), error.to_string())
}

fn not_expanded(pbn: Pbn, place: FragmentPlace) -> Error {
    let why = format!("the {} bytes at byte {} of the data area are no compressed block", place.bytes, place.at);
    Error::corrupt(format!("fragment {pbn}"), why)
}

fn not_as_listed(pbn: Pbn, place: FragmentPlace) -> Error {
    let why = format!("the content at byte {} of the data area is not the one that its pack lists", place.at);
    Error::corrupt(format!("fragment {pbn}"), why)
}

#[cfg(test)]
mod tests {
    use oncefs_compress::Coding;

    use super::*;

    fn extents(places: &[(u64, u16)]) -> Vec<(u64, u64)> {
        let place = |&(at, bytes): &(u64, u16)| FragmentPlace { at, bytes, coding: Coding::Lz4, blocks_after: 1 };
        extents_of(places.iter().map(place)).iter().map(|extent| (extent.at, extent.end)).collect()
    }

    #[test]
    fn fragments_of_a_pack_and_of_packs_nearby_are_one_request() {
        assert_eq!(extents(&[(4096, 100), (4196, 3_000), (8_000, 500)]), [(4096, 12_288)]);
        assert_eq!(extents(&[(4096, 100), (16_384, 10)]), [(4096, 20_480)]);
        assert_eq!(extents(&[(4096, 100), (20_480, 10)]), [(4096, 8192), (20_480, 24_576)]);
        assert_eq!(extents(&[(8191, 2)]), [(4096, 12_288)]);
    }

    #[test]
    fn a_request_has_a_longest_length() {
        let places: Vec<(u64, u16)> = (1..=300).map(|n| (n * 4096, 3_584)).collect();
        let extents = extents(&places);
        assert!(extents.iter().all(|(at, end)| end - at <= REQUEST_BYTES_MAX) && extents.len() == 2, "{extents:?}");
    }
}
