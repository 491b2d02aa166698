//! POSIX access control lists, as stored in the xattrs `system.posix_acl_access` and `system.posix_acl_default` (version
//! 2, see acl(5)), and the rules that keep them and the permission bits consistent.

use crate::{Error, Result};

/// Name of the list that controls access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// Name of the list that a directory passes on to new inodes.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const ENTRY_BYTES: usize = 8;

const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The permission to write.
const WRITE: u16 = 2;

/// A well-formed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl {
    entries: Vec<AclEntry>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: u16,
    permissions: u16,
    id: u32,
}

impl Acl {
    /// Decodes a list. None: an empty one, which means no list.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let malformed = Error::Invalid("malformed access control list: it is not in the format of acl(5), version 2");
        let Some((version, entries)) = bytes.split_first_chunk::<4>() else { return Err(malformed) };
        let (entries, []) = entries.as_chunks::<ENTRY_BYTES>() else { return Err(malformed) };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(malformed);
        }
        let entries: Vec<AclEntry> = entries.iter().map(AclEntry::decode).collect();
        match entries.is_empty() {
            true => Ok(None),
            false if is_valid(&entries) => Ok(Some(Self { entries })),
            false => Err(malformed),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for entry in &self.entries {
            bytes.extend_from_slice(&entry.tag.to_le_bytes());
            bytes.extend_from_slice(&entry.permissions.to_le_bytes());
            bytes.extend_from_slice(&entry.id.to_le_bytes());
        }
        bytes
    }

    /// Whether the permission bits fully express the list.
    pub(crate) fn is_only_mode(&self) -> bool {
        self.entries.iter().all(|entry| matches!(entry.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// The nine permission bits of the list.
    pub(crate) fn mode(&self) -> u32 {
        let group = self.group_class();
        self.entries.iter().fold(0, |mode, entry| match entry.tag {
            USER_OBJ => mode | u32::from(entry.permissions) << 6,
            OTHER => mode | u32::from(entry.permissions),
            tag if tag == group => mode | u32::from(entry.permissions) << 3,
            _ => mode,
        })
    }

    /// Whether a user may write who is not the owner (acl(5)): a named user by their own entry, a member of groups by
    /// any of these, others by the last. The mask bounds all but the last.
    pub(crate) fn lets_write(&self, user: u32, owning_group: u32, is_in_group: impl Fn(u32) -> bool) -> bool {
        let mask = self.entries.iter().find(|entry| entry.tag == MASK).map_or(WRITE, |mask| mask.permissions);
        if let Some(own) = self.entries.iter().find(|entry| entry.tag == USER && entry.id == user) {
            return own.permissions & mask & WRITE != 0;
        }
        let is_of_group = |entry: &&AclEntry| match entry.tag {
            GROUP_OBJ => is_in_group(owning_group),
            GROUP => is_in_group(entry.id),
            _ => false,
        };
        let of_groups: Vec<u16> = self.entries.iter().filter(is_of_group).map(|entry| entry.permissions).collect();
        if of_groups.is_empty() {
            return self.mode() & libc::S_IWOTH != 0;
        }
        of_groups.iter().any(|permissions| permissions & mask & WRITE != 0)
    }

    /// Sets the entries that correspond to permission bits, as a chmod does.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        self.for_each_class(|permissions, shift| *permissions = (mode >> shift & 7) as u16);
        debug_assert_eq!(self.mode(), mode & 0o777, "the list does not follow mode {mode:o}");
    }

    /// Turns a directory's default list into the access list of a file created with `mode`. Narrows both, so that neither
    /// allows more than the other.
    pub(crate) fn inherit(mut self, mode: &mut u32) -> Self {
        self.for_each_class(|permissions, shift| *permissions &= (*mode >> shift & 7) as u16);
        debug_assert_eq!(self.mode() & !*mode & 0o777, 0, "the list, {:o}, allows more than {mode:o}", self.mode());
        *mode = *mode & !0o777 | self.mode();
        self
    }

    /// Calls `change` for the entries that correspond to permission bits, with the shift of those bits.
    fn for_each_class(&mut self, mut change: impl FnMut(&mut u16, u32)) {
        let group = self.group_class();
        for entry in &mut self.entries {
            match entry.tag {
                USER_OBJ => change(&mut entry.permissions, 6),
                OTHER => change(&mut entry.permissions, 0),
                tag if tag == group => change(&mut entry.permissions, 3),
                _ => {}
            }
        }
    }

    /// The entry that the group's permission bits show: the mask if there is one.
    fn group_class(&self) -> u16 {
        if self.entries.iter().any(|entry| entry.tag == MASK) { MASK } else { GROUP_OBJ }
    }
}

impl AclEntry {
    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [t0, t1, p0, p1, id @ ..] = *bytes;
        Self {
            tag: u16::from_le_bytes([t0, t1]),
            permissions: u16::from_le_bytes([p0, p1]),
            id: u32::from_le_bytes(id),
        }
    }
}

/// Whether the entries are owner, named users, group, named groups, mask and others, in this order. Named entries need
/// a mask.
fn is_valid(entries: &[AclEntry]) -> bool {
    let count = |tag| entries.iter().filter(|entry| entry.tag == tag).count();
    let known = entries
        .iter()
        .all(|entry| matches!(entry.tag, USER_OBJ | USER | GROUP_OBJ | GROUP | MASK | OTHER) && entry.permissions <= 7);
    let named = count(USER) + count(GROUP) > 0;
    known
        && entries.is_sorted_by_key(|entry| entry.tag)
        && [USER_OBJ, GROUP_OBJ, OTHER].into_iter().all(|tag| count(tag) == 1)
        && (count(MASK) == 1 || count(MASK) == 0 && !named)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16, u32)]) -> Acl {
        Acl { entries: entries.iter().map(|&(tag, permissions, id)| AclEntry { tag, permissions, id }).collect() }
    }

    fn with_mask() -> Acl {
        acl(&[(USER_OBJ, 7, 0), (USER, 7, 1000), (GROUP_OBJ, 5, 0), (MASK, 7, 0), (OTHER, 5, 0)])
    }

    #[test]
    fn a_list_survives_encoding() {
        assert_eq!(Acl::decode(&with_mask().encode()).unwrap(), Some(with_mask()));
        assert_eq!(Acl::decode(&VERSION.to_le_bytes()).unwrap(), None);
    }

    #[test]
    fn malformed_lists_are_refused() {
        let base = [(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 5, 0)];
        assert!(Acl::decode(&acl(&base).encode()).is_ok());
        let bad = [
            acl(&base[..2]).encode(),
            acl(&[base[1], base[0], base[2]]).encode(),
            acl(&[base[0], (USER, 7, 1), base[1], base[2]]).encode(),
            acl(&[(USER_OBJ, 8, 0), base[1], base[2]]).encode(),
            acl(&[base[0], base[0], base[1], base[2]]).encode(),
            acl(&[base[0], base[1], base[2], (0x40, 7, 0)]).encode(),
            vec![2, 0, 0],
            vec![2, 0, 0, 0, 1],
            [&[1, 0, 0, 0], &acl(&base).encode()[4..]].concat(),
        ];
        for bytes in bad {
            assert!(Acl::decode(&bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn the_mask_stands_for_the_group_bits() {
        assert_eq!(with_mask().mode(), 0o775);
        let mut list = with_mask();
        list.set_mode(0o640);
        assert_eq!(list, acl(&[(USER_OBJ, 6, 0), (USER, 7, 1000), (GROUP_OBJ, 5, 0), (MASK, 4, 0), (OTHER, 0, 0)]));
        assert!(!list.is_only_mode());
    }

    #[test]
    fn without_a_mask_the_group_entry_follows_the_group_bits() {
        let mut list = acl(&[(USER_OBJ, 7, 0), (GROUP_OBJ, 5, 0), (OTHER, 5, 0)]);
        assert!(list.is_only_mode());
        list.set_mode(0o621);
        assert_eq!(list.mode(), 0o621);
    }

    #[test]
    fn a_list_lets_write_whom_its_closest_entry_lets_within_the_mask() {
        let list = |mask| {
            let named = [(USER, 4, 7), (USER, 6, 8), (GROUP_OBJ, 4, 0), (GROUP, 6, 20)];
            acl(&[&[(USER_OBJ, 6, 0)][..], &named, &[(MASK, mask, 0), (OTHER, 6, 0)]].concat())
        };
        let lets = |mask, user, groups: &[u32]| list(mask).lets_write(user, 10, |group| groups.contains(&group));
        assert!(!lets(6, 7, &[20]), "a named user without the permission, in whatever group");
        assert!(lets(6, 8, &[]) && !lets(4, 8, &[]), "a named user, within the mask");
        assert!(!lets(6, 9, &[10]), "the owning group has none, though others have");
        assert!(lets(6, 9, &[10, 20]) && !lets(4, 9, &[10, 20]), "one of the groups, within the mask");
        assert!(lets(6, 9, &[]) && lets(4, 9, &[]), "others, whatever the mask is");
    }

    #[test]
    fn an_inherited_list_and_the_mode_narrow_each_other() {
        let mut mode = 0o4666;
        let list = with_mask().inherit(&mut mode);
        assert_eq!(mode, 0o4664);
        assert_eq!(list, acl(&[(USER_OBJ, 6, 0), (USER, 7, 1000), (GROUP_OBJ, 5, 0), (MASK, 6, 0), (OTHER, 4, 0)]));
    }
}
