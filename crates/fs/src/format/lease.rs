//! The lease record: the inode number below which all numbers may be in use.

use crate::format::codec::{Reader, damaged, seal, unseal};
use crate::{Ino, Result};

/// Key of the one lease record.
pub(crate) const KEY: &[u8] = b"n";

const WHAT: &str = "inode number lease";

/// Encodes the first inode number that was never leased.
pub(crate) fn encode(next: Ino) -> Vec<u8> {
    seal(next.0.to_le_bytes().to_vec(), 0)
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Ino> {
    let mut reader = Reader::new(unseal(WHAT, 0, bytes)?);
    match (reader.u64(), reader.is_empty()) {
        (Some(next), true) if next > Ino::ROOT.0 => Ok(Ino(next)),
        _ => Err(damaged(WHAT, 0, "it is not the number of an inode")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    #[test]
    fn the_bytes_of_a_lease_never_change() {
        assert_eq!(hex(&encode(Ino(1026))), "0204000000000000681758bd");
    }

    #[test]
    fn a_lease_survives_encoding_and_damage_is_noticed() {
        assert_eq!(decode(&encode(Ino(1026))).unwrap(), Ino(1026));
        assert_damage_is_noticed(&encode(Ino(1026)), |bytes| decode(bytes).is_ok());
        assert!(decode(&encode(Ino::ROOT)).is_err());
    }
}
