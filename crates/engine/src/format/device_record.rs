//! The record about a volume's device: the cost of one more piece of a file to readers. Advice: without it the next
//! mount measures it again.

use oncefs_dedup::PieceCost;

use super::{sealed, unsealed};

const SEED: u64 = 0x6465_7669;

/// The record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceRecord {
    /// The last measured value.
    pub piece_cost: PieceCost,
}

impl DeviceRecord {
    /// The record's value: the cost in blocks as a floating-point number of 64 bits, and a checksum.
    pub fn encode(&self) -> Vec<u8> {
        sealed(&[self.piece_cost.blocks().to_bits()], SEED)
    }

    /// Decodes the record's value. None: it is damaged.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let [bits] = unsealed(bytes, SEED)?;
        let piece_cost = PieceCost::of_blocks(f64::from_bits(bits));
        (piece_cost.blocks() == f64::from_bits(bits)).then_some(Self { piece_cost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_comes_back_and_any_flipped_bit_is_noticed() {
        let record = DeviceRecord { piece_cost: PieceCost::of_blocks(5.25) };
        let bytes = record.encode();
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 0, 21, 64]);
        assert_eq!(DeviceRecord::decode(&bytes), Some(record));
        assert_eq!(
            (DeviceRecord::decode(&bytes[..15]), DeviceRecord::decode(&[&bytes[..], &[0]].concat())),
            (None, None)
        );
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(DeviceRecord::decode(&flipped), None, "bit {bit}");
        }
    }

    #[test]
    fn a_cost_out_of_its_bounds_is_damage() {
        for blocks in [0.0_f64, -1.0, f64::NAN, 1e9] {
            assert_eq!(DeviceRecord::decode(&sealed(&[blocks.to_bits()], SEED)), None, "{blocks}");
        }
    }
}
