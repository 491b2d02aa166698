//! Keys and sealed values: the common parts of the records of all structures.
//!
//! A key starts with a letter that names the structure; numbers in it are big-endian, so that keys sort by them. A value
//! is little-endian and ends with a checksum that also covers the number in the key, so a record under the wrong key is
//! detected. Decoders take any bytes and never panic.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::{Error, Result};

/// Bytes of a record's checksum.
pub(crate) const CHECKSUM_BYTES: usize = 4;

/// Appends the checksum of `bytes`, which are the value of the record with number `id`.
pub(crate) fn seal(mut bytes: Vec<u8>, id: u64) -> Vec<u8> {
    let checksum = checksum(&bytes, id);
    bytes.extend_from_slice(&checksum);
    debug_assert!(unseal("record", id, &bytes).is_ok(), "record {id}: {} sealed bytes cannot be read", bytes.len());
    bytes
}

/// The value without its checksum. Fails if the checksum is wrong; `what` names the record in the error.
pub(crate) fn unseal<'a>(what: &str, id: u64, bytes: &'a [u8]) -> Result<&'a [u8]> {
    match bytes.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((body, stored)) if *stored == checksum(body, id) => Ok(body),
        Some(_) => Err(damaged(what, id, "its checksum is wrong")),
        None => Err(damaged(what, id, "it is too short")),
    }
}

fn checksum(bytes: &[u8], id: u64) -> [u8; CHECKSUM_BYTES] {
    (xxh3_64_with_seed(bytes, id) as u32).to_le_bytes()
}

pub(crate) fn damaged(what: &str, id: u64, detail: &str) -> Error {
    Error::corrupt(format!("{what} {id}"), detail)
}

/// The key that starts with `letter` and a number.
pub(crate) fn numbered_key(letter: u8, id: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(letter);
    key.extend_from_slice(&id.to_be_bytes());
    debug_assert_eq!(number_of_key(&key), Some(id), "the key {key:02x?} does not lead back to its number");
    key
}

/// The number after the letter of a key.
pub(crate) fn number_of_key(key: &[u8]) -> Option<u64> {
    key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)
}

/// The first key after all keys that start with `letter` and `id`.
pub(crate) fn end_of_number(letter: u8, id: u64) -> Vec<u8> {
    match id.checked_add(1) {
        Some(next) => numbered_key(letter, next),
        None => vec![letter + 1],
    }
}

/// Reads values from the front of a record.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    pub(crate) fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
pub(crate) mod testing {
    /// Checks that `decode` refuses every truncation and every single-bit change of `good`.
    pub(crate) fn assert_damage_is_noticed(good: &[u8], decode: impl Fn(&[u8]) -> bool) {
        assert!(decode(good));
        for len in 0..good.len() {
            assert!(!decode(&good[..len]), "accepted when cut to {len} bytes");
        }
        for bit in 0..good.len() * 8 {
            let mut bad = good.to_vec();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(!decode(&bad), "accepted with bit {bit} changed");
        }
    }

    pub(crate) fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_number_lie_between_its_key_and_its_end() {
        let mut key = numbered_key(b'x', 7);
        key.extend_from_slice(b"user.name");
        assert!(numbered_key(b'x', 7) < key && key < end_of_number(b'x', 7));
        assert!(numbered_key(b'x', u64::MAX) < end_of_number(b'x', u64::MAX));
        assert_eq!(number_of_key(&key), Some(7));
        assert_eq!(number_of_key(b"x123"), None);
    }
}
