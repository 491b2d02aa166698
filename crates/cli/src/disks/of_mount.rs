//! The disks of a mount, for commands: each failure says what to do.

use std::io;
use std::path::{Path, PathBuf};

use oncefs_engine::Store;

use super::{Disk, DiskName, Folder, Front, LoopDevices, SECTOR_BYTES, lock};
use crate::control::target::Target;
use crate::daemon::start;
use crate::daemon::task::Task;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::options::MountOptions;
use crate::mounting::{hidden, mount_table};
use crate::names::shown;
use crate::process::setup;
use crate::size::Size;

/// Below this, mkfs of no file system finds room.
const DISK_BYTES_MIN: u64 = 1 << 20;

/// Where the volume of a path is mounted. A volume that is not gets a mount out of sight that ends by itself.
pub fn mount_of(target: &Path) -> Outcome<PathBuf> {
    match Target::find(target)? {
        Target::Mounted(daemon) => {
            let mount = mount_table::of_volume(&daemon.volume).or_fail(exit::FAILED)?;
            let gone = || Failure::new(exit::FAILED, format!("{} was unmounted meanwhile", shown(&daemon.volume)));
            mount.map(|mount| mount.dir).ok_or_else(gone)
        }
        Target::Offline(volume) => mount_hidden(&volume, MountOptions::default()),
    }
}

/// Mounts a volume out of sight until no disk of it is in use.
pub fn mount_hidden(volume: &Path, options: MountOptions) -> Outcome<PathBuf> {
    if !setup::is_root() {
        return Err(Failure::new(exit::FAILED, "disks need root: use sudo"));
    }
    Store::profile_of(volume).or_fail_doing(exit::FAILED, shown(volume))?;
    let dir = hidden::place(volume).or_fail_doing(exit::FAILED, cannot("make a mount point for", volume))?;
    let options = MountOptions { until_idle: true, ..options };
    start::in_background(&Task { volume: volume.to_owned(), dir: dir.clone(), options }).map(|()| dir)
}

/// The folder of disks. None: there never was a disk.
pub fn folder(mount: &Path) -> Outcome<Option<Folder>> {
    Folder::open(mount).or_fail_doing(exit::FAILED, cannot("use .oncefs/disks in", mount))
}

/// The disk of this name, locked against other commands.
pub fn find(target: &Path, name: &DiskName) -> Outcome<Disk> {
    find_in(&mount_of(target)?, target, name)
}

/// As [`find`], in the mount on `mount`. `target` is the user's name for it.
pub fn find_in(mount: &Path, target: &Path, name: &DiskName) -> Outcome<Disk> {
    let unknown = || {
        let text = format!("there is no disk {name} (oncefs disk list {} shows all)", shown(target));
        Failure::new(exit::FAILED, text)
    };
    let folder = folder(mount)?.ok_or_else(unknown)?;
    let disk = folder.find(name).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => unknown(),
        _ => Failure::new(exit::FAILED, format!("cannot open the disk {name}: {e}")),
    })?;
    match lock(&disk).or_fail_doing(exit::FAILED, format!("cannot lock the disk {name}"))? {
        true => Ok(disk),
        false => Err(Failure::new(exit::FAILED, format!("another command works on the disk {name}: try again"))),
    }
}

/// The device that shows a disk, if any.
pub fn device_of(disk: &Disk, name: &DiskName) -> Outcome<Option<PathBuf>> {
    LoopDevices.device_of(disk).or_fail_doing(exit::FAILED, format!("cannot tell whether the disk {name} is attached"))
}

/// The beginning of a message about a path.
pub fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", shown(path))
}

/// Refuses sizes that a device with sectors of 4 KiB cannot have.
pub fn whole_sectors(bytes: u64) -> Outcome<u64> {
    let text = if bytes < DISK_BYTES_MIN {
        format!("a disk has at least {}", Size(DISK_BYTES_MIN))
    } else if !bytes.is_multiple_of(SECTOR_BYTES) {
        format!("the size of a disk is a multiple of {}", Size(SECTOR_BYTES))
    } else if i64::try_from(bytes).is_err() {
        "no file is that large".to_owned()
    } else {
        return Ok(bytes);
    };
    Err(Failure::new(exit::USAGE, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_has_whole_sectors_and_room_for_something() {
        assert_eq!(whole_sectors(1 << 30).unwrap(), 1 << 30);
        for bytes in [0, 4096, (1 << 20) + 512, u64::MAX - 4095] {
            assert_eq!(whole_sectors(bytes).unwrap_err().code, exit::USAGE, "{bytes}");
        }
    }
}
