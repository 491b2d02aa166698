//! Directory entries. One record holds all names of a directory at one place; that is nearly always one name.
//!
//! A name's place comes from its hash (`names/placement`), and is its readdir cookie. So a cookie stays valid while other
//! names come and go, and a lookup takes one access in a directory of any size. Names at one place get different sequence
//! numbers, which are the low bits of their cookies.
//!
//! A full place overflows: a further name passes it and goes to its next place. The record counts the names that passed
//! it, so a lookup goes on only if the count is not 0. Removing a name that passed lowers the count.

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::format::codec::{Reader, damaged, end_of_number, number_of_key, numbered_key, seal, unseal};
use crate::format::placement::{PLACE_BITS_MAX, SEQUENCE_BITS};
use crate::{FileKind, Ino, NAME_BYTES_MAX, Result};

pub(super) const LETTER: u8 = b'd';
const VERSION: u8 = 1;
/// The version of a record whose place overflowed: it begins with the count of names that passed it.
const VERSION_OVERFLOWED: u8 = 2;
/// The count stays below this. A record with a higher one is damaged, so adding 1 cannot overflow.
const PASSED_END: u32 = 1 << 31;

const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

/// The lowest cookie of a name. Lower ones belong to `.` and `..`.
pub(crate) const FIRST_COOKIE: u64 = 1 << SEQUENCE_BITS;

/// Place of a name in its directory: a cookie whose sequence bits are zero. It has at most 63 bits, because the C library
/// treats cookies as signed numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place(u64);

impl Place {
    /// The place with this hash, if a directory has `2^bits - 1` of them.
    pub(crate) fn of_hash(hash: u64, bits: u8) -> Self {
        debug_assert!((1..=PLACE_BITS_MAX).contains(&bits), "places of {bits} bits");
        Self((1 + hash % ((1 << bits) - 1)) << SEQUENCE_BITS)
    }

    /// The first place of `name` on a volume without a placement record and with this seed.
    pub(crate) fn seeded(name: &[u8], seed: u64) -> Self {
        let hash = (xxh3_64_with_seed(name, seed) >> 1) & !SEQUENCE_MASK;
        let place = hash.max(FIRST_COOKIE);
        debug_assert!(place <= i64::MAX as u64 && place & SEQUENCE_MASK == 0, "{place:#x} is no place");
        Self(place)
    }

    /// The place as a number. Its low eight bits are zero.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// The place of the name with this cookie.
    pub(crate) fn of_cookie(cookie: u64) -> Self {
        Self(cookie & !SEQUENCE_MASK)
    }
}

/// Key of the names of `parent` at `place`.
pub(crate) fn key(parent: Ino, place: Place) -> Vec<u8> {
    let mut key = numbered_key(LETTER, parent.0);
    key.extend_from_slice(&place.0.to_be_bytes());
    key
}

/// First key after all names of `parent`.
pub(crate) fn end(parent: Ino) -> Vec<u8> {
    end_of_number(LETTER, parent.0)
}

/// The range of keys of all names of a directory.
pub(crate) fn range(parent: Ino) -> (Vec<u8>, Vec<u8>) {
    (numbered_key(LETTER, parent.0), end(parent))
}

/// Directory and place of a key.
pub(crate) fn parse_key(key: &[u8]) -> Option<(Ino, Place)> {
    let place = key.get(9..17)?.try_into().ok().map(u64::from_be_bytes)?;
    (key.len() == 17 && place & SEQUENCE_MASK == 0).then_some((Ino(number_of_key(key)?), Place(place)))
}

/// Whether these bytes can be a name. Other bytes are neither stored nor served, even if damage stored them: joined to a
/// directory's path they would lead elsewhere.
pub(crate) fn is_name(bytes: &[u8]) -> bool {
    let is_dots = bytes == b"." || bytes == b"..";
    !bytes.is_empty() && bytes.len() <= NAME_BYTES_MAX && !is_dots && !bytes.contains(&b'/') && !bytes.contains(&0)
}

/// One name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dirent {
    pub ino: Ino,
    pub kind: FileKind,
    pub name: Vec<u8>,
    sequence: u8,
}

impl Dirent {
    /// The name's readdir cookie, given its place.
    pub(crate) fn cookie(&self, place: Place) -> u64 {
        place.0 | u64::from(self.sequence)
    }
}

/// All names of a directory at one place, in the order of their cookies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    entries: Vec<Dirent>,
    /// Names that found this place full and went to a later one.
    passed: u32,
}

impl Names {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Dirent> {
        self.entries.iter()
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<&Dirent> {
        self.entries.iter().find(|dirent| dirent.name == name)
    }

    /// The entry `name`, for a caller that needs no other.
    pub(crate) fn into_entry(self, name: &[u8]) -> Option<Dirent> {
        self.entries.into_iter().find(|dirent| dirent.name == name)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is nothing to store.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.passed == 0
    }

    /// Whether names passed this place.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.passed > 0
    }

    /// Number of names that passed this place.
    pub(crate) fn passed(&self) -> u32 {
        self.passed
    }

    pub(crate) fn set_passed(&mut self, passed: u32) {
        self.passed = passed;
    }

    /// Counts a name that found this place full.
    pub(crate) fn name_passed_on(&mut self) {
        self.passed += 1;
    }

    /// Counts one fewer of them. fsck corrects a count that was already wrong.
    pub(crate) fn passed_name_removed(&mut self) {
        self.passed = self.passed.saturating_sub(1);
    }

    /// Adds a name, or points an existing one to another inode. False: all sequence numbers of the place are taken.
    pub(crate) fn set(&mut self, name: &[u8], ino: Ino, kind: FileKind) -> bool {
        debug_assert!(is_name(name), "{name:02x?} cannot be a name");
        if let Some(dirent) = self.entries.iter_mut().find(|dirent| dirent.name == name) {
            (dirent.ino, dirent.kind) = (ino, kind);
            return true;
        }
        let Some(sequence) = (0..=u8::MAX).find(|wanted| self.entries.iter().all(|dirent| dirent.sequence != *wanted))
        else {
            return false;
        };
        let at = self.entries.partition_point(|dirent| dirent.sequence < sequence);
        self.entries.insert(at, Dirent { ino, kind, name: name.to_vec(), sequence });
        true
    }

    pub(crate) fn remove(&mut self, name: &[u8]) {
        self.entries.retain(|dirent| dirent.name != name);
    }

    pub(crate) fn encode(&self, parent: Ino) -> Vec<u8> {
        debug_assert!(self.entries.is_sorted_by(|a, b| a.sequence < b.sequence), "directory {}: wrong order", parent.0);
        debug_assert!(!self.is_empty(), "directory {}: a record without a name or a count", parent.0);
        let mut body = vec![if self.has_overflowed() { VERSION_OVERFLOWED } else { VERSION }];
        if self.has_overflowed() {
            body.extend_from_slice(&self.passed.to_le_bytes());
        }
        for dirent in &self.entries {
            assert!(dirent.name.len() <= NAME_BYTES_MAX, "directory {}: {} bytes of name", parent.0, dirent.name.len());
            body.push(dirent.sequence);
            body.push((dirent.kind.mode_bits() >> 12) as u8);
            body.extend_from_slice(&dirent.ino.0.to_le_bytes());
            body.push(dirent.name.len() as u8);
            body.extend_from_slice(&dirent.name);
        }
        seal(body, parent.0)
    }

    pub(crate) fn decode(parent: Ino, bytes: &[u8]) -> Result<Self> {
        let body = unseal("directory", parent.0, bytes)?;
        parse(body).ok_or_else(|| damaged("directory", parent.0, "an entry's fields contradict each other"))
    }
}

fn parse(body: &[u8]) -> Option<Names> {
    let mut reader = Reader::new(body);
    let passed = match reader.u8()? {
        VERSION => 0,
        VERSION_OVERFLOWED => reader.u32().filter(|passed| (1..PASSED_END).contains(passed))?,
        _ => return None,
    };
    let mut names = Vec::with_capacity(1);
    while !reader.is_empty() {
        let sequence = reader.u8()?;
        let kind = FileKind::from_mode(u32::from(reader.u8()?) << 12)?;
        let ino = Ino(reader.u64()?);
        let len = usize::from(reader.u8()?);
        names.push(Dirent { ino, kind, name: reader.slice(len)?.to_vec(), sequence });
    }
    let are_names = names.iter().all(|dirent: &Dirent| is_name(&dirent.name));
    let ordered = names.is_sorted_by(|a: &Dirent, b: &Dirent| a.sequence < b.sequence);
    let names = Names { entries: names, passed };
    (ordered && are_names && !names.is_empty()).then_some(names)
}

const _: () = assert!(NAME_BYTES_MAX <= u8::MAX as usize, "one byte stores the length of a name");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::testing::{assert_damage_is_noticed, hex};

    fn sample() -> Names {
        let mut names = Names::default();
        assert!(names.set(b"a", Ino(7), FileKind::Regular));
        assert!(names.set(b"\xff\xfe", Ino(8), FileKind::Directory));
        names
    }

    #[test]
    fn the_bytes_of_directory_entries_never_change() {
        assert_eq!(hex(&sample().encode(Ino(3))), "010008070000000000000001610104080000000000000002fffe61f9d47b");
        assert_eq!(hex(&key(Ino(3), Place::seeded(b"a", 1))), "640000000000000003697b684cb79bd300");
    }

    #[test]
    fn the_bytes_of_a_place_that_overflowed_never_change() {
        let mut names = sample();
        names.set_passed(0x0102);
        assert_eq!(hex(&names.encode(Ino(3))), "02020100000008070000000000000001610104080000000000000002fffe21806535");
        assert_eq!(Names::decode(Ino(3), &names.encode(Ino(3))).unwrap(), names);
        names.remove(b"a");
        names.remove(b"\xff\xfe");
        assert!(!names.is_empty(), "the count stays when the names go");
        assert_eq!(Names::decode(Ino(3), &names.encode(Ino(3))).unwrap(), names);
        for passed in [0, PASSED_END] {
            let body = [&[VERSION_OVERFLOWED][..], &passed.to_le_bytes(), &[0, 8], &[0; 8], &[1, b'a']].concat();
            assert!(Names::decode(Ino(3), &seal(body, 3)).is_err(), "a count of {passed}");
        }
    }

    #[test]
    fn places_of_few_bits_leave_room_for_dot_and_dot_dot_and_give_small_cookies() {
        for bits in [1, 3, 23, PLACE_BITS_MAX] {
            for hash in [0, 1, 6, 7, 1 << 22, (1 << 23) - 1, u64::MAX] {
                let place = Place::of_hash(hash, bits);
                assert!(place.0 >= FIRST_COOKIE && (place.0 | SEQUENCE_MASK) < 1 << (u32::from(bits) + SEQUENCE_BITS));
                assert_eq!(parse_key(&key(Ino(9), place)), Some((Ino(9), place)));
            }
        }
    }

    #[test]
    fn entries_survive_encoding() {
        assert_eq!(Names::decode(Ino(3), &sample().encode(Ino(3))).unwrap(), sample());
    }

    #[test]
    fn damage_and_a_wrong_directory_are_noticed() {
        let good = sample().encode(Ino(3));
        assert_damage_is_noticed(&good, |bytes| Names::decode(Ino(3), bytes).is_ok());
        assert!(Names::decode(Ino(4), &good).is_err());
    }

    #[test]
    fn a_sealed_record_with_nonsense_is_refused() {
        for body in [&b""[..], b"\x01", b"\x02", b"\x01\x00\x08", b"\x01\x00\x00\0\0\0\0\0\0\0\0\x01a"] {
            assert!(Names::decode(Ino(3), &seal(body.to_vec(), 3)).is_err(), "{body:?}");
        }
    }

    #[test]
    fn a_sealed_record_whose_name_leads_out_of_the_directory_is_refused() {
        let record = |name: &[u8]| {
            let body = [&[VERSION, 0, 8][..], &7_u64.to_le_bytes(), &[name.len() as u8], name].concat();
            Names::decode(Ino(3), &seal(body, 3))
        };
        for name in [&b""[..], b".", b"..", b"/", b"../x", b"a/b", b"/etc/passwd", b"a\0b", b"\0"] {
            assert!(record(name).is_err(), "{name:?}");
        }
        for name in [&b"a"[..], b"...", b".a", b"..a", b"\xff", b" . ", &[b'n'; 255]] {
            assert!(record(name).unwrap().find(name).is_some(), "{name:?}");
        }
    }

    #[test]
    fn a_name_keeps_its_cookie_while_others_at_its_place_come_and_go() {
        let place = Place::seeded(b"x", 0);
        let mut names = sample();
        let cookie = names.find(b"\xff\xfe").unwrap().cookie(place);
        names.remove(b"a");
        assert_eq!(names.find(b"\xff\xfe").unwrap().cookie(place), cookie);
        assert!(names.set(b"b", Ino(9), FileKind::Fifo));
        assert_eq!(names.find(b"\xff\xfe").unwrap().cookie(place), cookie);
        assert!(names.find(b"b").unwrap().cookie(place) < cookie);
        assert_eq!(Place::of_cookie(cookie), place);
    }

    #[test]
    fn a_place_holds_256_names_and_no_more() {
        let mut names = Names::default();
        for number in 0..256_u64 {
            assert!(names.set(number.to_string().as_bytes(), Ino(number), FileKind::Regular));
        }
        assert!(!names.set(b"one more", Ino(1), FileKind::Regular));
        assert!(names.set(b"255", Ino(1), FileKind::Fifo));
    }

    #[test]
    fn places_leave_room_for_dot_and_dot_dot_and_are_positive() {
        for number in 0..10_000_u32 {
            let place = Place::seeded(&number.to_le_bytes(), 42);
            assert!(place.0 > 2 && place.0 <= i64::MAX as u64 && place.0 & SEQUENCE_MASK == 0);
            assert_eq!(parse_key(&key(Ino(9), place)), Some((Ino(9), place)));
        }
    }
}
