//! The orphan record: an inode without a name that may still be open.
//!
//! It holds the epoch of the mount that removed the last name. Only programs of that mount can have the file open, so a
//! later mount can delete the inode at once.

use crate::format::codec::{Reader, damaged, end_of_number, number_of_key, numbered_key, seal, unseal};
use crate::{Ino, Result};

pub(super) const LETTER: u8 = b'o';

/// Key of an orphan's record.
pub(crate) fn key(ino: Ino) -> Vec<u8> {
    numbered_key(LETTER, ino.0)
}

/// The range of keys from orphan `from` to the last one.
pub(crate) fn range(from: Ino) -> (Vec<u8>, Vec<u8>) {
    (key(from), end_of_number(LETTER, u64::MAX))
}

/// The inode of a key.
pub(crate) fn ino_of_key(key: &[u8]) -> Option<Ino> {
    number_of_key(key).map(Ino)
}

pub(crate) fn encode(ino: Ino, epoch: u64) -> Vec<u8> {
    seal(epoch.to_le_bytes().to_vec(), ino.0)
}

/// The epoch of the mount that removed the last name.
pub(crate) fn decode(ino: Ino, bytes: &[u8]) -> Result<u64> {
    let mut reader = Reader::new(unseal("orphan", ino.0, bytes)?);
    match (reader.u64(), reader.is_empty()) {
        (Some(epoch), true) => Ok(epoch),
        _ => Err(damaged("orphan", ino.0, "it has no epoch")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    #[test]
    fn the_bytes_of_an_orphan_never_change() {
        assert_eq!(hex(&encode(Ino(5), 2)), "0200000000000000a577022f");
    }

    #[test]
    fn an_orphan_survives_encoding_and_damage_is_noticed() {
        assert_eq!(decode(Ino(5), &encode(Ino(5), 2)).unwrap(), 2);
        assert_damage_is_noticed(&encode(Ino(5), 2), |bytes| decode(Ino(5), bytes).is_ok());
    }
}
