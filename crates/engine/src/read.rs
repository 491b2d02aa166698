//! A read's way: map, runs of pbns, memory, one device request per run. No hint store and no
//! reference count (LRLFS, section I).

use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use crate::core::Core;
use crate::format::shard::Target;
use crate::publish::shard_parts;
use crate::{BLOCK_BYTES, Error, Lbn, MapId, Pbn, ReadBuf, Result, Stage};

/// Shorter runs are looked up in the read cache block by block; longer ones are fetched whole when any block is missing.
const CACHED_RUN_BLOCKS_MAX: usize = 32;

/// A read of at least this many separate runs is scattered: its runs are read several at a time.
const SCATTERED_PARTS_MIN: usize = 8;
/// Requests to the device at a time for one scattered read.
const REQUESTS_AT_A_TIME: usize = 8;
/// Runs with at most this gap between them are read in one request: 32 KiB cost less than a second request.
const GAP_BLOCKS_MAX: u64 = 8;

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
        self.timed(Stage::Read, blocks, || {
            let mut buffer = self.pool.take(blocks as usize * BLOCK_BYTES);
            let _pin = self.pins.pin();
            let runs = {
                let _map = self.map_lock(map).read();
                if self.state.lock().is_detached(map) {
                    return Err(Error::MapDetached);
                }
                self.runs_of(map, Lbn(first), blocks)?
            };
            self.fill(&runs, &mut buffer)?;
            Ok(ReadBuf::new(buffer, (at % block) as usize, len))
        })
    }

    /// Reads whole blocks under the map's lock, which the caller holds.
    pub fn read_locked(&self, map: MapId, first: Lbn, bytes: &mut [u8]) -> Result<()> {
        let runs = self.runs_of(map, first, (bytes.len() / BLOCK_BYTES) as u64)?;
        self.fill(&runs, bytes)
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
        Ok(runs)
    }

    fn fill(&self, runs: &[(Target, u64)], bytes: &mut [u8]) -> Result<()> {
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
        if stored.len() < SCATTERED_PARTS_MIN {
            return stored.into_iter().try_for_each(|part| self.read_run(part.pbn, part.bytes));
        }
        self.read_scattered(stored)
    }

    /// Reads many parts of the data area: neighbours in one request, and several requests at a time, because
    /// one after the other each would cost the device's whole latency.
    fn read_scattered(&self, mut parts: Vec<Part<'_>>) -> Result<()> {
        parts.retain_mut(|part| !self.read_part_from_memory(part));
        parts.sort_unstable_by_key(|part| part.pbn);
        let share = parts.len().div_ceil(REQUESTS_AT_A_TIME).max(1);
        let all_started = thread::scope(|scope| {
            let mut readers = Vec::new();
            for parts in parts.chunks_mut(share) {
                let reader = thread::Builder::new().name("oncefs-read".to_owned());
                match reader.spawn_scoped(scope, move || self.read_neighbours(parts)) {
                    Ok(reader) => readers.push(reader),
                    Err(_) => return Ok(false),
                }
            }
            let join = |reader: thread::ScopedJoinHandle<'_, Result<()>>| {
                reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            readers.into_iter().try_for_each(join).map(|()| true)
        })?;
        // A machine that can start no more threads is slow to read, not unable to.
        if all_started { Ok(()) } else { self.read_neighbours(&mut parts) }
    }

    /// Whether every block of a part was in memory.
    fn read_part_from_memory(&self, part: &mut Part<'_>) -> bool {
        let blocks = part.bytes.chunks_exact_mut(BLOCK_BYTES).zip(part.pbn.0..);
        blocks.into_iter().all(|(block, pbn)| self.read_memory(Pbn(pbn), block))
    }

    /// Reads parts in the order of their pbns; those with small gaps between them in one request.
    fn read_neighbours(&self, parts: &mut [Part<'_>]) -> Result<()> {
        let is_near = |a: &Part<'_>, b: &Part<'_>| b.pbn.0 <= a.end().0 + GAP_BLOCKS_MAX;
        for group in parts.chunk_by_mut(is_near) {
            let is_staged = |part: &Part<'_>| !self.staging.has_none(part.pbn, part.end().0 - part.pbn.0);
            if group.len() == 1 || group.iter().any(is_staged) {
                group.iter_mut().try_for_each(|part| self.read_run(part.pbn, part.bytes))?;
            } else {
                self.read_span(group)?;
            }
        }
        Ok(())
    }

    /// Reads parts and the gaps between them in one request. Only the parts are pinned, so only they may
    /// enter the read cache.
    fn read_span(&self, group: &mut [Part<'_>]) -> Result<()> {
        let from = group[0].pbn;
        let end = group.iter().map(Part::end).max().unwrap_or(from);
        let mut span = self.pool.take((end.0 - from.0) as usize * BLOCK_BYTES);
        self.read_device(from, &mut span)?;
        for part in group {
            let at = (part.pbn.0 - from.0) as usize * BLOCK_BYTES;
            part.bytes.copy_from_slice(&span[at..at + part.bytes.len()]);
            for (block, pbn) in part.bytes.chunks_exact(BLOCK_BYTES).zip(part.pbn.0..) {
                self.read_cache.admit(Pbn(pbn), block);
            }
        }
        Ok(())
    }

    /// Reads blocks that follow each other in the data area. The caller has them pinned.
    pub fn read_run(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        let blocks = bytes.len() / BLOCK_BYTES;
        if blocks > CACHED_RUN_BLOCKS_MAX && self.staging.has_none(pbn, blocks as u64) {
            self.read_device(pbn, bytes)?;
            return Ok(());
        }
        let mut missing: Option<usize> = None;
        for index in 0..blocks {
            let part = &mut bytes[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES];
            if !self.read_memory(pbn.plus(index as u64), part) {
                missing.get_or_insert(index);
            } else if let Some(from) = missing.take() {
                self.read_device_and_admit(pbn, from, index, bytes)?;
            }
        }
        missing.map_or(Ok(()), |from| self.read_device_and_admit(pbn, from, blocks, bytes))
    }

    /// A block from staging or from the read cache.
    fn read_memory(&self, pbn: Pbn, out: &mut [u8]) -> bool {
        match self.staging.get(pbn) {
            Some(block) => {
                out.copy_from_slice(&block);
                true
            }
            None => self.read_cache.get(pbn, out),
        }
    }

    fn read_device_and_admit(&self, pbn: Pbn, from: usize, to: usize, bytes: &mut [u8]) -> Result<()> {
        let part = &mut bytes[from * BLOCK_BYTES..to * BLOCK_BYTES];
        let first = pbn.plus(from as u64);
        self.read_device(first, part)?;
        for (n, block) in part.chunks_exact(BLOCK_BYTES).enumerate() {
            self.read_cache.admit(first.plus(n as u64), block);
        }
        Ok(())
    }

    fn read_device(&self, pbn: Pbn, bytes: &mut [u8]) -> Result<()> {
        self.data
            .read_at(bytes, pbn.0 * BLOCK_BYTES as u64)
            .map_err(|e| Error::io(format!("reading block {pbn} of the data area"), e))?;
        self.counters.data_bytes_read.fetch_add(bytes.len() as u64, Relaxed);
        Ok(())
    }
}
