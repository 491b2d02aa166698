//! Reads the data area as it is, and times it.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use crate::base::BaseParts;
use crate::policy::effective::FilePolicies;
use crate::policy::policies::PolicyFacts;
use crate::read::parts::{Part, joined};
use crate::space::data_area::DataArea;
use crate::stats::counters::Statistics;
use crate::{BLOCK_BYTES, Pbn, Result};

/// Reads the data area as it is.
pub struct DataReader {
    data: Arc<DataArea>,
    policy: Arc<PolicyFacts>,
    stats: Arc<Statistics>,
    file_policies: Arc<FilePolicies>,
}

impl DataReader {
    /// It uses these parts.
    pub fn new(base: &BaseParts, file_policies: &Arc<FilePolicies>) -> Self {
        Self {
            data: base.data.clone(),
            policy: base.policy.clone(),
            stats: base.stats.clone(),
            file_policies: file_policies.clone(),
        }
    }
}

impl DataReader {
    /// Reads blocks from the device as they are.
    pub fn read_device(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        self.timed_device_reads(&[blocks], || vec![self.data.read(pbn, bytes)]).pop().expect("one result")
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
        let blocks: Vec<u64> = reads.iter().map(|read| (read.len() / BLOCK_BYTES) as u64).collect();
        Ok(self.timed_device_reads(&blocks, || self.data.read_many(&mut reads)))
    }

    /// Makes requests that read these numbers of blocks, and perhaps pages too. Times them, and counts the bytes of
    /// data.
    pub fn timed_device_reads(&self, blocks: &[u64], requests: impl FnOnce() -> Vec<Result<()>>) -> Vec<Result<()>> {
        let (results, changed) = self.policy.timed_device_reads(blocks, requests);
        changed.into_iter().for_each(|change| self.file_policies.piece_cost_changed(change, Instant::now()));
        let read = blocks.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let read: u64 = read.map(|(blocks, _)| blocks * BLOCK_BYTES as u64).sum();
        self.stats.counters.data_bytes_read.fetch_add(read, Relaxed);
        results
    }
}
