//! The header of an image: a device that lies in objects of a cluster. It says whose image it is, and its size.

use super::{at, checksum};
use crate::{Error, Result};

/// Size of the objects of new images.
pub const OBJECT_BYTES: u64 = 4 << 20;
/// Size of the header in bytes.
pub const BYTES: usize = 56;
const MAGIC: &[u8; 16] = b"oncefs image\n\0\0\0";
const ID_AT: usize = 16;
const LEN_AT: usize = 32;
const OBJECT_BYTES_AT: usize = 40;
const CHECKSUM_AT: usize = 48;
const SEED: u64 = 0x696D_6167;
const _: () = assert!(CHECKSUM_AT + 8 == BYTES);

/// Identity and size of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageHeader {
    /// The volume that it belongs to.
    pub volume_id: [u8; 16],
    /// Size of the device in bytes.
    pub len: u64,
    /// Most bytes of one object.
    pub object_bytes: u64,
}

impl ImageHeader {
    /// The content of the object.
    pub fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..ID_AT].copy_from_slice(MAGIC);
        bytes[ID_AT..LEN_AT].copy_from_slice(&self.volume_id);
        bytes[LEN_AT..OBJECT_BYTES_AT].copy_from_slice(&self.len.to_le_bytes());
        bytes[OBJECT_BYTES_AT..CHECKSUM_AT].copy_from_slice(&self.object_bytes.to_le_bytes());
        let sum = checksum(&bytes[..CHECKSUM_AT], SEED);
        bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Decodes the content of the object `name`.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn decode(bytes: &[u8], name: &str) -> Result<Self> {
        let damaged = |detail: &str| Err(Error::corrupt(format!("the object {name}"), detail));
        if bytes.len() != BYTES || &bytes[..ID_AT] != MAGIC {
            return damaged("it is no header of an image");
        }
        if at::u64(bytes, CHECKSUM_AT) != checksum(&bytes[..CHECKSUM_AT], SEED) {
            return damaged("its checksum does not match");
        }
        let object_bytes = at::u64(bytes, OBJECT_BYTES_AT);
        if !object_bytes.is_power_of_two() || object_bytes < crate::device::ALIGN_BYTES as u64 {
            return damaged("its objects have an impossible size");
        }
        let volume_id = bytes[ID_AT..LEN_AT].try_into().expect("sixteen bytes");
        Ok(Self { volume_id, len: at::u64(bytes, LEN_AT), object_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: ImageHeader = ImageHeader { volume_id: [7; 16], len: 5 << 40, object_bytes: 4 << 20 };

    #[test]
    fn the_header_has_its_golden_bytes_and_comes_back() {
        let bytes = SAMPLE.encode();
        assert_eq!(&bytes[..16], b"oncefs image\n\0\0\0");
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(bytes[32..48], [0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 64, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[48..], [1, 52, 106, 89, 183, 84, 167, 48]);
        assert_eq!(ImageHeader::decode(&bytes, "data").unwrap(), SAMPLE);
    }

    #[test]
    fn any_flipped_bit_and_any_other_length_is_damage() {
        let good = SAMPLE.encode();
        for bit in 0..BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(ImageHeader::decode(&bad, "data"), Err(Error::Corrupt { .. })), "bit {bit}");
        }
        for len in 0..BYTES {
            assert!(ImageHeader::decode(&good[..len], "data").is_err(), "{len} bytes");
        }
    }
}
