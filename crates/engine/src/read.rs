//! A read's way: map, runs of pbns, memory, one device request per run. No hint store and no
//! reference count (LRLFS, section I).

use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::format::shard::Target;
use crate::publish::shard_parts;
use crate::{BLOCK_BYTES, Error, Lbn, MapId, Pbn, ReadBuf, Result, Stage};

/// Shorter runs are looked up in the read cache block by block; longer ones are fetched whole when any block is missing.
const CACHED_RUN_BLOCKS_MAX: usize = 32;

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
        for (target, blocks) in runs {
            let (part, behind) = rest.split_at_mut(*blocks as usize * BLOCK_BYTES);
            match target {
                Target::Data(pbn) => self.read_run(*pbn, part)?,
                Target::Hole | Target::Reserved => part.fill(0),
            }
            rest = behind;
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
