//! The record of a pending clone: a map that still shares leaves of another map without references of its own.

use super::{sealed, unsealed};
use crate::MapId;

const SEED: u64 = 0x636C_6F6E;

/// The leaves that a pending clone has not taken yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PendingClone {
    /// The map whose leaves it shares.
    pub source: MapId,
    /// It has taken all leaves before this one.
    pub next: u64,
    /// The source's leaves from this one on are no part of the clone.
    pub end: u64,
}

impl PendingClone {
    /// The value of the record of the clone `target`.
    pub fn encode(&self, target: MapId) -> Vec<u8> {
        sealed(&[self.source.0, self.next, self.end], SEED ^ target.0)
    }

    /// Decodes the value. None: it is damaged, or another clone's.
    pub fn decode(target: MapId, bytes: &[u8]) -> Option<Self> {
        let [source, next, end] = unsealed(bytes, SEED ^ target.0)?;
        // Ids rise, and a clone is younger than its source. So no clone leads back to itself.
        (source < target.0 && next <= end).then_some(Self { source: MapId(source), next, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: PendingClone = PendingClone { source: MapId(0x0102), next: 3, end: 4 };

    #[test]
    fn a_record_has_its_golden_bytes_and_comes_back() {
        let bytes = RECORD.encode(MapId(0x0103));
        assert_eq!(bytes[..24], [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(PendingClone::decode(MapId(0x0103), &bytes), Some(RECORD));
        assert_eq!(PendingClone::decode(MapId(0x0104), &bytes), None, "another clone's");
    }

    #[test]
    fn a_wrong_bit_and_an_impossible_clone_are_refused() {
        let bytes = RECORD.encode(MapId(0x0103));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(PendingClone::decode(MapId(0x0103), &flipped), None, "bit {bit}");
        }
        assert_eq!(PendingClone::decode(MapId(1), &RECORD.encode(MapId(1))), None, "older than its source");
        let backwards = PendingClone { next: 5, ..RECORD };
        assert_eq!(PendingClone::decode(MapId(0x0103), &backwards.encode(MapId(0x0103))), None);
    }
}
