//! Block 0 of the data area: the volume that it belongs to. With a foreign or swapped device the volume does not open.

use super::{at, checksum};
use crate::{BLOCK_BYTES, Error, Result};

const MAGIC: &[u8; 16] = b"oncefs data area";
const ID_AT: usize = 16;
const CHECKSUM_AT: usize = 32;
const SEED: u64 = 0x6C61_6265;
const _: () = assert!(CHECKSUM_AT + 8 <= BLOCK_BYTES);

/// The label of the volume's data area.
pub fn encode(volume_id: [u8; 16]) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..ID_AT].copy_from_slice(MAGIC);
    block[ID_AT..CHECKSUM_AT].copy_from_slice(&volume_id);
    let sum = checksum(&block[..CHECKSUM_AT], SEED);
    block[CHECKSUM_AT..CHECKSUM_AT + 8].copy_from_slice(&sum.to_le_bytes());
    block
}

/// The volume that a sound label names.
pub fn id_of(block: &[u8]) -> Option<[u8; 16]> {
    let id = block.get(ID_AT..CHECKSUM_AT)?.try_into().ok()?;
    check(block, id).ok().map(|()| id)
}

/// Checks that the data area belongs to `volume_id`.
pub fn check(block: &[u8], volume_id: [u8; 16]) -> Result<()> {
    let refused = |detail: &str| Err(Error::corrupt("the label of the data area", detail));
    if block.len() != BLOCK_BYTES || &block[..ID_AT] != MAGIC {
        return refused("no oncefs data is here: is it the right device?");
    }
    if at::u64(block, CHECKSUM_AT) != checksum(&block[..CHECKSUM_AT], SEED) {
        return refused("its checksum does not match");
    }
    if block[ID_AT..CHECKSUM_AT] != volume_id {
        return refused("it belongs to another volume: is it the right device?");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_label_has_its_golden_bytes() {
        let block = encode([7; 16]);
        assert_eq!(&block[..16], b"oncefs data area");
        assert_eq!(block[16..32], [7; 16]);
        assert_eq!(block[32..40], [115, 164, 47, 246, 114, 23, 130, 205]);
    }

    #[test]
    fn any_flipped_bit_and_a_foreign_volume_are_refused() {
        let block = encode([7; 16]);
        assert!(check(&block, [7; 16]).is_ok());
        assert!(check(&block, [8; 16]).is_err());
        assert_eq!((id_of(&block), id_of(&block[..40])), (Some([7; 16]), None));
        for bit in 0..40 * 8 {
            let mut flipped = block;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check(&flipped, [7; 16]).is_err(), "bit {bit}");
        }
    }
}
