//! Reads the data area as it is, and times it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::base::part;
use crate::device::Io;
use crate::device::buffer::PooledBuf;
use crate::format::fragment::is_fragment;
use crate::policy::effective::FilePolicies;
use crate::read::fragments::{FragmentReader, PlannedRead};
use crate::read::parts::{Part, Way, joined};
use crate::{BLOCK_BYTES, Pbn, Result};

part! {
    /// Reads the data area as it is.
    pub struct DataReader {
        base: data, stored, policy, stats;
        file_policies: FilePolicies, fragment_reader: FragmentReader
    }
}

impl DataReader {
    /// A buffer of this many bytes to read to.
    pub fn take_buffer(&self, bytes: usize) -> PooledBuf {
        self.data.take_buffer(bytes)
    }

    /// Reads blocks from the device as they are. A fragment is expanded.
    pub fn read_device(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        let mut span = [Part { pbn, bytes }];
        self.read_as_they_are(&mut [&mut span])?.pop().expect("one result")
    }

    /// Reads single blocks as they are, one after the other into `bytes`: one request each, all of them at once.
    pub fn read_blocks_apart(&self, pbns: &[Pbn], bytes: &mut [u8]) -> Result<()> {
        assert_eq!(bytes.len(), pbns.len() * BLOCK_BYTES, "bytes for {} blocks", pbns.len());
        let blocks = pbns.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES));
        let mut parts: Vec<Part<'_>> = blocks.map(|(pbn, bytes)| Part { pbn: *pbn, bytes }).collect();
        self.read_as_they_are(&mut parts.chunks_mut(1).collect::<Vec<_>>())?.into_iter().collect()
    }

    /// Reads spans past the read cache, all of them at once, and returns the result of each. On an error none is read.
    pub fn read_as_they_are(&self, spans: &mut [&mut [Part<'_>]]) -> Result<Vec<Result<()>>> {
        self.read_spans(spans, &[], &mut [], |_| ())
    }

    /// Reads spans, each by its way, or past the host's page cache if it has none, and pages of the block table in
    /// parallel. `count` gets the blocks of each request.
    pub fn read_spans(
        &self,
        spans: &mut [&mut [Part<'_>]],
        ways: &[Way],
        pages: &mut [Io<'_>],
        count: impl Fn(u64),
    ) -> Result<Vec<Result<()>>> {
        let is_of_fragments = |span: &[Part<'_>]| span.first().is_some_and(|part| is_fragment(part.pbn));
        let are_of_fragments: Vec<bool> = spans.iter().map(|span| is_of_fragments(span)).collect();
        let (mut reads, mut fragments) = (Vec::with_capacity(spans.len()), Vec::new());
        for (at, (span, is_of_fragments)) in spans.iter_mut().zip(&are_of_fragments).enumerate() {
            let way = ways.get(at).copied().unwrap_or(Way::PastHostCache);
            match is_of_fragments {
                true => fragments.push(&mut **span),
                false => reads.push(on_its_way(joined(span)?, way)),
            }
        }
        let of_blocks = reads.len();
        let mut planned = (!fragments.is_empty()).then(|| self.fragment_reader.plan(fragments));
        reads.extend(planned.iter_mut().flat_map(PlannedRead::reads));
        blocks_of(&reads).into_iter().for_each(count);
        let mut of_blocks_and_extents = match reads.is_empty() && pages.is_empty() {
            true => Vec::new(),
            false => self.submit(&mut reads, pages),
        };
        drop(reads);
        let of_extents = of_blocks_and_extents.split_off(of_blocks);
        let of_fragments = planned.map(|planned| self.fragment_reader.expand(planned, &of_extents)).unwrap_or_default();
        let (mut of_blocks, mut of_fragments) = (of_blocks_and_extents.into_iter(), of_fragments.into_iter());
        let result = |is_of_fragments: &bool| match is_of_fragments {
            true => of_fragments.next(),
            false => of_blocks.next(),
        };
        Ok(are_of_fragments.iter().map(result).map(|result| result.expect("a result for each span")).collect())
    }

    /// Whether reads can go through a page cache of the host.
    pub fn has_host_cache(&self) -> bool {
        self.data.has_host_cache()
    }

    /// Makes the host's page cache forget a block.
    pub fn leave_host_cache(&self, pbn: Pbn) {
        self.data.leave_host_cache(pbn);
    }

    /// Reads spans past the read cache, all of them at once. A block that cannot be read becomes zeros, which no stored
    /// block has. The blocks of a failed request are read again one by one.
    pub fn read_or_clear(&self, spans: &mut [&mut [Part<'_>]]) {
        let results = self.read_as_they_are(spans);
        let has_failed = |at: usize| results.as_ref().map_or(true, |results| results[at].is_err());
        for part in spans.iter_mut().enumerate().filter(|(at, _)| has_failed(*at)).flat_map(|(_, span)| span.iter_mut())
        {
            for (pbn, block) in part.pbns().zip(part.bytes.chunks_exact_mut(BLOCK_BYTES)) {
                if self.read_device(pbn, block).is_err() {
                    block.fill(0);
                }
            }
        }
    }

    /// Makes reads of the data area, and reads of pages of the block table in parallel. Returns the results of the data
    /// area. Times all of them, and counts the bytes of data.
    fn submit(&self, reads: &mut [Io<'_>], pages: &mut [Io<'_>]) -> Vec<Result<()>> {
        let device_reads = self.policy.device_reads();
        let timer = device_reads.begin();
        let results = match pages.is_empty() {
            true => self.data.read_many(reads),
            false => self.data.read_many_while(reads, &mut || self.stored.submit_page_reads(pages)),
        };
        let have_succeeded = results.iter().all(Result::is_ok) && pages.iter().all(Io::is_done);
        // The host's page cache may have answered, whose time says nothing about the device.
        let is_of_device = !reads.iter().any(Io::is_through_host_cache);
        let blocks = blocks_of(reads);
        let changed = device_reads.end(timer, &blocks, pages.len(), have_succeeded && is_of_device);
        changed.into_iter().for_each(|change| self.file_policies.piece_cost_changed(change, Instant::now()));
        let read = reads.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let bytes = read.map(|(read, _)| read.len() as u64).sum();
        self.stats.counters.data_bytes_read.fetch_add(bytes, Relaxed);
        results
    }
}

fn on_its_way(mut read: Io<'_>, way: Way) -> Io<'_> {
    if way == Way::ThroughHostCache {
        read.through_host_cache();
    }
    read
}

/// The number of blocks of each read of the data area.
fn blocks_of(reads: &[Io<'_>]) -> Vec<u64> {
    reads.iter().map(|read| (read.len() / BLOCK_BYTES) as u64).collect()
}
