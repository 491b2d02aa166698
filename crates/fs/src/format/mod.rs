//! Records in the store, one module per structure: key, encode, decode.
//!
//! Keys start with a letter that names the structure, numbers in them are big-endian so that they sort; values are
//! little-endian and end with a checksum that covers the key's number, so a record in a wrong place is noticed.
//! Decoders take any bytes and never panic.

pub(crate) mod dirent;
pub(crate) mod inode;
pub(crate) mod lease;
pub(crate) mod orphan;
pub(crate) mod queue;
pub(crate) mod ranking;
pub(crate) mod symlink;
pub(crate) mod xattr;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::attributes::acl::{ACCESS, Acl, DEFAULT};
use crate::{Error, Ino, Result};

/// Bytes of a record's checksum.
const CHECKSUM_BYTES: usize = 4;

/// Decodes the value of any record of this crate and encodes it again: for those that check the format from outside.
/// Access control lists are looked at as such. Refused: a value that is damaged, a key that is not ours.
pub fn recode(key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    if key == lease::KEY {
        return Ok(lease::encode(lease::decode(value)?));
    }
    if key == ranking::KEY {
        return Ok(ranking::encode(&ranking::decode(value)?));
    }
    if let Some(place) = queue::parse_key(key) {
        return queue::decode(Ino(place.file), value).map(|()| queue::encode(Ino(place.file)));
    }
    let foreign = Error::Invalid("no record has this key");
    let (Some(&letter), Some(number)) = (key.first(), number_of_key(key)) else { return Err(foreign) };
    let ino = Ino(number);
    match letter {
        inode::LETTER => Ok(inode::InodeRecord::decode(ino, value)?.encode(ino)),
        dirent::LETTER => Ok(dirent::Names::decode(ino, value)?.encode(ino)),
        symlink::LETTER => Ok(symlink::encode(ino, &symlink::decode(ino, value)?)),
        orphan::LETTER => Ok(orphan::encode(ino, orphan::decode(ino, value)?)),
        xattr::LETTER => {
            let plain = xattr::decode(ino, value)?;
            let is_acl = key.ends_with(ACCESS) || key.ends_with(DEFAULT);
            let list = if is_acl { Acl::decode(&plain)? } else { None };
            Ok(xattr::encode(ino, &list.map_or(plain, |list| list.encode())))
        }
        _ => Err(foreign),
    }
}

/// Appends the checksum of `bytes` in the record of number `id`.
fn seal(mut bytes: Vec<u8>, id: u64) -> Vec<u8> {
    let checksum = checksum(&bytes, id);
    bytes.extend_from_slice(&checksum);
    bytes
}

/// The record without its checksum, if that is right.
fn unseal<'a>(what: &str, id: u64, bytes: &'a [u8]) -> Result<&'a [u8]> {
    match bytes.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((body, stored)) if *stored == checksum(body, id) => Ok(body),
        Some(_) => Err(damaged(what, id, "its checksum is wrong")),
        None => Err(damaged(what, id, "it is too short")),
    }
}

fn checksum(bytes: &[u8], id: u64) -> [u8; CHECKSUM_BYTES] {
    (xxh3_64_with_seed(bytes, id) as u32).to_le_bytes()
}

fn damaged(what: &str, id: u64, detail: &str) -> Error {
    Error::corrupt(format!("{what} {id}"), detail)
}

/// The letters that keys begin with, ascending.
pub(crate) const LETTERS: [u8; 8] = *b"dinoqrsx";

/// Whether a key has a form that is written.
pub(crate) fn is_known(key: &[u8]) -> bool {
    match key.first() {
        Some(b'd') => dirent::parse_key(key).is_some(),
        Some(b'i' | b'o' | b's') => key.len() == 9,
        Some(b'n') => key == lease::KEY,
        Some(b'q') => queue::parse_key(key).is_some(),
        Some(b'r') => key == ranking::KEY,
        Some(b'x') => key.len() > 9,
        _ => false,
    }
}

/// `letter` and a number.
fn numbered_key(letter: u8, id: u64) -> Vec<u8> {
    let mut key = Vec::with_capacity(17);
    key.push(letter);
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// The number that follows the letter of a key.
fn number_of_key(key: &[u8]) -> Option<u64> {
    key.get(1..9)?.try_into().ok().map(u64::from_be_bytes)
}

/// First key after all keys that begin with `letter` and `id`.
fn end_of_number(letter: u8, id: u64) -> Vec<u8> {
    match id.checked_add(1) {
        Some(next) => numbered_key(letter, next),
        None => vec![letter + 1],
    }
}

/// Takes values off the front of a record.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>()?;
        self.bytes = rest;
        Some(*head)
    }

    fn slice(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.bytes.split_at_checked(len)?;
        self.bytes = rest;
        Some(head)
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.array().map(i64::from_le_bytes)
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
pub(crate) mod testing {
    /// Calls `decode` with every truncation and every single-bit change of `good`: none may be accepted.
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
    fn keys_of_every_structure_are_known_and_others_are_not() {
        use crate::Ino;
        use oncefs_engine::{Moment, QueuePlace, Rank};
        let place = dirent::Place::of(b"a", 0);
        let in_queue = QueuePlace { rank: Rank::New, touched: Moment(7), file: 1 };
        let keys = [
            dirent::key(Ino(1), place),
            inode::key(Ino(1)),
            lease::KEY.to_vec(),
            orphan::key(Ino(1)),
            queue::key(&in_queue),
            ranking::KEY.to_vec(),
        ];
        assert!(keys.iter().chain(&[symlink::key(Ino(1)), xattr::key(Ino(1), b"user.a")]).all(|key| is_known(key)));
        assert!(LETTERS.is_sorted() && keys.iter().all(|key| LETTERS.contains(&key[0])));
        for key in
            [&b""[..], b"d", b"i1234567", b"n1", b"q12345678", b"r1", b"x12345678", b"y12345678", b"d1234567812345678"]
        {
            assert!(!is_known(key), "{key:?}");
        }
    }

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
