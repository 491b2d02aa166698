//! How much room the extended attributes of one inode may take: names that listxattr(2) can return, and a bound of
//! bytes. The bound keeps the deletion of an inode small, and the memory of a listing. Beyond it `setxattr` answers
//! ENOSPC, as ext4, XFS and btrfs do where an inode has no room for a further attribute.
//!
//! An inode of a volume that an older version wrote may have more. It keeps them, can lose them and gets no further ones.

use crate::format::codec::{CHECKSUM_BYTES, after};
use crate::format::inode::InodeRecord;
use crate::format::xattr;
use crate::{Error, FileSystem, Ino, NAME_BYTES_MAX, Result};

/// Largest value: the kernel's XATTR_SIZE_MAX.
pub(crate) const VALUE_BYTES_MAX: usize = 64 << 10;
/// Attributes fetched at a time. Few, because their values come along.
pub(crate) const PAGE_RECORDS: usize = 64;
/// Most attributes fetched at a time while they are counted: an inode with many attributes has short ones. A full inode
/// takes 21 portions, so that its lock is held for few reads.
const COUNTED_RECORDS_MAX: usize = 512;
/// Bytes of the names of all attributes of an inode, each with a NUL byte: the kernel's XATTR_LIST_MAX.
pub(crate) const NAMES_BYTES_MAX: usize = 64 << 10;
/// Bytes of the names and values of all attributes of an inode.
pub(crate) const ATTRIBUTES_BYTES_MAX: usize = 1 << 20;
/// This many attributes always fit, so they are not counted.
const FIT_ALWAYS: usize = 15;
const _: () = assert!(FIT_ALWAYS * (NAME_BYTES_MAX + 1 + VALUE_BYTES_MAX) <= ATTRIBUTES_BYTES_MAX);
const _: () = assert!(FIT_ALWAYS * (NAME_BYTES_MAX + 1) <= NAMES_BYTES_MAX);

/// The room that attributes take.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    /// Their names, each with a NUL byte.
    names: usize,
    values: usize,
}

impl Room {
    fn add(&mut self, name: &[u8], value_bytes: usize) {
        self.names += name.len() + 1;
        self.values += value_bytes;
    }

    fn is_enough(self) -> bool {
        self.names <= NAMES_BYTES_MAX && self.names + self.values <= ATTRIBUTES_BYTES_MAX
    }
}

impl FileSystem {
    /// Refuses an attribute for which the inode has no room. `held`: the bytes of its present record, if there is one.
    /// The caller holds the inode's lock. Counts the stored attributes, at most 1 MiB, so that no stored count can be
    /// wrong.
    pub(crate) fn check_attribute_room(
        &self,
        ino: Ino,
        record: &InodeRecord,
        name: &[u8],
        value_bytes: usize,
        held: Option<usize>,
    ) -> Result<()> {
        let count = record.xattrs as usize + usize::from(held.is_none());
        let shrinks = held.is_some_and(|held| value_bytes + CHECKSUM_BYTES <= held);
        if count <= FIT_ALWAYS || shrinks {
            return Ok(());
        }
        let mut room = Room::default();
        room.add(name, value_bytes);
        let (mut from, to) = xattr::range(ino);
        let mut page_records = PAGE_RECORDS;
        while room.is_enough() {
            let page = self.store.scan(&from, &to, page_records)?;
            for (key, value) in &page {
                if let Some((_, other)) = xattr::parse_key(key).filter(|(_, other)| *other != name) {
                    room.add(other, value.len().saturating_sub(CHECKSUM_BYTES));
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == page_records => from = after(key),
                _ => break,
            }
            page_records = COUNTED_RECORDS_MAX.min(page_records * 2);
        }
        if room.is_enough() { Ok(()) } else { Err(Error::NoSpace) }
    }
}

#[cfg(test)]
mod tests;
