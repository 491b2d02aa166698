//! The signatures on a device that tell its owner: of file systems, partition tables, volume managers, encryption, RAID
//! and swap. A new volume must not take such a device unasked.
//!
//! The table is wider than that of libblkid, which also checks checksums and versions: the owner of a damaged file
//! system may want it back. So a device of random bytes is mistaken for one of these about once in 6,000 times.

use std::fmt;
use std::io;

use super::Device;
use super::buffer::AlignedBuf;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Requests are multiples of the smallest sector.
const SECTOR_BYTES: u64 = 512;
/// All places counted from the start lie below this.
const HEAD_BYTES: u64 = 4 * MIB + 64 * KIB;
/// All places counted from the end lie within this.
const TAIL_BYTES: u64 = MIB;
/// A ZFS label: four of them, two at each end, have 128 uberblocks of 1 KiB in their second half.
const ZFS_LABEL_BYTES: u64 = 256 * KIB;

/// Where a signature lies.
enum Place {
    /// At each of these bytes.
    Start(&'static [u64]),
    /// This many bytes before the end.
    End(&'static [u64]),
    /// This many bytes before the end, after the end is rounded down to a multiple of the second number.
    AlignedEnd(u64, u64),
    /// In the uberblocks of ZFS.
    Uberblocks,
}

use Place::{AlignedEnd, End, Start, Uberblocks};

/// The meaning of each signature, its bytes, and its places.
const KNOWN: [(&str, &[u8], Place); 79] = [
    ("blocks of an oncefs volume", b"oncefs data area", Start(&[0])),
    // Partition tables.
    ("a GPT partition table", b"EFI PART", Start(&[512, 4096])),
    ("a GPT partition table (its copy at the end)", b"EFI PART", End(&[512, 4096])),
    ("a DOS partition table or boot sector", b"\x55\xaa", Start(&[510])),
    ("a BSD partition table", b"\x57\x45\x56\x82", Start(&[64, 512])),
    ("a Sun partition table", b"\xda\xbe", Start(&[508])),
    ("an SGI partition table", b"\x0b\xe5\xa9\x41", Start(&[0])),
    ("an Apple partition table", b"PM\0\0", Start(&[512])),
    // Volume managers, encryption, RAID, caches.
    ("an LVM2 physical volume", b"LABELONE", Start(&[0, 512, 1024, 1536])),
    ("an LVM1 physical volume", b"HM\x01\0", Start(&[0])),
    ("an LVM1 physical volume", b"HM\x02\0", Start(&[0])),
    ("LUKS encryption", b"LUKS\xba\xbe", Start(&[0])),
    (
        "LUKS encryption (its second header)",
        b"SKUL\xba\xbe",
        Start(&[16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB, 256 * KIB, 512 * KIB, MIB, 2 * MIB, 4 * MIB]),
    ),
    ("BitLocker encryption", b"-FVE-FS-", Start(&[3])),
    ("a member of a Linux RAID (md)", b"\xfc\x4e\x2b\xa9", Start(&[0, 4 * KIB])),
    ("a member of a Linux RAID (md)", b"\xfc\x4e\x2b\xa9", AlignedEnd(8 * KIB, 4 * KIB)),
    ("a member of a Linux RAID (md)", b"\xfc\x4e\x2b\xa9", AlignedEnd(64 * KIB, 64 * KIB)),
    ("a member of a Linux RAID (md)", b"\xa9\x2b\x4e\xfc", AlignedEnd(64 * KIB, 64 * KIB)),
    ("a member of an Intel RAID", b"Intel Raid ISM Cfg Sig. ", End(&[1024])),
    ("a member of a DDF RAID", b"\xde\x11\xde\x11", End(&[512])),
    ("DRBD", b"\x83\x74\x02\x6b", End(&[4 * KIB - 60])),
    ("VDO", b"dmvdo001", Start(&[0])),
    ("a Stratis pool", b"!Stra0tis\x86\xff\x02^\x41rh", Start(&[516, 9 * 512 + 4])),
    ("Ceph", b"bluestore block device", Start(&[0])),
    ("bcache", b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", Start(&[4 * KIB + 24])),
    ("bcachefs", b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", Start(&[4 * KIB + 24])),
    // Swap, with pages of 4 to 64 KiB, and hibernation data in it.
    ("swap", b"SWAPSPACE2", Start(&SWAP_AT)),
    ("swap", b"SWAP-SPACE", Start(&SWAP_AT)),
    ("a hibernated system", b"S1SUSPEND", Start(&SWAP_AT)),
    ("a hibernated system", b"S2SUSPEND", Start(&SWAP_AT)),
    ("a hibernated system", b"ULSUSPEND", Start(&SWAP_AT)),
    ("a hibernated system", b"LINHIB0001", Start(&SWAP_AT)),
    // File systems.
    ("an ext2, ext3 or ext4 file system", b"\x53\xef", Start(&[1080])),
    ("an xfs file system", b"XFSB", Start(&[0])),
    ("a btrfs file system", b"_BHRfS_M", Start(&[64 * KIB + 64])),
    ("a ZFS pool", b"\x0c\xb1\xba\0\0\0\0\0", Uberblocks),
    ("a ZFS pool", b"\0\0\0\0\0\xba\xb1\x0c", Uberblocks),
    ("an f2fs file system", b"\x10\x20\xf5\xf2", Start(&[KIB])),
    ("a vfat file system", b"FAT12   ", Start(&[54])),
    ("a vfat file system", b"FAT16   ", Start(&[54])),
    ("a vfat file system", b"FAT32   ", Start(&[82])),
    ("a vfat file system", b"MSWIN", Start(&[54, 82])),
    ("an exfat file system", b"EXFAT   ", Start(&[3])),
    ("an ntfs file system", b"NTFS    ", Start(&[3])),
    ("a ReFS file system", b"\0\0\0ReFS\0", Start(&[0])),
    ("an iso9660 file system", b"CD001", Start(&[32 * KIB + 1])),
    ("a udf file system", b"NSR02", Start(&[34 * KIB + 1, 36 * KIB + 1])),
    ("a udf file system", b"NSR03", Start(&[34 * KIB + 1, 36 * KIB + 1])),
    ("a squashfs file system", b"hsqs", Start(&[0])),
    ("a squashfs file system", b"sqsh", Start(&[0])),
    ("an erofs file system", b"\xe2\xe1\xf5\xe0", Start(&[KIB])),
    ("a cramfs file system", b"\x45\x3d\xcd\x28", Start(&[0])),
    ("a cramfs file system", b"\x28\xcd\x3d\x45", Start(&[0])),
    ("a romfs file system", b"-rom1fs-", Start(&[0])),
    ("a reiserfs file system", b"ReIsErFs", Start(&[8 * KIB + 52, 64 * KIB + 52])),
    ("a reiserfs file system", b"ReIsEr2Fs", Start(&[64 * KIB + 52])),
    ("a reiserfs file system", b"ReIsEr3Fs", Start(&[64 * KIB + 52])),
    ("a reiser4 file system", b"ReIsEr4", Start(&[64 * KIB])),
    ("a jfs file system", b"JFS1", Start(&[32 * KIB])),
    ("a nilfs2 file system", b"\x34\x34", Start(&[KIB + 6])),
    ("a gfs2 file system", b"\x01\x16\x19\x70", Start(&[64 * KIB])),
    ("an ocfs2 file system", b"OCFSV2", Start(&[KIB, 2 * KIB, 4 * KIB, 8 * KIB])),
    ("an hfs file system", b"BD", Start(&[KIB])),
    ("an hfsplus file system", b"H+\0\x04", Start(&[KIB])),
    ("an hfsplus file system", b"HX\0\x05", Start(&[KIB])),
    ("an apfs file system", b"NXSB", Start(&[32])),
    ("a ufs file system", b"\x54\x19\x01\0", Start(&UFS_AT)),
    ("a ufs file system", b"\0\x01\x19\x54", Start(&UFS_AT)),
    ("a ufs file system", b"\x19\x01\x54\x19", Start(&UFS_AT)),
    ("a ufs file system", b"\x19\x54\x01\x19", Start(&UFS_AT)),
    ("a minix file system", b"\x7f\x13", Start(&[KIB + 16])),
    ("a minix file system", b"\x8f\x13", Start(&[KIB + 16])),
    ("a minix file system", b"\x68\x24", Start(&[KIB + 16])),
    ("a minix file system", b"\x78\x24", Start(&[KIB + 16])),
    ("a minix file system", b"\x5a\x4d", Start(&[KIB + 24])),
    ("a befs file system", b"1SFB", Start(&[32, 544])),
    ("an hpfs file system", b"\x49\xe8\x95\xf9", Start(&[8 * KIB])),
    ("a vmfs volume", b"\x0d\xd0\x01\xc0", Start(&[MIB])),
    ("a vmfs file system", b"\x5e\xf1\xab\x2f", Start(&[2 * MIB])),
];

const SWAP_AT: [u64; 5] = [4 * KIB - 10, 8 * KIB - 10, 16 * KIB - 10, 32 * KIB - 10, 64 * KIB - 10];
const UFS_AT: [u64; 3] = [8 * KIB + 1372, 64 * KIB + 1372, 256 * KIB + 1372];

/// A signature on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its meaning.
    pub name: &'static str,
    /// Its first byte.
    pub at: u64,
    /// Its length.
    pub len: usize,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (byte {})", self.name, self.at)
    }
}

/// All signatures on a device.
pub fn find(device: &dyn Device) -> io::Result<Vec<Signature>> {
    let len = device.len()?;
    let head = Window::read(device, 0, len.min(HEAD_BYTES))?;
    let tail_at = len.saturating_sub(TAIL_BYTES) / SECTOR_BYTES * SECTOR_BYTES;
    let tail = Window::read(device, tail_at, len - tail_at)?;
    let mut found: Vec<Signature> = Vec::new();
    for (name, magic, place) in &KNOWN {
        let shown = places(place, len).into_iter().filter(|at| head.shows(magic, *at) || tail.shows(magic, *at));
        found.extend(shown.map(|at| Signature { name, at, len: magic.len() }));
    }
    Ok(found)
}

/// Overwrites signatures with zeros, so that no program recognizes the former content.
pub fn erase(device: &dyn Device, found: &[Signature]) -> io::Result<()> {
    let len = device.len()?;
    for signature in found {
        let start = signature.at / SECTOR_BYTES * SECTOR_BYTES;
        let end = (signature.at + signature.len as u64).next_multiple_of(SECTOR_BYTES).min(len);
        let mut window = Window::read(device, start, end - start)?;
        let at = (signature.at - start) as usize;
        window.bytes[at..at + signature.len].fill(0);
        device.write_at(&window.bytes, start)?;
    }
    device.flush()
}

/// Part of a device, in memory.
struct Window {
    at: u64,
    bytes: AlignedBuf,
}

impl Window {
    fn read(device: &dyn Device, at: u64, len: u64) -> io::Result<Self> {
        assert!(at.is_multiple_of(SECTOR_BYTES) && len <= HEAD_BYTES, "{len} bytes at {at} are looked at");
        let mut bytes = AlignedBuf::new(len as usize);
        device.read_at(&mut bytes, at)?;
        Ok(Self { at, bytes })
    }

    fn shows(&self, magic: &[u8], at: u64) -> bool {
        let from = at.checked_sub(self.at).map(|from| from as usize);
        from.and_then(|from| self.bytes.get(from..from + magic.len())) == Some(magic)
    }
}

/// The bytes at which a signature may begin on a device of `len` bytes.
fn places(place: &Place, len: u64) -> Vec<u64> {
    match place {
        Start(places) => places.to_vec(),
        End(before) => before.iter().filter_map(|before| len.checked_sub(*before)).collect(),
        AlignedEnd(before, align) => (len / align * align).checked_sub(*before).into_iter().collect(),
        Uberblocks => {
            let end = len / ZFS_LABEL_BYTES * ZFS_LABEL_BYTES;
            let labels = [Some(0), Some(ZFS_LABEL_BYTES), end.checked_sub(2 * ZFS_LABEL_BYTES)];
            let labels = labels.into_iter().chain([end.checked_sub(ZFS_LABEL_BYTES)]).flatten();
            labels.flat_map(|label| (128..256).map(move |block| label + block * KIB)).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::MemoryDevice;

    const BYTES: u64 = 16 * MIB + 512;

    #[test]
    fn every_known_signature_is_found_where_it_lies_and_gone_when_erased() {
        for (name, magic, place) in &KNOWN {
            for at in places(place, BYTES) {
                let device = MemoryDevice::new(BYTES);
                device.write_at(&[7; 8192], 3 * MIB).unwrap();
                device.write_at(magic, at).unwrap();
                let found = find(&device).unwrap();
                assert!(found.contains(&Signature { name, at, len: magic.len() }), "{name} at {at}: {found:?}");
                erase(&device, &found).unwrap();
                assert_eq!(find(&device).unwrap(), [], "{name} at {at}");
                let mut beside = [0; 8192];
                device.read_at(&mut beside, 3 * MIB).unwrap();
                assert_eq!(beside, [7; 8192], "nothing else is erased");
            }
        }
    }

    #[test]
    fn an_empty_device_shows_nothing_however_small() {
        for bytes in [0, 512, 4096, 64 * KIB, MIB, HEAD_BYTES, BYTES] {
            assert_eq!(find(&MemoryDevice::new(bytes)).unwrap(), [], "{bytes} bytes");
        }
    }
}
