//! Reads the data area as it is, and times it.

use std::iter;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::base::BaseParts;
use crate::device::Io;
use crate::policy::effective::FilePolicies;
use crate::policy::policies::PolicyFacts;
use crate::read::parts::{Part, joined};
use crate::space::data_area::{DataArea, joined_read};
use crate::state::checkpoint_store::CheckpointStore;
use crate::stats::counters::Statistics;
use crate::{BLOCK_BYTES, Pbn, Result};

/// Reads the data area as it is.
pub struct DataReader {
    data: Arc<DataArea>,
    stored: Arc<CheckpointStore>,
    policy: Arc<PolicyFacts>,
    stats: Arc<Statistics>,
    file_policies: Arc<FilePolicies>,
}

impl DataReader {
    /// It uses these parts.
    pub fn new(base: &BaseParts, file_policies: &Arc<FilePolicies>) -> Self {
        Self {
            data: base.data.clone(),
            stored: base.stored.clone(),
            policy: base.policy.clone(),
            stats: base.stats.clone(),
            file_policies: file_policies.clone(),
        }
    }

    /// Reads blocks from the device as they are.
    pub fn read_device(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        let mut read = joined_read(iter::once((pbn, bytes)))?;
        self.submit(slice::from_mut(&mut read), &mut []).pop().expect("one result")
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
        let mut reads = spans.iter_mut().map(|span| joined(span)).collect::<Result<Vec<_>>>()?;
        Ok(self.submit(&mut reads, &mut []))
    }

    /// Makes reads of the data area, and reads of pages of the block table in parallel. Returns the results of the data
    /// area. Times all of them, and counts the bytes of data.
    pub fn submit(&self, reads: &mut [Io<'_>], pages: &mut [Io<'_>]) -> Vec<Result<()>> {
        let device_reads = self.policy.device_reads();
        let timer = device_reads.begin();
        let results = match pages.is_empty() {
            true => self.data.read_many(reads),
            false => self.data.read_many_while(reads, &mut || self.stored.submit_page_reads(pages)),
        };
        let have_succeeded = results.iter().all(Result::is_ok) && pages.iter().all(Io::is_done);
        let blocks = blocks_of(reads);
        let changed = device_reads.end(timer, &blocks, pages.len(), have_succeeded);
        changed.into_iter().for_each(|change| self.file_policies.piece_cost_changed(change, Instant::now()));
        let read = reads.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let bytes = read.map(|(read, _)| read.len() as u64).sum();
        self.stats.counters.data_bytes_read.fetch_add(bytes, Relaxed);
        results
    }
}

/// The number of blocks of each read of the data area.
pub fn blocks_of(reads: &[Io<'_>]) -> Vec<u64> {
    reads.iter().map(|read| (read.len() / BLOCK_BYTES) as u64).collect()
}
