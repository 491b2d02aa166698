//! Where content lies on the device of the data area.

use crate::{BLOCK_BYTES, Error, Pbn, Result};

/// The place and the length of content on the device. Only the data area turns a pbn into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// First byte.
    pub at: u64,
    /// Length in bytes.
    pub bytes: u64,
}

impl Location {
    /// The location of consecutive blocks, which take these bytes of memory. Each block takes 4096 bytes, at the place
    /// that its pbn gives. An error: a damaged map named them, because no data area reaches that far.
    pub fn of(first: Pbn, bytes: usize) -> Result<Self> {
        debug_assert!(bytes.is_multiple_of(BLOCK_BYTES), "{bytes} bytes are not whole blocks");
        let at = first.0.checked_mul(BLOCK_BYTES as u64);
        let location = at.map(|at| Self { at, bytes: bytes as u64 });
        location
            .filter(|location| location.at.checked_add(location.bytes).is_some())
            .ok_or_else(|| Error::corrupt("a map", format!("block {first} lies outside the data area")))
    }

    /// The first byte after it.
    pub fn end(&self) -> u64 {
        self.at + self.bytes
    }

    /// The block at a byte of the device.
    pub fn block_at(at: u64) -> Pbn {
        Pbn(at / BLOCK_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_found_by_its_block_and_tells_it() {
        let location = Location::of(Pbn(3), 2 * BLOCK_BYTES).unwrap();
        assert_eq!((location.at, location.bytes, location.end()), (12_288, 8_192, 20_480));
        assert_eq!((Location::block_at(location.at), Location::block_at(location.end() - 1)), (Pbn(3), Pbn(4)));
    }

    #[test]
    fn a_block_beyond_the_largest_device_is_an_error() {
        for (pbn, blocks) in [(u64::MAX, 1), (u64::MAX / BLOCK_BYTES as u64, 1), ((u64::MAX >> 12) - 1, 3)] {
            let error = Location::of(Pbn(pbn), blocks * BLOCK_BYTES).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{error}");
        }
    }
}
