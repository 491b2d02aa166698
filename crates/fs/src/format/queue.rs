//! The queue record: a file's place in a rank queue. Its key is the place, so keys sort in the order of the queue,
//! oldest first. Its value is only a checksum.
//!
//! A place may be out of date, and its file may be gone. Ranking corrects a place when it gets to the tail of its queue.

use oncefs_engine::{Moment, QueuePlace, Rank};

use crate::format::codec::{damaged, end_of_number, numbered_key, seal, unseal};
use crate::{Ino, Result};

pub(super) const LETTER: u8 = b'q';

/// Key of a place.
pub(crate) fn key(place: &QueuePlace) -> Vec<u8> {
    debug_assert!(place.rank != Rank::Cold, "inode {}: cold files have no queue", place.file);
    let mut key = beginning(place.rank, place.touched);
    key.extend_from_slice(&place.file.to_be_bytes());
    debug_assert_eq!(parse_key(&key), Some(*place), "the key {key:02x?} does not lead back to its place");
    key
}

/// The range of keys of a queue's places taken at `from` or later.
pub(crate) fn range(rank: Rank, from: Moment) -> (Vec<u8>, Vec<u8>) {
    (beginning(rank, from), end_of_number(LETTER, number(rank, Moment(u32::MAX))))
}

fn beginning(rank: Rank, from: Moment) -> Vec<u8> {
    numbered_key(LETTER, number(rank, from))
}

/// A queue and a moment as one number.
fn number(rank: Rank, touched: Moment) -> u64 {
    u64::from(rank.number()) << 32 | u64::from(touched.0)
}

/// The place of a key. None: the key is malformed, or there is no such queue.
pub(crate) fn parse_key(key: &[u8]) -> Option<QueuePlace> {
    let (beginning, file) = key.strip_prefix(&[LETTER])?.split_first_chunk::<8>()?;
    let number = u64::from_be_bytes(*beginning);
    let rank = Rank::from_number(u8::try_from(number >> 32).ok()?).filter(|rank| *rank != Rank::Cold)?;
    Some(QueuePlace { rank, touched: Moment(number as u32), file: u64::from_be_bytes(file.try_into().ok()?) })
}

pub(crate) fn encode(ino: Ino) -> Vec<u8> {
    seal(Vec::new(), ino.0)
}

pub(crate) fn decode(ino: Ino, bytes: &[u8]) -> Result<()> {
    match unseal("place in a queue of inode", ino.0, bytes)? {
        [] => Ok(()),
        _ => Err(damaged("place in a queue of inode", ino.0, "it is too long")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    fn place(rank: Rank, touched: u32, file: u64) -> QueuePlace {
        QueuePlace { rank, touched: Moment(touched), file }
    }

    #[test]
    fn the_bytes_of_a_place_never_change() {
        assert_eq!(hex(&key(&place(Rank::Random, 0x0102_0304, 5))), "7100000002010203040000000000000005");
        assert_eq!(hex(&encode(Ino(5))), "95e06205");
    }

    #[test]
    fn keys_have_the_order_of_places_and_lie_in_the_range_of_their_queue() {
        let places = [place(Rank::New, 9, 1), place(Rank::Sequential, 2, 300), place(Rank::Sequential, 2, 1 << 40)];
        assert!(places.is_sorted() && places.map(|place| key(&place)).is_sorted());
        for place in places {
            assert_eq!(parse_key(&key(&place)), Some(place));
            let (from, to) = range(place.rank, place.touched);
            assert!(from <= key(&place) && key(&place) < to);
            assert!(range(place.rank, place.touched.plus_seconds(1)).0 > key(&place));
        }
    }

    #[test]
    fn keys_of_no_place_are_refused() {
        let good = key(&place(Rank::New, 1, 2));
        for (at, byte) in [(0, b'r'), (1, 1), (4, 3), (4, 4)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(parse_key(&bad), None, "{bad:?}");
        }
        assert_eq!((parse_key(&good[1..]), parse_key(&[&good[..], &[0]].concat())), (None, None));
    }

    #[test]
    fn damage_and_a_wrong_file_are_noticed() {
        assert_damage_is_noticed(&encode(Ino(5)), |bytes| decode(Ino(5), bytes).is_ok());
        assert!(decode(Ino(6), &encode(Ino(5))).is_err());
    }
}
