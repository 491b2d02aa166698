//! The size of the file system on a disk: the disk must not shrink below it.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Both superblocks that are known here lie below this.
const HEAD_BYTES: usize = 4096;

/// The content of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing was ever written.
    Nothing,
    /// A file system of this many bytes.
    FileSystem {
        /// Its kind, as blkid(8) calls it.
        kind: &'static str,
        /// Its length.
        bytes: u64,
    },
    /// Something else.
    Unknown,
}

/// Reads what lies on a disk.
pub fn content(disk: &File) -> io::Result<Content> {
    if !has_data(disk)? {
        return Ok(Content::Nothing);
    }
    let mut head = [0; HEAD_BYTES];
    match disk.read_exact_at(&mut head, 0) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(Content::Unknown),
        Err(e) => Err(e),
        Ok(()) => Ok(of_head(&head)),
    }
}

/// Whether anything was written. Reserved room is no data.
fn has_data(disk: &File) -> io::Result<bool> {
    // SAFETY: an open descriptor and plain numbers.
    match unsafe { libc::lseek(disk.as_raw_fd(), 0, libc::SEEK_DATA) } {
        0.. => Ok(true),
        _ => match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(false),
            e => Err(e),
        },
    }
}

fn of_head(head: &[u8; HEAD_BYTES]) -> Content {
    let found = ext(head).map(|bytes| ("ext4", bytes)).or_else(|| xfs(head).map(|bytes| ("xfs", bytes)));
    found.map_or(Content::Unknown, |(kind, bytes)| Content::FileSystem { kind, bytes })
}

/// The length of an ext2, ext3 or ext4 (ext4.rst of the kernel, "The Super Block").
fn ext(head: &[u8; HEAD_BYTES]) -> Option<u64> {
    const SUPERBLOCK: usize = 1024;
    const INCOMPAT_64BIT: u32 = 0x80;
    let word = |at: usize| u32::from_le_bytes(head[SUPERBLOCK + at..][..4].try_into().expect("four bytes"));
    if head[SUPERBLOCK + 0x38..][..2] != [0x53, 0xEF] {
        return None;
    }
    let high = if word(0x60) & INCOMPAT_64BIT == 0 { 0 } else { word(0x150) };
    let blocks = u64::from(high) << 32 | u64::from(word(0x4));
    blocks.checked_mul(1024_u64.checked_shl(word(0x18))?)
}

/// The length of an XFS (its superblock's first words, big-endian).
fn xfs(head: &[u8; HEAD_BYTES]) -> Option<u64> {
    if !head.starts_with(b"XFSB") {
        return None;
    }
    let block_bytes = u32::from_be_bytes(head[4..8].try_into().expect("four bytes"));
    let blocks = u64::from_be_bytes(head[8..16].try_into().expect("eight bytes"));
    blocks.checked_mul(block_bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(parts: &[(usize, &[u8])]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        for (at, bytes) in parts {
            head[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        head
    }

    #[test]
    fn the_end_of_a_file_system_is_known_and_wrong_numbers_are_unknown() {
        let magic: (usize, &[u8]) = (1024 + 0x38, &[0x53, 0xEF]);
        let small = head(&[magic, (1024 + 4, &1000_u32.to_le_bytes()), (1024 + 0x18, &[2, 0, 0, 0])]);
        assert_eq!(of_head(&small), Content::FileSystem { kind: "ext4", bytes: 4_096_000 });
        let high = (1024 + 0x150, &[1_u8, 0, 0, 0][..]);
        let large = head(&[magic, (1024 + 0x60, &[0x80, 0, 0, 0]), high, (1024 + 0x18, &[2, 0, 0, 0])]);
        assert_eq!(of_head(&large), Content::FileSystem { kind: "ext4", bytes: 1 << 44 });
        let without_64bit = head(&[magic, high, (1024 + 4, &[1, 0, 0, 0])]);
        assert_eq!(of_head(&without_64bit), Content::FileSystem { kind: "ext4", bytes: 1024 });
        assert_eq!(of_head(&head(&[magic, (1024 + 0x18, &[255; 4])])), Content::Unknown);
        let xfs = head(&[(0, b"XFSB"), (4, &4096_u32.to_be_bytes()), (8, &77_u64.to_be_bytes())]);
        assert_eq!(of_head(&xfs), Content::FileSystem { kind: "xfs", bytes: 77 * 4096 });
        assert_eq!(of_head(&head(&[(0, b"XFSB"), (4, &[255; 12])])), Content::Unknown);
        assert_eq!(of_head(&head(&[])), Content::Unknown);
    }
}
