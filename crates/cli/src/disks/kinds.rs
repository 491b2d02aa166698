//! The kinds of devices that show disks, and which device shows which disk.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::folder::Disk;
use super::front::Front;
use super::loop_devices::{self, LoopDevices};
use super::ublk::{self, UblkDevices};

/// A kind of devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// The kernel's loop devices.
    #[default]
    Loop,
    /// Devices that a process of oncefs serves (experimental).
    Ublk,
}

impl Kind {
    /// Of a device that shows a disk.
    pub fn of(device: &Path) -> Self {
        if ublk::number_of(device).is_some() { Self::Ublk } else { Self::Loop }
    }

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Ublk => "ublk",
        }
    }

    /// Its implementation.
    pub fn front(self) -> &'static dyn Front {
        match self {
            Self::Loop => &LoopDevices,
            Self::Ublk => &UblkDevices,
        }
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Loop, Self::Ublk].into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| "use loop or ublk".to_owned())
    }
}

/// The implementation of a device that shows a disk.
pub fn front_of(device: &Path) -> &'static dyn Front {
    Kind::of(device).front()
}

/// The device that shows a disk, of whatever kind.
pub fn device_of(disk: &Disk) -> Result<Option<PathBuf>, String> {
    match UblkDevices.device_of(disk)? {
        None => LoopDevices.device_of(disk),
        found => Ok(found),
    }
}

/// Where disks are, below a mount.
const FOLDER: &str = ".oncefs/disks";

/// Whether a device shows a disk of a volume.
pub fn shows(device: &Path) -> bool {
    shown_disk(device).is_some()
}

/// The path of the disk of a volume that a device shows.
pub fn shown_disk(device: &Path) -> Option<PathBuf> {
    let path = device.starts_with("/dev").then(|| file_behind(device)).flatten()?;
    path.parent()?.ends_with(FOLDER).then_some(path)
}

/// All devices over disks of volumes, in the order of their names, each with the path of its disk.
pub fn all_devices() -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let devices = loop_devices::all()?.into_iter().chain(ublk::all());
    let mut found: Vec<_> = devices.filter_map(|device| Some((shown_disk(&device)?, device))).collect();
    found.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(found.into_iter().map(|(disk, device)| (device, disk)).collect())
}

/// The file that a device shows.
fn file_behind(device: &Path) -> Option<PathBuf> {
    match Kind::of(device) {
        Kind::Loop => loop_devices::backing_file(device),
        Kind::Ublk => ublk::file_behind(device),
    }
}

/// The devices over disks of the mount at `dir`, each with the disk's name.
pub fn devices_of(dir: &Path) -> Vec<(PathBuf, OsString)> {
    let folder = dir.join(FOLDER);
    let all = all_devices().unwrap_or_default().into_iter();
    all.filter_map(|(device, disk)| Some((device, disk.strip_prefix(&folder).ok()?.as_os_str().to_owned()))).collect()
}

/// Whether a device may be gone in a moment: its last user has left it, and it was made to end then.
pub fn may_end(device: &Path) -> bool {
    let may_end = match mounted_at(device) {
        Ok(mounted) => mounted.is_none() && ublk::ends_with_last_user(device),
        // Its process has removed it, and is about to end.
        Err(e) => e.kind() == io::ErrorKind::NotFound,
    };
    // The kernel ends a loop device together with its last use.
    may_end && Kind::of(device) == Kind::Ublk
}

/// Where a device is mounted, by the kernel's table.
pub fn mounted_at(device: &Path) -> io::Result<Option<PathBuf>> {
    let number = fs::metadata(device)?.rdev();
    let text = format!("{}:{}", libc::major(number), libc::minor(number));
    Ok(crate::mounting::mount_table::all()?.into_iter().find(|mount| mount.device == text).map(|mount| mount.dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_tells_its_kind() {
        assert_eq!(Kind::of(Path::new("/dev/ublkb3")), Kind::Ublk);
        for other in ["/dev/loop3", "/dev/ublkc3", "/dev/ublkb", "/dev/ublkb3p1"] {
            assert_eq!(Kind::of(Path::new(other)), Kind::Loop, "{other}");
        }
        assert_eq!("ublk".parse(), Ok(Kind::Ublk));
        assert!("nbd".parse::<Kind>().is_err());
    }

    #[test]
    fn only_a_ublk_device_that_is_gone_already_or_was_asked_to_end_may_end() {
        // No kernel counts that far.
        assert!(may_end(Path::new("/dev/ublkb4294967295")));
        assert!(!may_end(Path::new("/dev/loop4294967295")) && !may_end(Path::new("/dev/null")));
    }
}
