//! Loop devices over disks, by losetup(8).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::folder::Disk;
use super::front::{Access, Front, hold};
use super::{SECTOR_BYTES, bounded_loop};
use crate::names::shown;
use crate::process::programs::program;

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
        let held = hold(device)?;
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

    fn ended_by_hand(&self, device: &Path) -> String {
        format!("losetup --detach {}", shown(device))
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

/// All loop devices.
pub(super) fn all() -> io::Result<Vec<PathBuf>> {
    let names = fs::read_dir("/sys/block")?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    Ok(names.filter(|name| name.starts_with("loop")).map(|name| Path::new("/dev").join(name)).collect())
}

/// The file behind a loop device.
pub(super) fn backing_file(device: &Path) -> Option<PathBuf> {
    let mut path = fs::read(Path::new("/sys/block").join(device.file_name()?).join("loop/backing_file")).ok()?;
    if path.last() == Some(&b'\n') {
        path.pop();
    }
    Some(PathBuf::from(OsString::from_vec(path)))
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
