//! Records in objects of a cluster: the names and the headers of their objects, and the index, which says what object
//! has what range of keys.

use super::{at, checksum};
use crate::{Error, Result};

/// The name of the index, and the beginning of the names of the others.
pub const INDEX: &str = "records";
/// Size of a header in bytes.
pub const HEADER_BYTES: usize = 48;
const MAGIC: &[u8; 16] = b"oncefs records\n\0";
const ID_AT: usize = 16;
const NUMBER_AT: usize = 32;
const CHECKSUM_AT: usize = 40;
/// The number in the header of the index, which no object of records has.
const NO_NUMBER: u64 = u64::MAX;
const HEADER_SEED: u64 = 0x7265_6373;
const ENTRY_SEED: u64 = 0x7265_6369;
const _: () = assert!(CHECKSUM_AT + 8 == HEADER_BYTES);

const NEXT: u8 = b'n';
const OPENED: u8 = b'o';
const RANGE: u8 = b'r';
const MOVED: u8 = b'm';
const REMOVED: u8 = b'x';

/// The name of an object with records.
pub fn object(number: u64) -> String {
    format!("{INDEX}.{number:016x}")
}

/// The bytes of the index, or of the object with this number.
pub fn header(volume_id: [u8; 16], number: Option<u64>) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..ID_AT].copy_from_slice(MAGIC);
    bytes[ID_AT..NUMBER_AT].copy_from_slice(&volume_id);
    bytes[NUMBER_AT..CHECKSUM_AT].copy_from_slice(&number.unwrap_or(NO_NUMBER).to_le_bytes());
    let sum = checksum(&bytes[..CHECKSUM_AT], HEADER_SEED);
    bytes[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

/// Refuses the header of the index, or of the object with this number, if it is damaged or of another volume.
///
/// # Errors
///
/// [`Error::Corrupt`].
pub fn check_header(bytes: &[u8], volume_id: [u8; 16], number: Option<u64>) -> Result<()> {
    let damaged = |detail: &str| {
        let name = number.map_or_else(|| INDEX.to_owned(), object);
        Err(Error::corrupt("the record store", format!("the object {name}: {detail}")))
    };
    if bytes.len() != HEADER_BYTES || &bytes[..ID_AT] != MAGIC {
        return damaged("its header is no such header");
    }
    if at::u64(bytes, CHECKSUM_AT) != checksum(&bytes[..CHECKSUM_AT], HEADER_SEED) {
        return damaged("the checksum of its header does not match");
    }
    if bytes[..CHECKSUM_AT] != header(volume_id, number)[..CHECKSUM_AT] {
        return damaged("it is another object's, or of another volume");
    }
    Ok(())
}

/// An entry of the index: a key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexEntry {
    /// The number of the next new object.
    Next(u64),
    /// How often the records were opened for changes. Changes of the index are guarded by it.
    Opened(u64),
    /// An object has the keys from this one on, up to the first key of the next range.
    Range {
        /// The first key. That of the first range is empty.
        first: Vec<u8>,
        /// The object.
        number: u64,
        /// How many keys it had when that was last noted.
        keys: u64,
    },
    /// Keys of an object that moved to another, and are still to be removed.
    Moved {
        /// The object that had them.
        number: u64,
        /// The first key.
        from: Vec<u8>,
        /// The key after the last.
        to: Vec<u8>,
    },
    /// An object without a range, which is to be removed.
    Removed(u64),
}

impl IndexEntry {
    /// Its key in the index.
    pub fn key(&self) -> Vec<u8> {
        let numbered = |kind: u8, number: &u64| [&[kind][..], &number.to_be_bytes()].concat();
        match self {
            Self::Next(_) => vec![NEXT],
            Self::Opened(_) => vec![OPENED],
            Self::Range { first, .. } => [&[RANGE][..], first].concat(),
            Self::Moved { number, .. } => numbered(MOVED, number),
            Self::Removed(number) => numbered(REMOVED, number),
        }
    }

    /// Its value in the index.
    pub fn value(&self) -> Vec<u8> {
        let mut value = match self {
            Self::Next(number) | Self::Opened(number) => number.to_le_bytes().to_vec(),
            Self::Range { number, keys, .. } => [number.to_le_bytes(), keys.to_le_bytes()].concat(),
            Self::Moved { from, to, .. } => [&(from.len() as u64).to_le_bytes()[..], from, to].concat(),
            Self::Removed(_) => Vec::new(),
        };
        let sum = checksum_of(&self.key(), &value);
        value.extend(sum.to_le_bytes());
        value
    }

    /// The entry of a key and a value.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`].
    pub fn decode(key: &[u8], value: &[u8]) -> Result<Self> {
        Self::decoded(key, value).ok_or_else(|| {
            let detail = format!("the entry {} is damaged", key.escape_ascii());
            Error::corrupt("the index of the records", detail)
        })
    }

    fn decoded(key: &[u8], value: &[u8]) -> Option<Self> {
        let (value, sum) = value.split_last_chunk::<8>()?;
        let (kind, rest) = key.split_first()?;
        if u64::from_le_bytes(*sum) != checksum_of(key, value) {
            return None;
        }
        let number = || Some(u64::from_be_bytes(rest.try_into().ok()?));
        match *kind {
            NEXT if rest.is_empty() && value.len() == 8 => Some(Self::Next(at::u64(value, 0))),
            OPENED if rest.is_empty() && value.len() == 8 => Some(Self::Opened(at::u64(value, 0))),
            RANGE if value.len() == 16 => {
                Some(Self::Range { first: rest.to_vec(), number: at::u64(value, 0), keys: at::u64(value, 8) })
            }
            MOVED => {
                let (len, keys) = value.split_first_chunk::<8>()?;
                let (from, to) = keys.split_at_checked(usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
                Some(Self::Moved { number: number()?, from: from.to_vec(), to: to.to_vec() })
            }
            REMOVED if value.is_empty() => Some(Self::Removed(number()?)),
            _ => None,
        }
    }
}

/// The key is part of it, so that an entry in the place of another is detected.
fn checksum_of(key: &[u8], value: &[u8]) -> u64 {
    checksum(&[&(key.len() as u64).to_le_bytes()[..], key, value].concat(), ENTRY_SEED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> [IndexEntry; 6] {
        [
            IndexEntry::Next(7),
            IndexEntry::Opened(2),
            IndexEntry::Range { first: Vec::new(), number: 0, keys: 3 },
            IndexEntry::Range { first: vec![2, 0, 9], number: 0x0102, keys: 100_000 },
            IndexEntry::Moved { number: 5, from: vec![2, 1], to: vec![2, 1, 0] },
            IndexEntry::Removed(6),
        ]
    }

    #[test]
    fn entries_have_their_golden_bytes_and_come_back() {
        let [next, opened, first, range, moved, removed] = samples();
        assert_eq!(next.key(), b"n");
        assert_eq!(next.value()[..8], [7, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(opened.key(), b"o");
        assert_eq!(opened.value()[..8], [2, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(first.key(), b"r");
        assert_eq!(range.key(), [b'r', 2, 0, 9]);
        assert_eq!(range.value()[..16], [2, 1, 0, 0, 0, 0, 0, 0, 0xA0, 0x86, 1, 0, 0, 0, 0, 0]);
        assert_eq!(moved.key(), [b'm', 0, 0, 0, 0, 0, 0, 0, 5]);
        assert_eq!(moved.value()[..13], [2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 1, 0]);
        assert_eq!(removed.key(), [b'x', 0, 0, 0, 0, 0, 0, 0, 6]);
        assert_eq!(removed.value().len(), 8);
        for entry in samples() {
            assert_eq!(IndexEntry::decode(&entry.key(), &entry.value()).unwrap(), entry);
        }
        assert_eq!(object(0x1F), "records.000000000000001f");
    }

    #[test]
    fn any_flipped_bit_of_an_entry_and_another_place_is_damage() {
        for entry in samples() {
            let (key, value) = (entry.key(), entry.value());
            for bit in 0..value.len() * 8 {
                let mut bad = value.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(IndexEntry::decode(&key, &bad).is_err(), "{entry:?}, bit {bit}");
            }
            assert!(IndexEntry::decode(&[&key[..], &[0]].concat(), &value).is_err(), "{entry:?}");
            assert!(IndexEntry::decode(&key, &value[..value.len() - 1]).is_err(), "{entry:?}");
        }
    }

    #[test]
    fn the_header_has_its_golden_bytes_and_belongs_to_one_volume() {
        let bytes = header([7; 16], None);
        assert_eq!(&bytes[..16], b"oncefs records\n\0");
        assert_eq!(bytes[16..32], [7; 16]);
        assert_eq!(bytes[32..40], [0xFF; 8]);
        assert_eq!(header([7; 16], Some(3))[32..40], [3, 0, 0, 0, 0, 0, 0, 0]);
        check_header(&bytes, [7; 16], None).unwrap();
        check_header(&header([7; 16], Some(3)), [7; 16], Some(3)).unwrap();
        assert!(check_header(&bytes, [8; 16], None).is_err());
        assert!(check_header(&header([7; 16], Some(3)), [7; 16], None).is_err(), "it is no index");
        assert!(check_header(&header([7; 16], Some(3)), [7; 16], Some(4)).is_err(), "it is another");
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(check_header(&bad, [7; 16], None).is_err(), "bit {bit}");
        }
    }
}
