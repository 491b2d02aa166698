//! The placement record: the rule by which the names of a volume get their places. Written by mkfs, and never changed.
//!
//! A volume without it is older than the choice of a rule (`names/placement`).

use crate::format::codec::{Reader, damaged, seal, unseal};
use crate::{Error, Result};

/// Key of the one placement record.
pub(crate) const KEY: &[u8] = b"p";

const WHAT: &str = "placement of names";
const VERSION: u8 = 1;

/// Bits of a cookie that tell the names at one place apart. So a place can have at most 2^8 names.
pub(crate) const SEQUENCE_BITS: u32 = 8;
/// Bits of the number of a place. A cookie has these and the sequence bits, and the C library treats it as signed.
pub(crate) const PLACE_BITS_MAX: u8 = 55;
const _: () = assert!(PLACE_BITS_MAX as u32 + SEQUENCE_BITS == 63, "the sign of a cookie stays free");

/// How many places a directory has, and how many names a place takes before it overflows. Tests use small numbers to
/// force an overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamePlaces {
    /// A directory has `2^bits - 1` places, with `bits` from 1 to 55.
    pub bits: u8,
    /// Names at a place, from 1 to 256.
    pub names_max: u16,
}

impl Default for NamePlaces {
    /// Cookies of 31 bits, which fit into the `off_t` of every program: 2 billion names in a directory.
    fn default() -> Self {
        Self { bits: 23, names_max: 1 << SEQUENCE_BITS }
    }
}

impl NamePlaces {
    fn is_possible(self) -> bool {
        (1..=PLACE_BITS_MAX).contains(&self.bits) && (1..=1 << SEQUENCE_BITS).contains(&self.names_max)
    }
}

/// Encodes the record. Fails if a number is out of its range.
pub(crate) fn encode(places: NamePlaces) -> Result<Vec<u8>> {
    if !places.is_possible() {
        return Err(Error::Invalid("names have 1 to 55 bits of places, each of 1 to 256 names"));
    }
    let mut body = vec![VERSION, places.bits];
    body.extend_from_slice(&places.names_max.to_le_bytes());
    Ok(seal(body, 0))
}

pub(crate) fn decode(bytes: &[u8]) -> Result<NamePlaces> {
    parse(unseal(WHAT, 0, bytes)?).ok_or_else(|| damaged(WHAT, 0, "it is of a newer version, or out of its ranges"))
}

fn parse(body: &[u8]) -> Option<NamePlaces> {
    let mut reader = Reader::new(body);
    if reader.u8()? != VERSION {
        return None;
    }
    let places = NamePlaces { bits: reader.u8()?, names_max: reader.u16()? };
    (reader.is_empty() && places.is_possible()).then_some(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    #[test]
    fn the_bytes_of_a_placement_never_change() {
        assert_eq!(hex(&encode(NamePlaces::default()).unwrap()), "011700015de7284e");
    }

    #[test]
    fn a_placement_survives_encoding_and_damage_is_noticed() {
        let places = NamePlaces { bits: 3, names_max: 2 };
        let good = encode(places).unwrap();
        assert_eq!(decode(&good).unwrap(), places);
        assert_damage_is_noticed(&good, |bytes| decode(bytes).is_ok());
    }

    #[test]
    fn numbers_out_of_their_ranges_are_neither_stored_nor_read() {
        for (bits, names_max) in [(0, 1), (56, 1), (1, 0), (1, 257)] {
            assert!(encode(NamePlaces { bits, names_max }).is_err());
            let body = [&[VERSION, bits][..], &names_max.to_le_bytes()].concat();
            assert!(decode(&seal(body, 0)).is_err(), "{bits} bits, {names_max} names");
        }
    }
}
