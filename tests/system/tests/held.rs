//! Raw devices: a volume's device is its alone for as long as the volume is open, and mkfs takes no device that shows
//! whose it is.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncefs_system_tests::{Mount, oncefs, run, test_dir};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Where on a device these bytes lie.
type Bytes<'a> = (u64, &'a [u8]);

/// A loop device over a sparse file, detached when dropped.
struct Loop {
    scratch: TempDir,
    device: PathBuf,
}

impl Loop {
    fn new() -> Self {
        let scratch = tempfile::Builder::new().prefix("oncefs-held-").tempdir_in(test_dir()).unwrap();
        let image = scratch.path().join("image");
        File::create(&image).unwrap().set_len(256 * MIB).unwrap();
        let device = run(Command::new("losetup").args(["--find", "--show"]).arg(&image)).trim().into();
        Self { scratch, device }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn mkfs(&self, volume: &str, more: &[&str]) -> (i32, String) {
        let volume = self.path(volume);
        ends(Command::new(oncefs()).arg("mkfs").arg(volume).arg("--data").arg(&self.device).args(more))
    }

    /// Empties the device and writes these bytes.
    fn write(&self, bytes: &[Bytes]) {
        let device = File::options().write(true).open(&self.device).unwrap();
        run(Command::new("blkdiscard").arg("-z").arg(&self.device));
        bytes.iter().for_each(|(at, bytes)| device.write_all_at(bytes, *at).unwrap());
        device.sync_all().unwrap();
    }

    /// What libblkid takes the device for.
    fn known_as(&self) -> Option<String> {
        let mut blkid = Command::new("blkid");
        blkid.args(["-p", "-o", "value", "-s", "TYPE", "-s", "PTTYPE"]).arg(&self.device);
        let (code, said) = ends(&mut blkid);
        (code == 0).then(|| said.trim().to_owned())
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
    }
}

/// Exit code, and everything it said.
fn ends(command: &mut Command) -> (i32, String) {
    let output = command.output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

fn assert_refused((code, said): (i32, String), words: &[&str]) {
    assert_ne!(code, 0, "{said}");
    words.iter().for_each(|word| assert!(said.contains(word), "no '{word}' in: {said}"));
}

#[test]
fn a_mounted_volumes_device_is_nobody_elses() {
    let disk = Loop::new();
    let mut mount = Mount::with_data_on(&disk.device);
    fs::write(mount.join("file"), vec![7; 3 << 20]).unwrap();
    let (device, dir) = (disk.device.to_str().unwrap().to_owned(), mount.dir().to_str().unwrap().to_owned());
    let holder = ["is in use", &device[..], &dir[..]];
    for more in [&[][..], &["--force"]] {
        assert_refused(disk.mkfs("other", more), &holder);
        assert!(!disk.path("other").exists(), "a refused mkfs leaves nothing");
    }
    assert_refused(ends(Command::new("mkfs.ext4").arg("-q").arg(&disk.device)), &["in use"]);
    assert_refused(ends(Command::new("mount").args(["-t", "ext4"]).arg(&disk.device).arg("/mnt")), &[]);

    let copy = disk.path("copy");
    fs::create_dir(&copy).unwrap();
    let parts = fs::read_dir(mount.volume()).unwrap().map(|entry| entry.unwrap().path());
    let parts = parts.filter(|path| path.is_dir() || path.is_file());
    run(Command::new("cp").arg("-a").args(parts).arg(&copy));
    run(Command::new("chmod").arg("700").arg(&copy));
    let at = disk.path("at");
    fs::create_dir(&at).unwrap();
    assert_refused(ends(Command::new(oncefs()).arg("mount").arg(&copy).arg(&at)), &holder);
    assert_refused(ends(Command::new(oncefs()).args(["mount", "-o", "ro"]).arg(&copy).arg(&at)), &holder);
    assert_refused(ends(Command::new(oncefs()).arg("fsck").arg(&copy)), &holder);
    assert_refused(ends(Command::new(oncefs()).arg("grow").arg(&copy).arg("1G")), &holder);

    assert!(fs::read(mount.join("file")).unwrap() == vec![7; 3 << 20]);
    mount.check();
    mount.umount();
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.device));
}

#[test]
fn a_device_that_something_else_holds_is_refused_with_the_holder() {
    let disk = Loop::new();
    run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&disk.device));
    let at = disk.path("at");
    fs::create_dir(&at).unwrap();
    run(Command::new("mount").args(["-t", "ext4"]).arg(&disk.device).arg(&at));
    let refused = disk.mkfs("volume", &["--force"]);
    run(Command::new("umount").arg(&at));
    assert_refused(refused, &["is in use", "mounted on", at.to_str().unwrap()]);
}

/// The sector of an LVM2 label, with its checksum.
fn lvm_label() -> Vec<u8> {
    let mut label = vec![0; 512];
    label[..8].copy_from_slice(b"LABELONE");
    label[8] = 1;
    label[20..24].copy_from_slice(&32u32.to_le_bytes());
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].fill(b'a');
    let sum = crc32(0xf597_a6cf, &label[20..]);
    label[16..20].copy_from_slice(&sum.to_le_bytes());
    label
}

/// The CRC that LVM and GPT use, bit by bit.
fn crc32(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ if sum & 1 == 1 { 0xedb8_8320 } else { 0 })
    })
}

/// The first two sectors of a GPT without partitions, for a device of `sectors`, and the table's 32 empty ones.
fn gpt(sectors: u64) -> Vec<u8> {
    let mut table = vec![0; 34 * 512];
    table[446..462].copy_from_slice(&[0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]);
    table[510..512].copy_from_slice(b"\x55\xaa");
    let entries = !crc32(!0, &table[1024..]);
    let header = &mut table[512..604];
    header[..16].copy_from_slice(b"EFI PART\0\0\x01\0\x5c\0\0\0");
    for (at, number) in [(24, 1), (32, sectors - 1), (40, 34), (48, sectors - 34), (72, 2)] {
        header[at..at + 8].copy_from_slice(&u64::to_le_bytes(number));
    }
    header[56..72].fill(9);
    header[80..88].copy_from_slice(b"\x80\0\0\0\x80\0\0\0");
    header[88..92].copy_from_slice(&entries.to_le_bytes());
    let sum = !crc32(!0, header);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    table
}

const FAT: &[u8] = b"\xeb\x3c\x90mkfs.fat\x00\x02\x04\x01\x00\x02\x00\x02\x00\x00\xf8\x80\x00\x20\x00\x40\x00";
const DOS_PARTITION: &[u8] = b"\0\0\0\0\x83\0\0\0\0\x08\0\0\0\x08\0\0";
const UBERBLOCK: &[u8] = b"\x0c\xb1\xba\0\0\0\0\0";
const BOOT: Bytes = (510, b"\x55\xaa");

#[test]
fn mkfs_refuses_what_libblkid_knows_and_force_leaves_nothing_of_it() {
    let disk = Loop::new();
    let (lvm, gpt) = (lvm_label(), gpt(256 * MIB / 512));
    let uberblocks: Vec<Bytes> = (0..8).map(|n| (128 * 1024 + n * 1024, UBERBLOCK)).collect();
    // As few bytes as libblkid wants to see, its name for them, and ours.
    let made: &[(&[Bytes], &str, &str)] = &[
        (&[(0, b"LUKS\xba\xbe\0\x01")], "crypto_LUKS", "LUKS encryption"),
        (&[(512, &lvm)], "LVM2_member", "an LVM2 physical volume"),
        (&[(4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"), (4240, b"\x08")], "linux_raid_member", "a member of a Linux RAID"),
        (&[(0, &gpt)], "gpt", "a GPT partition table"),
        (&[(446, DOS_PARTITION), BOOT], "dos", "a DOS partition table"),
        (
            &[(0, FAT), (34, b"\x02"), (38, b"\x29\x01\x02\x03\x04NO NAME    FAT16   "), BOOT],
            "vfat",
            "a vfat file system",
        ),
        (&[(65_600, b"_BHRfS_M")], "btrfs", "a btrfs file system"),
        (&uberblocks, "zfs_member", "a ZFS pool"),
        (
            &[
                (0, b"XFSB\0\0\x10\0\0\0\0\0\0\0\x40\0"),
                (80, b"\0\0\0\x01\0\0\x10\0\0\0\0\x04"),
                (100, b"\xb4\xa4\x02\0\x02\0\0\x08"),
                (120, b"\x0c\x09\x09\x03\x0c\0\0\x19"),
            ],
            "xfs",
            "an xfs file system",
        ),
        (&[(3, b"EXFAT   ")], "exfat", "an exfat file system"),
        (&[(32_768, b"\x01CD001\x01")], "iso9660", "an iso9660 file system"),
        (&[(0, b"hsqs"), (28, b"\x04")], "squashfs", "a squashfs file system"),
        (&[(1024, b"\x10\x20\xf5\xf2\x01\0\x0c\0")], "f2fs", "an f2fs file system"),
        (&[(1024, b"H+\0\x04"), (1064, b"\0\0\x10\0")], "hfsplus", "an hfsplus file system"),
        (&[(4096, b"OCFSV2")], "ocfs2", "an ocfs2 file system"),
        (&[(1024, b"\xe2\xe1\xf5\xe0")], "erofs", "an erofs file system"),
        (&[(0, b"bluestore block device")], "ceph_bluestore", "Ceph"),
        (&[(0, b"dmvdo001")], "vdo", "VDO"),
    ];
    for (bytes, theirs, ours) in made {
        disk.write(bytes);
        assert_eq!(disk.known_as().as_deref(), Some(*theirs));
        is_refused_and_forced(&disk, ours);
    }
    for (tool, ours) in [(&["mkfs.ext4", "-q", "-F"][..], "ext4 file system"), (&["mkswap"], "swap")] {
        disk.write(&[]);
        run(Command::new(tool[0]).args(&tool[1..]).arg(&disk.device));
        assert!(disk.known_as().is_some());
        is_refused_and_forced(&disk, ours);
    }
    // The last one left a volume's label.
    assert_refused(disk.mkfs("volume", &[]), &["blocks of an oncefs volume", "--force"]);
}

fn is_refused_and_forced(disk: &Loop, ours: &str) {
    assert_refused(disk.mkfs("volume", &[]), &[ours, disk.device.to_str().unwrap(), "--force"]);
    assert!(!disk.path("volume").exists() && disk.known_as().is_some(), "a refusal changes nothing");
    let (code, said) = disk.mkfs("volume", &["--force"]);
    assert_eq!((code, disk.known_as()), (0, None), "{ours}: {said}");
    assert_clean(&disk.path("volume"));
    fs::remove_dir_all(disk.path("volume")).unwrap();
}

fn assert_clean(volume: &Path) {
    run(Command::new(oncefs()).arg("fsck").arg(volume));
}
