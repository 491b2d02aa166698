//! The xattr record: one extended attribute. The key has its name, the record its value.

use crate::format::codec::{end_of_number, number_of_key, numbered_key, seal, unseal};
use crate::{Ino, NAME_BYTES_MAX, Result};

pub(super) const LETTER: u8 = b'x';

/// Key of an attribute.
pub(crate) fn key(ino: Ino, name: &[u8]) -> Vec<u8> {
    debug_assert!(
        (1..=NAME_BYTES_MAX).contains(&name.len()),
        "inode {}: {} bytes of attribute name",
        ino.0,
        name.len()
    );
    let mut key = numbered_key(LETTER, ino.0);
    key.extend_from_slice(name);
    key
}

/// The range of keys of all attributes of an inode.
pub(crate) fn range(ino: Ino) -> (Vec<u8>, Vec<u8>) {
    (numbered_key(LETTER, ino.0), end_of_number(LETTER, ino.0))
}

/// Inode and name of a key.
pub(crate) fn parse_key(key: &[u8]) -> Option<(Ino, &[u8])> {
    Some((Ino(number_of_key(key)?), key.get(9..)?))
}

pub(crate) fn encode(ino: Ino, value: &[u8]) -> Vec<u8> {
    seal(value.to_vec(), ino.0)
}

pub(crate) fn decode(ino: Ino, bytes: &[u8]) -> Result<Vec<u8>> {
    Ok(unseal("extended attribute of inode", ino.0, bytes)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    #[test]
    fn the_bytes_of_an_attribute_never_change() {
        assert_eq!(hex(&key(Ino(5), b"user.a")), "780000000000000005757365722e61");
        assert_eq!(hex(&encode(Ino(5), b"value")), "76616c7565500c1f2f");
    }

    #[test]
    fn an_attribute_survives_encoding_and_damage_is_noticed() {
        assert_eq!(decode(Ino(5), &encode(Ino(5), b"value")).unwrap(), b"value");
        assert_damage_is_noticed(&encode(Ino(5), b"value"), |bytes| decode(Ino(5), bytes).is_ok());
        assert_eq!(parse_key(&key(Ino(5), b"user.a")), Some((Ino(5), &b"user.a"[..])));
    }
}
