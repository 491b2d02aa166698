//! Finds out in sysfs whether the devices below a volume's data turn.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use oncefs_dedup::DeviceClaim;

/// Devices may lie below each other, but not more deeply than this.
const LEVELS_MAX: usize = 8;

/// Whether a device below this file or device says that it turns, and is believed. False if it cannot be found out. The
/// machine's `proc` and `sys` are below `root`.
pub fn turns(root: &Path, data: &Path) -> bool {
    turns_below(root, data, LEVELS_MAX)
}

fn turns_below(root: &Path, path: &Path, levels: usize) -> bool {
    let Ok(metadata) = fs::metadata(path) else { return false };
    let is_device = metadata.file_type().is_block_device();
    let number = if is_device { metadata.st_rdev() } else { metadata.st_dev() };
    directory(root, number).is_some_and(|directory| directory_turns(root, &directory, levels))
}

/// A device's directory in sysfs. A file system without a device of its own, such as btrfs, has that of its mount.
fn directory(root: &Path, number: u64) -> Option<PathBuf> {
    let number = format!("{}:{}", libc::major(number), libc::minor(number));
    let found = root.join("sys/dev/block").join(&number);
    if found.exists() {
        return Some(found);
    }
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&number))?;
    let source = PathBuf::from(mount.split_once(" - ")?.1.split(' ').nth(1)?);
    let source = fs::canonicalize(&source).unwrap_or(source);
    // The kernel writes `!` for a slash in the name of a device.
    let name = source.strip_prefix("/dev").ok()?.to_str()?.replace('/', "!");
    Some(root.join("sys/class/block").join(name)).filter(|found| found.exists())
}

/// The devices below one decide, if it has some.
fn directory_turns(root: &Path, directory: &Path, levels: usize) -> bool {
    let Some(levels) = levels.checked_sub(1) else { return false };
    let disk = if directory.join("partition").exists() { directory.join("..") } else { directory.to_owned() };
    let text = |name: &str| fs::read_to_string(disk.join(name)).unwrap_or_default().trim().to_owned();
    let file = text("loop/backing_file");
    if !file.is_empty() {
        return turns_below(root, Path::new(&file), levels);
    }
    let below: Vec<PathBuf> =
        fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    if !below.is_empty() {
        return below.iter().any(|device| directory_turns(root, device, levels));
    }
    let (vendor, model) = (text("device/vendor"), text("device/model"));
    DeviceClaim { is_rotational: text("queue/rotational") == "1", vendor, model }.turns()
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::os::unix::fs::symlink;

    use oncefs_dedup::PieceCost;

    use super::*;
    use crate::{DataPlace, OpenOptions, Profile, Store, VolumeSpec};

    /// A stand-in for the root.
    struct Machine(tempfile::TempDir);

    impl Machine {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        /// A disk with the one partition that this number names.
        fn disk(&self, name: &str, partition: &str, is_rotational: bool, model: &str) {
            self.write(&format!("sys/devices/{name}/queue/rotational"), if is_rotational { "1" } else { "0" });
            self.write(&format!("sys/devices/{name}/device/vendor"), "0x1af4");
            self.write(&format!("sys/devices/{name}/device/model"), model);
            self.write(&format!("sys/devices/{name}/{name}1/partition"), "1");
            let directory = self.0.path().join(format!("sys/devices/{name}/{name}1"));
            self.link(&directory, &format!("sys/dev/block/{partition}"));
            self.link(&directory, &format!("sys/class/block/{name}1"));
        }

        fn link(&self, target: &Path, path: &str) {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            symlink(target, path).unwrap();
        }

        /// The number of the device below this directory, as the kernel writes it.
        fn number(&self) -> String {
            let number = fs::metadata(self.0.path()).unwrap().st_dev();
            format!("{}:{}", libc::major(number), libc::minor(number))
        }

        fn turns(&self) -> bool {
            turns(self.0.path(), self.0.path())
        }
    }

    #[test]
    fn the_disk_of_a_partition_says_whether_it_turns() {
        for (is_rotational, model, expected) in
            [(true, "ST4000", true), (false, "SSD 870", false), (true, "QEMU HARDDISK", false), (true, "", false)]
        {
            let machine = Machine::new();
            assert!(!machine.turns(), "nothing is known");
            machine.disk("sda", &machine.number(), is_rotational, model);
            assert_eq!(machine.turns(), expected, "{is_rotational} {model}");
        }
    }

    #[test]
    fn what_lies_on_other_devices_turns_if_one_of_them_does() {
        for (second, expected) in [(true, true), (false, false)] {
            let machine = Machine::new();
            machine.disk("sda", "8:1", false, "SSD 870");
            machine.disk("sdb", "8:17", second, "ST4000");
            let mapped = format!("sys/dev/block/{}", machine.number());
            machine.write(&format!("{mapped}/queue/rotational"), "0");
            for name in ["sda", "sdb"] {
                let disk = machine.0.path().join(format!("sys/devices/{name}"));
                machine.link(&disk, &format!("{mapped}/slaves/{name}"));
            }
            assert_eq!(machine.turns(), expected);
        }
    }

    #[test]
    fn a_loop_device_turns_as_what_has_its_file_and_one_on_itself_ends() {
        let machine = Machine::new();
        machine.write("file", "");
        let file = machine.0.path().join("file");
        let device = machine.0.path().join("sys/devices/loop0");
        machine.write("sys/devices/loop0/loop/backing_file", file.to_str().unwrap());
        machine.disk("sda", &machine.number(), true, "ST4000");
        assert!(directory_turns(machine.0.path(), &device, LEVELS_MAX));
        let itself = Machine::new();
        itself.write("file", "");
        itself.write(
            &format!("sys/dev/block/{}/loop/backing_file", itself.number()),
            itself.0.path().join("file").to_str().unwrap(),
        );
        assert!(!itself.turns());
    }

    #[test]
    fn a_file_system_without_a_device_turns_as_what_it_was_mounted_from() {
        let machine = Machine::new();
        machine.disk("sdq", "65:1", true, "ST4000");
        let mount = format!("36 25 {} / / rw - btrfs /dev/sdq1 rw", machine.number());
        machine.write("proc/self/mountinfo", &mount);
        assert!(machine.turns());
    }

    #[test]
    fn a_volume_expects_what_the_device_below_its_data_says() {
        for (is_rotational, expected) in [(true, PieceCost::EXPECTED_OF_TURNING), (false, PieceCost::EXPECTED)] {
            let machine = Machine::new();
            machine.disk("sda", &machine.number(), is_rotational, "ST4000");
            let volume = machine.0.path().join("volume");
            fs::create_dir(&volume).unwrap();
            let spec = VolumeSpec {
                data_bytes: Some(16 << 20),
                data: DataPlace::File,
                profile: Profile::default(),
                log_bytes: 8 << 20,
                copies: None,
            };
            Store::format(&volume, &spec, [7; 64]).unwrap();
            let options = OpenOptions { machine: machine.0.path().to_owned(), ..OpenOptions::new(32 << 20) };
            let store = Store::open(&volume, &options).unwrap();
            assert_eq!(store.report().device.piece_blocks, expected.blocks());
            store.close().unwrap();
        }
    }
}
