//! The entries of a directory in replies to READDIR and READDIRPLUS.

use super::attributes::{ENTRY_OUT_BYTES, Entry};
use super::wire::Writer;

/// Bytes of `fuse_dirent` before its name.
const DIRENT_BYTES: usize = 24;

/// The answer to one request for entries, filled until it is full.
#[derive(Debug)]
pub struct Listing {
    written: Writer,
    size_max: usize,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The number that readdir(3) shows.
    pub inode: u64,
    /// A later request continues after this entry with this number.
    pub cookie: u64,
    /// Type, as in `mode` (`S_IF...`).
    pub mode: u32,
    /// Its name.
    pub name: &'a [u8],
}

impl Listing {
    /// An empty listing, for a reply of at most `size_max` bytes.
    pub fn new(size_max: u32) -> Self {
        let size_max = size_max as usize;
        Self { written: Writer::with_capacity(size_max.min(4096)), size_max }
    }

    /// Adds an entry for READDIR. False: the listing is full, and the entry was not added.
    #[must_use]
    pub fn add(&mut self, listed: &Listed<'_>) -> bool {
        self.add_after(0, listed, |_| {})
    }

    /// Adds an entry with the reply to a lookup of its name (READDIRPLUS). With inode 0 the kernel looks the name up
    /// when it needs it. False: the listing is full, and the entry was not added.
    #[must_use]
    pub fn add_plus(&mut self, listed: &Listed<'_>, entry: &Entry) -> bool {
        self.add_after(ENTRY_OUT_BYTES, listed, |writer| entry.encode_into(writer))
    }

    fn add_after(&mut self, before: usize, listed: &Listed<'_>, write_before: impl FnOnce(&mut Writer)) -> bool {
        let name_len = listed.name.len();
        let len = before + (DIRENT_BYTES + name_len).next_multiple_of(8);
        if self.written.len() + len > self.size_max {
            return false;
        }
        let end = self.written.len() + len;
        write_before(&mut self.written);
        self.written.u64(listed.inode).u64(listed.cookie);
        // A name has at most 255 bytes, because the kernel refuses longer ones. The type is that of getdents(2).
        self.written.u32(name_len as u32).u32((listed.mode & libc::S_IFMT) >> 12).bytes(listed.name);
        self.written.zeros(end - self.written.len());
        true
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        let len = self.written.len();
        assert!(len <= self.size_max, "{len} bytes of entries where {} fit", self.size_max);
        self.written.finish(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_padded_and_none_is_cut() {
        let listed = Listed { inode: 5, cookie: 9, mode: libc::S_IFDIR | 0o755, name: b"name" };
        let mut listing = Listing::new(64);
        assert!(listing.add(&listed) && listing.add(&listed));
        assert!(!listing.add(&listed), "a third one of 32 bytes does not fit into 64");
        let bytes = listing.into_bytes();
        assert_eq!(bytes.len(), 64);
        assert_eq!(bytes[16..20], 4_u32.to_ne_bytes());
        assert_eq!(bytes[20..24], u32::from(libc::DT_DIR).to_ne_bytes());
        assert_eq!(&bytes[24..32], b"name\0\0\0\0");
        let mut plus = Listing::new(160);
        assert!(plus.add_plus(&listed, &Entry::default()) && !plus.add(&listed));
        assert_eq!(plus.into_bytes()[128..136], 5_u64.to_ne_bytes());
    }
}
