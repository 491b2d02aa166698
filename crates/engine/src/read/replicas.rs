//! Reads the replica of a block that cannot be read.

use crate::base::part;
use crate::format::{damage_records, keys};
use crate::read::device::DataReader;
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Pbn, Result};

part! {
    /// Finds and reads the replicas of blocks.
    pub struct ReplicaReader {
        base: data, hasher;
        metadata: Metadata, data_reader: DataReader
    }
}

impl ReplicaReader {
    /// The replica of a block, if it has one.
    pub fn replica_of(&self, pbn: Pbn) -> Result<Option<Pbn>> {
        Ok(self.metadata.get(&keys::copy(pbn))?.as_deref().and_then(damage_records::decode_replica))
    }

    /// Reads a block's replica. False: it has none, or the replica is damaged too. The caller has the block pinned.
    pub fn read_replica(&self, pbn: Pbn, out: &mut [u8]) -> bool {
        let Some(entry) = self.metadata.known_entry(pbn) else { return false };
        if !entry.is_copied() {
            return false;
        }
        let Ok(Some(copy)) = self.replica_of(pbn) else { return false };
        let mut block = self.data.take_buffer(BLOCK_BYTES);
        let is_sound = self.data_reader.read_device(copy, &mut block).is_ok() && self.hasher.is_sound(&entry, &block);
        if is_sound {
            out.copy_from_slice(&block);
        }
        is_sound
    }
}
