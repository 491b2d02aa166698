//! Reads parts of the data area: from memory as far as possible, the rest in parallel requests.

use std::sync::atomic::Ordering::Relaxed;

use super::cache::{AROUND, NOBODY};
use super::parts::{Part, Way, copy_repeated, cut_spans, take_repeated};
use crate::base::part;
use crate::device::Io;
use crate::format::page::Entry;
use crate::read::damage_reports::DamageReports;
use crate::read::device::DataReader;
use crate::read::replicas::ReplicaReader;
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Error, MapId, Pbn, Result};

/// Longer runs are either entirely in memory or read as a whole.
pub const CACHED_RUN_BLOCKS_MAX: usize = 32;

part! {
    /// Reads blocks: from memory, from the data area, or from their replicas. It changes nothing but caches.
    pub struct BlockReader {
        pub(super) base: staging, read_cache, policy, tuning, hasher, stats, damage;
        metadata: Metadata, data_reader: DataReader, replica_reader: ReplicaReader, damage_reports: DamageReports
    }
}

impl BlockReader {
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
        let Some(admitted_by) = self.read_cache.get(pbn, reader, out) else { return false };
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
        let (mut spans, ways) = self.with_ways(reader, cut_spans(parts));
        let results = self.read_device_at_once(reader, &mut spans, &ways)?;
        let mut whole = Vec::with_capacity(parts_of(&spans));
        for ((span, way), result) in spans.into_iter().zip(ways).zip(results) {
            match result {
                Ok(()) => whole.extend(span.iter_mut().map(|part| (part, way))),
                // A bad place affects only its own block. Errors inside gaps are ignored.
                Err(error) => {
                    if self.read_again(reader, span, way, error)? {
                        let references = self.metadata.references_of(span.iter().flat_map(Part::pbns));
                        self.admit_read(reader, span.iter(), &references);
                    }
                }
            }
        }
        if !whole.is_empty()
            && let Some(references) = self.verify(reader, &mut whole)?
        {
            self.admit_read(reader, whole.iter().map(|(part, _)| &**part), &references);
        }
        Ok(())
    }

    fn read_device_at_once(
        &self,
        reader: MapId,
        spans: &mut [&mut [Part<'_>]],
        ways: &[Way],
    ) -> Result<Vec<Result<()>>> {
        let mut lacking = self.pages_lacking(spans);
        let mut pages = lacking.reads()?;
        let count = |blocks| {
            if reader != NOBODY {
                self.policy.device_reads().count(blocks);
            }
        };
        let results = self.data_reader.read_spans(spans, ways, &mut pages, count)?;
        let are_read = pages.iter().all(Io::is_done);
        drop(pages);
        self.admit_lacking(lacking, are_read);
        Ok(results)
    }

    /// Reads the parts of a failed request block by block, from the device. Returns whether they may enter the read
    /// cache.
    fn read_again(&self, reader: MapId, span: &mut [Part<'_>], way: Way, error: Error) -> Result<bool> {
        if let [Part { pbn, bytes }] = span
            && bytes.len() == BLOCK_BYTES
            && way == Way::PastHostCache
        {
            return self.read_second_copy(*pbn, bytes, error).map(|()| true);
        }
        let mut may_enter = true;
        for part in span {
            for (pbn, bytes) in part.pbns().zip(part.bytes.chunks_exact_mut(BLOCK_BYTES)) {
                if reader != NOBODY {
                    self.policy.device_reads().count(1);
                }
                match self.data_reader.read_device(pbn, bytes) {
                    Ok(()) => {
                        may_enter &= {
                            let way = Way::PastHostCache;
                            self.verify(reader, &mut [(&mut Part { pbn, bytes }, way)])?.is_some()
                        }
                    }
                    Err(error) => self.read_second_copy(pbn, bytes, error)?,
                }
            }
        }
        Ok(may_enter)
    }

    /// Serves a block that cannot be read.
    fn read_second_copy(&self, pbn: Pbn, bytes: &mut [u8], error: Error) -> Result<()> {
        self.damage_reports.suspect(pbn);
        if self.replica_reader.read_replica(pbn, bytes) { Ok(()) } else { Err(error) }
    }
}

fn parts_of(spans: &[&mut [Part<'_>]]) -> usize {
    spans.iter().map(|span| span.len()).sum()
}

impl BlockReader {
    /// Reads blocks that may be shared, on behalf of no file, all parts at once. With `verify=share` it reads the
    /// device and not the read cache. A staged block is not on the device yet. The caller has the blocks pinned.
    pub fn read_targets(&self, parts: Vec<Part<'_>>) -> Result<()> {
        if !self.tuning.verifies_shares() {
            return self.read_parts(NOBODY, parts);
        }
        for Part { pbn, bytes } in parts {
            for (pbn, block) in (pbn.0..).map(Pbn).zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
                match self.staging.get(pbn) {
                    Some(staged) => block.copy_from_slice(&staged),
                    None => self.data_reader.read_device(pbn, block)?,
                }
            }
        }
        Ok(())
    }

    /// Whether a block with a fingerprint is still read before it gets one more reference: with `verify=share`, if that
    /// reference is its second.
    pub fn is_read_before_share(&self, entry: &Entry) -> bool {
        entry.count == 1 && self.tuning.verifies_shares()
    }
}
