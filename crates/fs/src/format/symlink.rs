//! The symlink record: the target of a symbolic link, unchanged.

use crate::format::codec::{numbered_key, seal, unseal};
use crate::{Ino, Result};

pub(super) const LETTER: u8 = b's';

/// Key of a symbolic link's target.
pub(crate) fn key(ino: Ino) -> Vec<u8> {
    numbered_key(LETTER, ino.0)
}

pub(crate) fn encode(ino: Ino, target: &[u8]) -> Vec<u8> {
    seal(target.to_vec(), ino.0)
}

pub(crate) fn decode(ino: Ino, bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(unseal("symbolic link", ino.0, bytes)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    #[test]
    fn the_bytes_of_a_symlink_never_change() {
        assert_eq!(hex(&encode(Ino(5), b"../x")), "2e2e2f788ca284ca");
    }

    #[test]
    fn a_symlink_survives_encoding_and_damage_is_noticed() {
        assert_eq!(decode(Ino(5), &encode(Ino(5), b"../x")).unwrap(), b"../x");
        assert_damage_is_noticed(&encode(Ino(5), b"../x"), |bytes| decode(Ino(5), bytes).is_ok());
    }
}
