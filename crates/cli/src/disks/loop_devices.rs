//! Block devices that show disks.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::folder::Disk;
use super::{SECTOR_BYTES, bounded_loop};
use crate::process::programs::program;

/// What may be done through a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write.
    ReadWrite,
    /// Read only.
    ReadOnly,
}

/// A way to show disks as block devices. Errors are one line for the user.
pub trait Front {
    /// Shows a disk. Returns the device.
    fn attach(&self, disk: &Disk, access: Access) -> Result<PathBuf, String>;
    /// As `attach`, for reading and writing, with at most `requests_max` requests under way.
    fn attach_bounded(&self, disk: &Disk, requests_max: usize) -> Result<PathBuf, String>;
    /// The device that shows a disk, if any.
    fn device_of(&self, disk: &Disk) -> Result<Option<PathBuf>, String>;
    /// Ends the device of a disk if no program uses it, once everything written to it has reached the disk.
    fn detach(&self, disk: &Disk, device: &Path) -> Result<(), String>;
    /// Lets a device end by itself with its last user, which it has already.
    fn end_with_last_user(&self, device: &Path) -> Result<(), String>;
    /// Whether what is written to a device is in its disk at once, past the kernel's cache of the disk.
    fn is_direct(&self, device: &Path) -> bool;
    /// Gives a device the size that its disk has now.
    fn resized(&self, device: &Path) -> Result<(), String>;
}

/// The kernel's loop devices, by losetup(8). Their I/O is direct, so nothing is cached twice.
pub struct LoopDevices;

impl Front for LoopDevices {
    fn attach(&self, disk: &Disk, access: Access) -> Result<PathBuf, String> {
        let mut command = losetup_for_disks();
        command.args(["--find", "--show"]);
        if access == Access::ReadOnly {
            command.arg("--read-only");
        }
        let shown = output(command.arg(&disk.path))?;
        Ok(PathBuf::from(shown.trim()))
    }

    fn attach_bounded(&self, disk: &Disk, requests_max: usize) -> Result<PathBuf, String> {
        bounded_loop::make(requests_max, |device| match output(losetup_for_disks().arg(device).arg(&disk.path)) {
            Ok(_) => Ok(true),
            // Another process takes a free device if it finds no other.
            Err(_) if backing_file(device).is_some() => Ok(false),
            Err(why) => Err(why),
        })
    }

    fn device_of(&self, disk: &Disk) -> Result<Option<PathBuf>, String> {
        let found = disk.metadata().map_err(|e| e.to_string())?;
        let devices = output(losetup().args(["--json", "--list", "--output", "NAME,BACK-INO,BACK-MAJ:MIN"]))?;
        device_with(&devices, (found.dev(), found.ino()))
    }

    fn detach(&self, disk: &Disk, device: &Path) -> Result<(), String> {
        let held = File::options().read(true).custom_flags(libc::O_EXCL).open(device).map_err(|e| match e.kind() {
            io::ErrorKind::ResourceBusy => "it is in use: unmount it first".to_owned(),
            _ => e.to_string(),
        })?;
        // A device that is held keeps its disk. Before, it may have ended and begun again with another.
        if self.device_of(disk)?.as_deref() != Some(device) {
            return Ok(());
        }
        held.sync_all().map_err(|e| format!("what was written to it cannot be written to the volume: {e}"))?;
        // Held open meanwhile, so it cannot be mounted. The device ends with the last descriptor.
        output(losetup().arg("--detach").arg(device))?;
        drop(held);
        bounded_loop::remove_unused();
        Ok(())
    }

    fn end_with_last_user(&self, device: &Path) -> Result<(), String> {
        // The kernel detaches a device in use when that ends.
        output(losetup().arg("--detach").arg(device)).map(drop)
    }

    fn is_direct(&self, device: &Path) -> bool {
        let name = device.file_name().unwrap_or_default();
        let flag = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/dio"));
        flag.is_ok_and(|flag| flag.trim() == "1")
    }

    fn resized(&self, device: &Path) -> Result<(), String> {
        output(losetup().arg("--set-capacity").arg(device)).map(drop)
    }
}

/// Where disks are, below a mount.
const FOLDER: &str = ".oncefs/disks";

/// Whether a device is a loop device over a disk of a volume.
pub fn shows(device: &Path) -> bool {
    shown_disk(device).is_some()
}

/// The path of the disk of a volume that a device shows.
pub fn shown_disk(device: &Path) -> Option<PathBuf> {
    let path = device.starts_with("/dev").then(|| backing_file(device)).flatten()?;
    path.parent()?.ends_with(FOLDER).then_some(path)
}

/// All loop devices over disks of volumes, in the order of their names, each with the path of its disk.
pub fn all_devices() -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let names = fs::read_dir("/sys/block")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let devices = names.filter(|name| name.starts_with("loop")).map(|name| Path::new("/dev").join(name));
    let mut found: Vec<_> = devices.filter_map(|device| Some((shown_disk(&device)?, device))).collect();
    found.sort_by(|(_, one), (_, other)| one.cmp(other));
    Ok(found.into_iter().map(|(disk, device)| (device, disk)).collect())
}

/// The devices over disks of the mount at `dir`, each with the disk's name.
pub fn devices_of(dir: &Path) -> Vec<(PathBuf, OsString)> {
    let folder = dir.join(FOLDER);
    let all = all_devices().unwrap_or_default().into_iter();
    all.filter_map(|(device, disk)| Some((device, disk.strip_prefix(&folder).ok()?.as_os_str().to_owned()))).collect()
}

/// The file behind a loop device.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let mut path = fs::read(Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file")).ok()?;
    if path.last() == Some(&b'\n') {
        path.pop();
    }
    Some(PathBuf::from(OsString::from_vec(path)))
}

/// Where a device is mounted, by the kernel's table.
pub fn mounted_at(device: &Path) -> io::Result<Option<PathBuf>> {
    let number = fs::metadata(device)?.rdev();
    let text = format!("{}:{}", libc::major(number), libc::minor(number));
    Ok(crate::mounting::mount_table::all()?.into_iter().find(|mount| mount.device == text).map(|mount| mount.dir))
}

fn losetup() -> Command {
    let mut command = program("losetup");
    command.env("LC_ALL", "C");
    command
}

fn losetup_for_disks() -> Command {
    let mut command = losetup();
    command.args(["--direct-io=on", &format!("--sector-size={SECTOR_BYTES}")]);
    command
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => {
            "there is no losetup in the PATH: install the package util-linux (in Debian: mount)".to_owned()
        }
        _ => format!("cannot run losetup: {e}"),
    })?;
    if output.status.success() {
        return String::from_utf8(output.stdout).map_err(|_| "cannot understand losetup: it said no text".to_owned());
    }
    let said = String::from_utf8(output.stderr).unwrap_or_default();
    Err(said.lines().last().unwrap_or("losetup failed and did not say why").trim_start_matches("losetup: ").to_owned())
}

/// The device whose backing file has this device and inode number, in the output of `losetup --json`. It prints numbers
/// as numbers or as text, depending on its version, and nothing if there is no device.
fn device_with(devices: &str, (of, inode): (u64, u64)) -> Result<Option<PathBuf>, String> {
    if devices.trim().is_empty() {
        return Ok(None);
    }
    let devices: Value = serde_json::from_str(devices).map_err(|e| format!("cannot understand losetup: {e}"))?;
    let text = |device: &Value, key: &str| match &device[key] {
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    let wanted = (format!("{}:{}", libc::major(of), libc::minor(of)), inode.to_string());
    let is_it = |device: &&Value| (text(device, "back-maj:min"), text(device, "back-ino")) == wanted;
    let found = devices["loopdevices"].as_array().into_iter().flatten().find(is_it);
    Ok(found.map(|device| PathBuf::from(text(device, "name"))))
}

/// Keeps other commands from attaching, resizing or removing the disk until `disk` is closed.
pub fn lock(disk: &Disk) -> io::Result<bool> {
    // SAFETY: an open descriptor.
    match unsafe { libc::flock(disk.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            e => Err(e),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_the_numbers_of_its_file_as_text_or_numbers() {
        let devices = r#"{"loopdevices": [
            {"name":"/dev/loop3", "back-ino":"7", "back-maj:min":"  0:61"},
            {"name":"/dev/loop4", "back-ino":7, "back-maj:min":"0:62"}]}"#;
        let find = |minor, inode| device_with(devices, (libc::makedev(0, minor), inode)).unwrap();
        assert_eq!(find(61, 7), Some("/dev/loop3".into()));
        assert_eq!(find(62, 7), Some("/dev/loop4".into()));
        assert_eq!(find(62, 8), None);
        assert_eq!(device_with("", (1, 1)), Ok(None));
        assert!(device_with("nonsense", (1, 1)).is_err());
    }
}
