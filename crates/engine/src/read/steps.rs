//! The steps of a read: map, runs of pbns, memory, requests to the device. It needs no hint store and no refcount
//! (LRLFS, section I).

use crate::core::Core;
use crate::damage::bad_blocks::BlockLocation;
use crate::format::keys::shard_parts;
use crate::format::shard::Target;
use crate::read::checked::damaged;
use crate::read::parts::Part;
use crate::{BLOCK_BYTES, Error, Lbn, MapId, ReadBuf, Result, Stage};

/// Whether this buffer holds whole blocks that a device can read into: aligned like its blocks.
pub fn holds_blocks(bytes: &[u8]) -> bool {
    bytes.len().is_multiple_of(BLOCK_BYTES) && bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
}

impl Core {
    /// See [`crate::Store::read`].
    pub fn read(&self, map: MapId, at: u64, len: usize) -> Result<ReadBuf> {
        let block = BLOCK_BYTES as u64;
        let first = at / block;
        let blocks = (at + len as u64).div_ceil(block) - first;
        let mut buffer = self.data.take_buffer(blocks as usize * BLOCK_BYTES);
        self.read_blocks(map, Lbn(first), &mut buffer)?;
        Ok(ReadBuf::new(buffer, (at % block) as usize, len))
    }

    /// See [`crate::Store::read_blocks`].
    pub fn read_blocks(&self, map: MapId, first: Lbn, bytes: &mut [u8]) -> Result<()> {
        assert!(holds_blocks(bytes), "{} bytes at {:p} are not whole, aligned blocks", bytes.len(), bytes.as_ptr());
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        self.stats.timed(Stage::Read, blocks, || {
            let _pin = self.space.pin();
            let (runs, is_small) = {
                let _map = self.maps.lock(map).read();
                if self.state.lock().is_detached(map) {
                    return Err(Error::MapDetached);
                }
                (self.runs_of(map, first, blocks)?, self.is_small_and_whole(map, first, blocks)?)
            };
            if is_small {
                self.read_around(&runs);
            }
            self.fill(map, &runs, bytes)
        })
    }

    /// Reads whole blocks under the map's lock, which the caller holds.
    pub fn read_locked(&self, map: MapId, first: Lbn, bytes: &mut [u8]) -> Result<()> {
        let runs = self.runs_of(map, first, (bytes.len() / BLOCK_BYTES) as u64)?;
        self.fill(map, &runs, bytes)
    }

    /// The targets of consecutive blocks, joined into runs across shards.
    fn runs_of(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<(Target, u64)>> {
        let mut runs: Vec<(Target, u64)> = Vec::new();
        for (key, start, end) in shard_parts(map, first, blocks) {
            for extent in self.metadata.shard(key)?.slice(start, end) {
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
        self.read_parts(reader, stored)
    }

    /// The runs with every bad block replaced by its replacement. None: no block is bad. Under the publish lock. The
    /// caller's pin keeps a replacement found there from being reused.
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
                let BlockLocation::At(at) = state.bad.find(pbn) else { return Err(damaged(pbn)) };
                match found.last_mut() {
                    Some((Target::Data(run), blocks)) if run.plus(*blocks) == at => *blocks += 1,
                    _ => found.push((Target::Data(at), 1)),
                }
            }
        }
        Ok(Some(found))
    }
}
