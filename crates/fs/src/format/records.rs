//! All structures together: which keys exist, and how to decode and re-encode any record.

use crate::format::acl::{ACCESS, Acl, DEFAULT};
use crate::format::codec::number_of_key;
use crate::format::{dirent, inode, lease, orphan, placement, queue, ranking, symlink, xattr};
use crate::{Error, Ino, Result};

/// Decodes the value of any record of this crate and encodes it again, for tests of the format from outside. Also decodes
/// access control lists.
///
/// # Errors
///
/// - `Invalid`: the key belongs to no structure, or a list is malformed.
/// - `Engine`: the value is damaged.
pub fn recode(key: &[u8], value: &[u8]) -> Result<Vec<u8>> {
    if key == lease::KEY {
        return Ok(lease::encode(lease::decode(value)?));
    }
    if key == placement::KEY {
        return placement::encode(placement::decode(value)?);
    }
    if key == ranking::KEY {
        return Ok(ranking::encode(&ranking::decode(value)?));
    }
    if let Some(place) = queue::parse_key(key) {
        return queue::decode(Ino(place.file), value).map(|()| queue::encode(Ino(place.file)));
    }
    let foreign = Error::Invalid("no structure has this key");
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

/// Whether the checksum of a record proves its value under its key. For directory entries the checksum proves the inode
/// in the key, but not the place in it, which the names tell. An attribute proves itself only under a name that damage
/// does not make of another one: its checksum does not cover the name. A place in a queue proves nothing: its checksum
/// covers only the file.
pub fn proves_itself(key: &[u8], value: &[u8]) -> bool {
    let is_covered = match key.first() {
        Some(&queue::LETTER) => false,
        Some(&xattr::LETTER) => xattr::parse_key(key).is_some_and(|(_, name)| DISTINCT_NAMES.contains(&name)),
        _ => true,
    };
    is_covered && is_known(key) && recode(key, value).is_ok()
}

/// Names of attributes that the kernel acts on. No few wrong bytes make one of them of another.
const DISTINCT_NAMES: [&[u8]; 4] = [ACCESS, DEFAULT, b"security.capability", b"security.selinux"];

/// The letters that keys start with, ascending.
pub(crate) const LETTERS: [u8; 9] = *b"dinopqrsx";
const _: () = assert!(dirent::LETTER == LETTERS[0] && inode::LETTER == LETTERS[1], "directories and inodes come first");
const _: () = assert!(lease::KEY[0] == LETTERS[2] && orphan::LETTER == LETTERS[3], "then the lease and orphans");
const _: () = assert!(placement::KEY[0] == LETTERS[4], "then the placement of names");
const _: () = assert!(queue::LETTER == LETTERS[5] && ranking::KEY[0] == LETTERS[6], "then queues and the ranking");
const _: () = assert!(symlink::LETTER == LETTERS[7] && xattr::LETTER == LETTERS[8], "then symlinks and attributes");

/// Whether a key is well-formed: this crate writes keys of this form.
pub(crate) fn is_known(key: &[u8]) -> bool {
    match key.first() {
        Some(b'd') => dirent::parse_key(key).is_some(),
        Some(b'i' | b'o' | b's') => key.len() == 9,
        Some(b'n') => key == lease::KEY,
        Some(b'p') => key == placement::KEY,
        Some(b'q') => queue::parse_key(key).is_some(),
        Some(b'r') => key == ranking::KEY,
        Some(b'x') => key.len() > 9,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_proves_itself_under_its_own_inode_only() {
        let (value, name) = (xattr::encode(Ino(5), b"value"), b"security.selinux");
        assert!(proves_itself(&xattr::key(Ino(5), name), &value));
        assert!(!proves_itself(&xattr::key(Ino(6), name), &value));
        assert!(!proves_itself(&xattr::key(Ino(5), name), &value[1..]));
        assert!(!proves_itself(b"x", &value) && !proves_itself(b"", &value));
    }

    #[test]
    fn an_attribute_proves_itself_under_no_name_that_a_wrong_byte_makes_of_another() {
        let value = xattr::encode(Ino(5), b"value");
        for name in [&b"user.a"[..], b"user.b", b"usar.b", b"security.selinuy"] {
            assert!(!proves_itself(&xattr::key(Ino(5), name), &value), "{}", name.escape_ascii());
        }
    }

    #[test]
    fn keys_of_every_structure_are_known_and_others_are_not() {
        use oncefs_engine::{Moment, QueuePlace, Rank};
        let place = dirent::Place::seeded(b"a", 0);
        let in_queue = QueuePlace { rank: Rank::New, touched: Moment(7), file: 1 };
        let keys = [
            dirent::key(Ino(1), place),
            inode::key(Ino(1)),
            lease::KEY.to_vec(),
            orphan::key(Ino(1)),
            placement::KEY.to_vec(),
            queue::key(&in_queue),
            ranking::KEY.to_vec(),
        ];
        assert!(keys.iter().chain(&[symlink::key(Ino(1)), xattr::key(Ino(1), b"user.a")]).all(|key| is_known(key)));
        assert!(LETTERS.is_sorted() && keys.iter().all(|key| LETTERS.contains(&key[0])));
        for key in [
            &b""[..],
            b"d",
            b"i1234567",
            b"n1",
            b"p1",
            b"q12345678",
            b"r1",
            b"x12345678",
            b"y12345678",
            b"d1234567812345678",
        ] {
            assert!(!is_known(key), "{key:?}");
        }
    }
}
