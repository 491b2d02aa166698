//! A read's way: map, runs of pbns, memory, one device request per run. No hint store and no
//! reference count (LRLFS, section I).

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use crate::core::Core;
use crate::damage::bad_blocks::Whereabouts;
use crate::format::keys::shard_parts;
use crate::format::page::page_of;
use crate::format::shard::Target;
use crate::policy::device_reads::GAP_BLOCKS_MAX;
use crate::{BLOCK_BYTES, Error, Lbn, MapId, Pbn, ReadBuf, Result, Stage, Tag};

/// Shorter runs are looked up in the read cache block by block; longer ones are fetched whole when any block is missing.
const CACHED_RUN_BLOCKS_MAX: usize = 32;

/// A read of at least this many separate runs is scattered: its runs are read several at a time.
const SCATTERED_PARTS_MIN: usize = 8;
/// Blocks read in one request with their gaps, at most: what a pooled buffer holds.
const SPAN_BLOCKS_MAX: u64 = 256;

/// Who reads when no file is read. No map has this id.
const NOBODY: MapId = MapId(0);

/// A run of the data area and where its content goes.
struct Part<'a> {
    pbn: Pbn,
    bytes: &'a mut [u8],
}

impl Part<'_> {
    fn end(&self) -> Pbn {
        self.pbn.plus((self.bytes.len() / BLOCK_BYTES) as u64)
    }
}

impl Core {
    /// See [`crate::Store::read`].
    pub fn read(&self, map: MapId, at: u64, len: usize) -> Result<ReadBuf> {
        let block = BLOCK_BYTES as u64;
        let first = at / block;
        let blocks = (at + len as u64).div_ceil(block) - first;
        self.stats.timed(Stage::Read, blocks, || {
            let mut buffer = self.data.take_buffer(blocks as usize * BLOCK_BYTES);
            let _pin = self.space.pin();
            let runs = {
                let _map = self.maps.lock(map).read();
                if self.state.lock().is_detached(map) {
                    return Err(Error::MapDetached);
                }
                self.runs_of(map, Lbn(first), blocks)?
            };
            self.fill(map, &runs, &mut buffer)?;
            // Not before: it may wait for the publish lock, and what the runs name gets no younger by that.
            self.note_read(map, Lbn(first), &runs);
            Ok(ReadBuf::new(buffer, (at % block) as usize, len))
        })
    }

    /// Reads whole blocks under the map's lock, which the caller holds.
    pub fn read_locked(&self, map: MapId, first: Lbn, bytes: &mut [u8]) -> Result<()> {
        let runs = self.runs_of(map, first, (bytes.len() / BLOCK_BYTES) as u64)?;
        self.fill(map, &runs, bytes)
    }

    /// The targets of consecutive blocks, joined to runs across shards.
    fn runs_of(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<(Target, u64)>> {
        let mut runs: Vec<(Target, u64)> = Vec::new();
        for (key, start, end) in shard_parts(map, first, blocks) {
            for extent in self.shard(key)?.slice(start, end) {
                let length = u64::from(extent.blocks);
                match runs.last_mut() {
                    Some((target, blocks)) if target.plus(*blocks) == extent.target => *blocks += length,
                    _ => runs.push((extent.target, length)),
                }
            }
        }
        let found: u64 = runs.iter().map(|(_, blocks)| blocks).sum();
        assert_eq!(found, blocks, "the runs of map {} cover the request", map.0);
        Ok(runs)
    }

    fn fill(&self, reader: MapId, runs: &[(Target, u64)], bytes: &mut [u8]) -> Result<()> {
        let around_bad = self.around_bad(runs)?;
        let runs = around_bad.as_deref().unwrap_or(runs);
        let mut rest = bytes;
        let mut stored: Vec<Part<'_>> = Vec::with_capacity(runs.len());
        for (target, blocks) in runs {
            let (bytes, behind) = rest.split_at_mut(*blocks as usize * BLOCK_BYTES);
            match target {
                Target::Data(pbn) => stored.push(Part { pbn: *pbn, bytes }),
                Target::Hole | Target::Reserved => bytes.fill(0),
            }
            rest = behind;
        }
        assert!(rest.is_empty(), "{} bytes of a read have no block", rest.len());
        if stored.len() < SCATTERED_PARTS_MIN {
            return stored.into_iter().try_for_each(|part| self.read_run_for(reader, part.pbn, part.bytes));
        }
        self.read_scattered(reader, stored)
    }

    /// The runs with every bad block replaced by its home. None: there is no bad one. Under the publish lock: the
    /// caller's pin keeps a home that is found there from being reused.
    pub fn around_bad(&self, runs: &[(Target, u64)]) -> Result<Option<Vec<(Target, u64)>>> {
        if !self.damage.is_any_bad() {
            return Ok(None);
        }
        let state = self.state.lock();
        let mut found: Vec<(Target, u64)> = Vec::with_capacity(runs.len());
        for (target, blocks) in runs {
            let Target::Data(first) = target else {
                found.push((*target, *blocks));
                continue;
            };
            for pbn in (0..*blocks).map(|n| first.plus(n)) {
                let Whereabouts::At(at) = state.bad.find(pbn) else { return Err(damaged(pbn)) };
                match found.last_mut() {
                    Some((Target::Data(run), blocks)) if run.plus(*blocks) == at => *blocks += 1,
                    _ => found.push((Target::Data(at), 1)),
                }
            }
        }
        Ok(Some(found))
    }

    /// Reads many parts of the data area: neighbours in one request, and several requests at a time, because
    /// one after the other each would cost the device's whole latency.
    fn read_scattered(&self, reader: MapId, mut parts: Vec<Part<'_>>) -> Result<()> {
        parts.retain_mut(|part| !self.read_whole_from_memory(reader, part.pbn, part.bytes));
        parts.sort_unstable_by_key(|part| part.pbn);
        let share = parts.len().div_ceil(self.data.reads_at_a_time()).max(1);
        let all_started = thread::scope(|scope| {
            let mut threads = Vec::new();
            for parts in parts.chunks_mut(share) {
                let thread = thread::Builder::new().name("oncefs-read".to_owned());
                match thread.spawn_scoped(scope, move || self.read_neighbours(reader, parts)) {
                    Ok(thread) => threads.push(thread),
                    Err(_) => return Ok(false),
                }
            }
            let join = |thread: thread::ScopedJoinHandle<'_, Result<()>>| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            threads.into_iter().try_for_each(join).map(|()| true)
        })?;
        // A machine that can start no more threads is slow to read, not unable to.
        if all_started { Ok(()) } else { self.read_neighbours(reader, &mut parts) }
    }

    /// Whether every block of a run was in memory.
    fn read_whole_from_memory(&self, reader: MapId, pbn: Pbn, bytes: &mut [u8]) -> bool {
        let mut blocks = bytes.chunks_exact_mut(BLOCK_BYTES).zip(pbn.0..);
        blocks.all(|(block, pbn)| self.read_memory(reader, Pbn(pbn), block))
    }

    /// Reads parts in the order of their pbns; those with small gaps between them in one request.
    fn read_neighbours(&self, reader: MapId, parts: &mut [Part<'_>]) -> Result<()> {
        let is_near = |a: &Part<'_>, b: &Part<'_>| b.pbn.0 <= a.end().0 + GAP_BLOCKS_MAX;
        for group in parts.chunk_by_mut(is_near).flat_map(cut_spans) {
            let is_staged = |part: &Part<'_>| !self.staging.has_none(part.pbn, part.end().0 - part.pbn.0);
            if group.len() == 1 || group.iter().any(is_staged) {
                group.iter_mut().try_for_each(|part| self.read_run_for(reader, part.pbn, part.bytes))?;
            } else {
                self.read_span(reader, group)?;
            }
        }
        Ok(())
    }

    /// Reads parts and the gaps between them in one request. Only the parts are pinned, so only they may
    /// enter the read cache.
    fn read_span(&self, reader: MapId, group: &mut [Part<'_>]) -> Result<()> {
        let from = group[0].pbn;
        let end = group.iter().map(Part::end).max().unwrap_or(from);
        assert!(end > from && end.0 - from.0 <= SPAN_BLOCKS_MAX, "one request reads blocks {from} to {end}");
        let mut span = self.data.take_buffer((end.0 - from.0) as usize * BLOCK_BYTES);
        self.policy.count_device_read(end.0 - from.0);
        if self.read_device(from, &mut span).is_err() {
            // Of the gaps nobody wants to know.
            return group.iter_mut().try_for_each(|part| self.read_run_for(reader, part.pbn, part.bytes));
        }
        for part in group {
            let at = (part.pbn.0 - from.0) as usize * BLOCK_BYTES;
            part.bytes.copy_from_slice(&span[at..at + part.bytes.len()]);
            if self.look_over(reader, part.pbn, part.bytes)? {
                self.admit_read(reader, part.pbn, part.bytes);
            }
        }
        Ok(())
    }

    /// Reads blocks that follow each other in the data area, for nobody's file. The caller has them pinned.
    pub fn read_run(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        self.read_run_for(NOBODY, pbn, bytes)
    }

    fn read_run_for(&self, reader: MapId, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        assert!(bytes.len().is_multiple_of(BLOCK_BYTES), "{} bytes are not whole blocks", bytes.len());
        let blocks = bytes.len() / BLOCK_BYTES;
        if blocks > CACHED_RUN_BLOCKS_MAX && self.staging.has_none(pbn, blocks as u64) {
            return self.read_long_run(reader, pbn, bytes);
        }
        let mut missing: Option<usize> = None;
        for index in 0..blocks {
            let part = &mut bytes[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES];
            if !self.read_memory(reader, pbn.plus(index as u64), part) {
                missing.get_or_insert(index);
            } else if let Some(from) = missing.take() {
                self.read_device_and_admit(reader, pbn, &mut bytes[from * BLOCK_BYTES..index * BLOCK_BYTES], from)?;
            }
        }
        missing.map_or(Ok(()), |from| self.read_device_and_admit(reader, pbn, &mut bytes[from * BLOCK_BYTES..], from))
    }

    /// A long run is in memory as a whole or read as a whole. Of it only shared blocks enter the read cache, so that
    /// one pass over a large file does not turn it over.
    fn read_long_run(&self, reader: MapId, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        if self.read_whole_from_memory(reader, pbn, bytes) {
            return Ok(());
        }
        if !self.read_stored(reader, pbn, bytes)? {
            return Ok(());
        }
        let shared = self.which_are_shared(pbn, bytes.len() / BLOCK_BYTES);
        for (n, (block, _)) in
            bytes.chunks_exact(BLOCK_BYTES).zip(shared).enumerate().filter(|(_, (_, shared))| *shared)
        {
            self.read_cache.admit_shared(pbn.plus(n as u64), reader, block);
        }
        Ok(())
    }

    /// A block from staging or from the read cache.
    fn read_memory(&self, reader: MapId, pbn: Pbn, out: &mut [u8]) -> bool {
        if let Some(block) = self.staging.get(pbn) {
            out.copy_from_slice(&block);
            return true;
        }
        let Some(admitted_by) = self.read_cache.get(pbn, out) else { return false };
        if admitted_by != reader && admitted_by != NOBODY && reader != NOBODY {
            self.stats.counters.blocks_read_shared.fetch_add(1, Relaxed);
        }
        true
    }

    fn read_device_and_admit(&self, reader: MapId, pbn: Pbn, bytes: &mut [u8], from: usize) -> Result<()> {
        let first = pbn.plus(from as u64);
        if self.read_stored(reader, first, bytes)? {
            self.admit_read(reader, first, bytes);
        }
        Ok(())
    }

    /// Offers blocks that were read to the read cache: shared ones, which further files may ask for, enter at once.
    fn admit_read(&self, reader: MapId, first: Pbn, bytes: &[u8]) {
        let shared = self.which_are_shared(first, bytes.len() / BLOCK_BYTES);
        for (n, (block, is_shared)) in bytes.chunks_exact(BLOCK_BYTES).zip(shared).enumerate() {
            let pbn = first.plus(n as u64);
            match is_shared {
                true => self.read_cache.admit_shared(pbn, reader, block),
                false => self.read_cache.admit(pbn, reader, block),
            }
        }
    }

    /// Which blocks have several references, as far as the table is in memory: a read waits for no table page.
    fn which_are_shared(&self, first: Pbn, blocks: usize) -> Vec<bool> {
        let mut state = self.state.lock();
        let is_shared = |pbn: Pbn| state.table.page(page_of(pbn)).is_some_and(|page| page.count(pbn) > 1);
        (first.0..).take(blocks).map(Pbn).map(is_shared).collect()
    }

    /// Reads blocks that follow each other from the data area. One that cannot be read, or is not what it should be,
    /// is served from its second copy, if it has one; if not, a file's reader gets an error, and nobody's gets the
    /// bytes as they are, to compare. Whether they may enter the read cache.
    fn read_stored(&self, reader: MapId, pbn: Pbn, bytes: &mut [u8]) -> Result<bool> {
        if reader != NOBODY {
            self.policy.count_device_read((bytes.len() / BLOCK_BYTES) as u64);
        }
        let Err(error) = self.read_device(pbn, bytes) else { return self.look_over(reader, pbn, bytes) };
        if bytes.len() > BLOCK_BYTES {
            let mut may_enter = true;
            for (block, pbn) in bytes.chunks_exact_mut(BLOCK_BYTES).zip(pbn.0..) {
                may_enter &= self.read_stored(reader, Pbn(pbn), block)?;
            }
            return Ok(may_enter);
        }
        self.suspect(pbn);
        if self.read_replica(pbn, bytes) { Ok(true) } else { Err(error) }
    }

    /// Compares what was read with the tags, if that is set, and with the tags of lost content, if there is any.
    /// Gives what `read_stored` gives.
    fn look_over(&self, reader: MapId, first: Pbn, bytes: &mut [u8]) -> Result<bool> {
        let verifies = self.tuning.verifies_reads();
        if !verifies && !self.damage.is_content_lost() {
            return Ok(true);
        }
        let tags: Vec<Tag> = bytes.chunks_exact(BLOCK_BYTES).map(|block| self.hasher.tag(block)).collect();
        if self.damage.is_content_lost() {
            self.offer((first.0..).map(Pbn).zip(tags.iter().copied()));
        }
        if !verifies {
            return Ok(true);
        }
        let mut may_enter = true;
        for wrong in self.which_are_wrong(first, &tags) {
            let pbn = first.plus(wrong as u64);
            self.suspect(pbn);
            if self.read_replica(pbn, &mut bytes[wrong * BLOCK_BYTES..(wrong + 1) * BLOCK_BYTES]) {
                continue;
            }
            if reader != NOBODY {
                return Err(damaged(pbn));
            }
            may_enter = false;
        }
        Ok(may_enter)
    }

    /// Which blocks do not have these tags. Of one that was freed meanwhile, and that only the caller's pin keeps,
    /// nothing is known, and neither of any where the table cannot be read: its damage is not theirs.
    fn which_are_wrong(&self, first: Pbn, tags: &[Tag]) -> Vec<usize> {
        assert!(!tags.is_empty(), "no blocks from {first} on");
        let last = first.plus(tags.len() as u64 - 1);
        let pages = || (page_of(first)..=page_of(last)).collect();
        let wrong = self.with_pages(pages, |state| {
            let is_wrong = |n: &usize| {
                let entry = state.table.entry(first.plus(*n as u64)).expect("its page is in memory");
                entry.count > 0 && entry.tag != tags[*n]
            };
            (0..tags.len()).filter(is_wrong).collect()
        });
        wrong.unwrap_or_else(|error| {
            log::warn!("block {first} and {} more were read without being verified: {error}", tags.len() - 1);
            Vec::new()
        })
    }

    /// Reads blocks from the device as they are.
    pub fn read_device(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        let changed = self.policy.timed_device_read(blocks, || self.data.read(pbn, bytes))?;
        changed.into_iter().for_each(|change| self.piece_cost_changed(change));
        self.stats.counters.data_bytes_read.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }
}

/// A block whose content is nowhere.
pub fn damaged(pbn: Pbn) -> Error {
    Error::corrupt(format!("block {pbn} of the data area"), "its content does not have its tag (see oncefs scrub)")
}

/// Cuts neighbours, which come in the order of their pbns, where one request would become too long.
fn cut_spans<'p, 'a>(group: &'p mut [Part<'a>]) -> Vec<&'p mut [Part<'a>]> {
    let mut spans = Vec::new();
    let mut rest = group;
    while let Some(first) = rest.first().map(|part| part.pbn) {
        let fits = rest.partition_point(|part| part.end().0 <= first.0.saturating_add(SPAN_BLOCKS_MAX));
        let (span, behind) = rest.split_at_mut(fits.max(1));
        spans.push(span);
        rest = behind;
    }
    spans
}
