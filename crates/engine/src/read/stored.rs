//! Reads parts of the data area: from memory as far as possible, the rest in parallel requests.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::cache::AROUND;
use super::parts::{Part, copy_repeated, cut_spans, joined, take_repeated};
use crate::core::Core;
use crate::{BLOCK_BYTES, Error, MapId, Pbn, Result};

/// Longer runs are either entirely in memory or read as a whole.
pub const CACHED_RUN_BLOCKS_MAX: usize = 32;

/// The reader of reads on behalf of no file. No map has this id.
pub const NOBODY: MapId = MapId(0);

impl Core {
    /// Reads adjacent blocks of the data area, on behalf of no file. The caller has them pinned.
    pub fn read_run(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        self.read_parts(NOBODY, vec![Part { pbn, bytes }])
    }

    /// Reads parts of the data area. The caller has them pinned.
    ///
    /// A block that cannot be read, or has wrong content, is served from its replica, if it has one. If not, a file's
    /// reader gets an error, and a read on behalf of no file gets the bytes as they are, for comparison.
    pub fn read_parts(&self, reader: MapId, parts: Vec<Part<'_>>) -> Result<()> {
        let mut missing = Vec::with_capacity(parts.len());
        parts.into_iter().for_each(|part| self.read_memory(reader, part, &mut missing));
        if missing.is_empty() {
            return Ok(());
        }
        let repeated = take_repeated(&mut missing);
        self.read_spans(reader, &mut missing)?;
        copy_repeated(&missing, repeated);
        Ok(())
    }

    /// Reads a part from staging and the read cache. Adds the rest of it to `missing`.
    fn read_memory<'a>(&self, reader: MapId, mut part: Part<'a>, missing: &mut Vec<Part<'a>>) {
        assert!(part.bytes.len().is_multiple_of(BLOCK_BYTES), "{} bytes are not whole blocks", part.bytes.len());
        if part.blocks() > CACHED_RUN_BLOCKS_MAX && self.staging.has_none(part.pbn, part.blocks() as u64) {
            let mut blocks = part.pbns().zip(part.bytes.chunks_exact_mut(BLOCK_BYTES));
            if !blocks.all(|(pbn, block)| self.read_block_from_memory(reader, pbn, block)) {
                missing.push(part);
            }
            return;
        }
        let mut lacking = 0;
        while part.blocks() > lacking {
            let (pbn, at) = (part.pbn.plus(lacking as u64), lacking * BLOCK_BYTES);
            if !self.read_block_from_memory(reader, pbn, &mut part.bytes[at..at + BLOCK_BYTES]) {
                lacking += 1;
                continue;
            }
            let (before, behind) = part.bytes.split_at_mut(at);
            if lacking > 0 {
                missing.push(Part { pbn: part.pbn, bytes: before });
            }
            part = Part { pbn: pbn.plus(1), bytes: &mut behind[BLOCK_BYTES..] };
            lacking = 0;
        }
        if lacking > 0 {
            missing.push(part);
        }
    }

    /// A block from staging or from the read cache.
    fn read_block_from_memory(&self, reader: MapId, pbn: Pbn, out: &mut [u8]) -> bool {
        if let Some(block) = self.staging.get(pbn) {
            out.copy_from_slice(&block);
            return true;
        }
        let Some(admitted_by) = self.read_cache.get(pbn, out) else { return false };
        if admitted_by == AROUND {
            self.policy.read_around().note_used();
        } else if admitted_by != reader && admitted_by != NOBODY && reader != NOBODY {
            self.stats.counters.blocks_read_shared.fetch_add(1, Relaxed);
        }
        true
    }

    /// Reads parts, which come in the order of their pbns, from the device, in as few requests as possible and all of
    /// them at once.
    fn read_spans(&self, reader: MapId, parts: &mut [Part<'_>]) -> Result<()> {
        let mut spans = cut_spans(parts);
        let results = self.read_device_at_once(reader, &mut spans)?;
        let mut whole = Vec::with_capacity(parts_of(&spans));
        for (span, result) in spans.into_iter().zip(results) {
            match result {
                Ok(()) => whole.extend(span),
                // A bad place affects only its own block. Errors inside gaps are ignored.
                Err(error) => {
                    if self.read_again(reader, span, error)? {
                        let shared = self.metadata.which_are_shared(span.iter().flat_map(Part::pbns));
                        self.admit_read(reader, &span.iter_mut().collect::<Vec<_>>(), &shared);
                    }
                }
            }
        }
        if !whole.is_empty()
            && let Some(shared) = self.look_over(reader, &mut whole)?
        {
            self.admit_read(reader, &whole, &shared);
        }
        Ok(())
    }

    fn read_device_at_once(&self, reader: MapId, spans: &mut [&mut [Part<'_>]]) -> Result<Vec<Result<()>>> {
        let mut lacking = self.pages_lacking(spans);
        let mut reads = spans.iter_mut().map(|span| joined(span)).collect::<Result<Vec<_>>>()?;
        let blocks: Vec<u64> = reads.iter().map(|read| (read.len() / BLOCK_BYTES) as u64).collect();
        if reader != NOBODY {
            blocks.iter().for_each(|blocks| self.policy.count_device_read(*blocks));
        }
        let mut pages = lacking.reads()?;
        let mut results = self.timed_device_reads(&blocks, || match &mut pages[..] {
            [] => self.data.read_many(&mut reads),
            pages => self.stored.read_pages_beside((&self.data, &mut reads), pages),
        });
        drop(pages);
        self.admit_lacking(lacking, &results.split_off(blocks.len()));
        Ok(results)
    }

    /// Reads the parts of a failed request block by block. Returns whether they may enter the read cache.
    fn read_again(&self, reader: MapId, span: &mut [Part<'_>], error: Error) -> Result<bool> {
        if let [Part { pbn, bytes }] = span
            && bytes.len() == BLOCK_BYTES
        {
            return self.read_second_copy(*pbn, bytes, error).map(|()| true);
        }
        let mut may_enter = true;
        for part in span {
            for (pbn, bytes) in part.pbns().zip(part.bytes.chunks_exact_mut(BLOCK_BYTES)) {
                if reader != NOBODY {
                    self.policy.count_device_read(1);
                }
                match self.read_device(pbn, bytes) {
                    Ok(()) => may_enter &= self.look_over(reader, &mut [&mut Part { pbn, bytes }])?.is_some(),
                    Err(error) => self.read_second_copy(pbn, bytes, error)?,
                }
            }
        }
        Ok(may_enter)
    }

    /// Serves a block that cannot be read.
    fn read_second_copy(&self, pbn: Pbn, bytes: &mut [u8], error: Error) -> Result<()> {
        self.damage_reports.suspect(pbn);
        if self.read_replica(pbn, bytes) { Ok(()) } else { Err(error) }
    }

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
    fn timed_device_reads(&self, blocks: &[u64], requests: impl FnOnce() -> Vec<Result<()>>) -> Vec<Result<()>> {
        let (results, changed) = self.policy.timed_device_reads(blocks, requests);
        changed.into_iter().for_each(|change| self.file_policies.piece_cost_changed(change, Instant::now()));
        let read = blocks.iter().zip(&results).filter(|(_, result)| result.is_ok());
        let read: u64 = read.map(|(blocks, _)| blocks * BLOCK_BYTES as u64).sum();
        self.stats.counters.data_bytes_read.fetch_add(read, Relaxed);
        results
    }
}

fn parts_of(spans: &[&mut [Part<'_>]]) -> usize {
    spans.iter().map(|span| span.len()).sum()
}
