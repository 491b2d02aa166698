//! The steps of a read: map, runs of pbns, memory, requests to the device. It needs no hint store and no refcount
//! (LRLFS, section I).

use crate::base::part;
use crate::format::extent_leaf::Target;
use crate::format::keys::leaf_parts;
use crate::read::device::DataReader;
use crate::read::parts::Part;
use crate::read::stored::BlockReader;
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Lbn, MapId, ReadBuf, Result, Stage};

/// Whether this buffer holds whole blocks that a device can read into: aligned like its blocks.
pub fn holds_blocks(bytes: &[u8]) -> bool {
    bytes.len().is_multiple_of(BLOCK_BYTES) && bytes.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
}

part! {
    /// Reads the content of maps. It can neither allocate nor publish.
    pub struct Reader {
        pub(super) base: staging, read_cache, policy, hasher, stats, damage;
        metadata: Metadata, data_reader: DataReader, block_reader: BlockReader
    }
}

impl Reader {
    /// See [`crate::Store::read`].
    pub fn read(&self, map: MapId, at: u64, len: usize) -> Result<ReadBuf> {
        let block = BLOCK_BYTES as u64;
        let first = at / block;
        let blocks = (at + len as u64).div_ceil(block) - first;
        let mut buffer = self.data_reader.take_buffer(blocks as usize * BLOCK_BYTES);
        self.read_blocks(map, Lbn(first), &mut buffer)?;
        Ok(ReadBuf::new(buffer, (at % block) as usize, len))
    }

    /// See [`crate::Store::read_blocks`].
    pub fn read_blocks(&self, map: MapId, first: Lbn, bytes: &mut [u8]) -> Result<()> {
        assert!(holds_blocks(bytes), "{} bytes at {:p} are not whole, aligned blocks", bytes.len(), bytes.as_ptr());
        let blocks = (bytes.len() / BLOCK_BYTES) as u64;
        self.stats.timed(Stage::Read, blocks, || {
            let _pin = self.metadata.pin();
            let (runs, is_small) = {
                let _map = self.metadata.lock_of(map).read();
                self.metadata.attached(map)?;
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

    /// The targets of consecutive blocks, joined into runs across leaves.
    fn runs_of(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<(Target, u64)>> {
        let mut runs: Vec<(Target, u64)> = Vec::new();
        for (key, start, end) in leaf_parts(map, first, blocks) {
            for extent in self.metadata.leaf(key)?.slice(start, end) {
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
        let around_bad = self.metadata.around_bad(runs)?;
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
        self.block_reader.read_parts(reader, stored)
    }
}
