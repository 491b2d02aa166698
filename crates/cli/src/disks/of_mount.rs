//! The disks of a mount, for commands: each failure says what to do.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use oncefs_engine::Store;
use oncefs_toolbox::sizes::exact;

use super::{Access, Disk, DiskName, Folder, Kind, SECTOR_BYTES, kinds, lock, may_end, mounted_at};
use crate::control::answers::RoomWaits;
use crate::control::in_use;
use crate::control::protocol::Request;
use crate::control::target::{Daemon, Target};
use crate::daemon::start;
use crate::daemon::task::Task;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table::Mount;
use crate::mounting::options::MountOptions;
use crate::mounting::{hidden, mount_table};
use crate::names::shown;
use crate::process::setup;
use crate::size::Size;

/// How long a command waits for a mount, or the device of a disk, that is about to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Rarer, because each look at a volume without a mount starts a daemon.
const MOUNT_AGAIN: Duration = Duration::from_millis(250);

/// Below this, mkfs of no file system finds room.
const DISK_BYTES_MIN: u64 = 1 << 20;

/// A mount, which cannot be unmounted meanwhile.
pub struct HeldMount {
    /// Where it is.
    pub dir: PathBuf,
    /// Its daemon.
    pub daemon: Daemon,
    root: File,
}

impl HeldMount {
    /// Opens the root of a mount, if it is there still. It may be ending just now.
    fn of(mount: &Mount) -> io::Result<Option<Self>> {
        let root = match File::open(&mount.dir) {
            Ok(root) => root,
            Err(e) if e.kind() == io::ErrorKind::NotFound || mount_table::is_from_ending_mount(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        let is_it = Some(root.metadata()?.dev()) == mount.device_number();
        let daemon = Daemon { volume: mount.source.clone() };
        Ok(is_it.then(|| Self { dir: mount.dir.clone(), daemon, root }))
    }

    /// The folder of disks. None: there never was a disk.
    pub fn folder(&self) -> Outcome<Option<Folder>> {
        Folder::open(&self.root, &self.dir).or_fail_doing(exit::FAILED, cannot("use .oncefs/disks in", &self.dir))
    }

    /// The folder of disks, created if need be.
    pub fn make_folder(&self) -> Outcome<Folder> {
        Folder::create(&self.root, &self.dir).or_fail_doing(exit::FAILED, cannot("use .oncefs/disks in", &self.dir))
    }
}

/// The mount of the volume of a path. A volume without one gets a mount out of sight, with `options`, which ends by
/// itself. An earlier one may be ending just now: its daemon closes the volume, and then the next one can begin.
pub fn mount_of(target: &Path, options: &MountOptions) -> Outcome<HeldMount> {
    let until = Instant::now() + END_PATIENCE;
    loop {
        match try_mount_of(target, options) {
            Ok(Some(held)) => return Ok(held),
            Err(failure) if !in_use::is_meant(&failure) || Instant::now() > until => return Err(failure),
            Ok(None) if Instant::now() > until => return Err(still_ending(target)),
            Ok(None) | Err(_) => std::thread::sleep(MOUNT_AGAIN),
        }
    }
}

/// Why there is no mount to use, though the volume has a daemon.
fn still_ending(target: &Path) -> Failure {
    let volume = mount_table::resolve(target).unwrap_or_else(|_| target.to_owned());
    let text = in_use::detached(&volume);
    Failure::new(exit::FAILED, text.unwrap_or_else(|| format!("{} is still being unmounted: try again", shown(target))))
}

/// None: the mount is ending.
fn try_mount_of(target: &Path, options: &MountOptions) -> Outcome<Option<HeldMount>> {
    let volume = match Target::find(target)? {
        Target::Mounted(daemon) => daemon.volume,
        Target::Offline(volume) => {
            mount_hidden(&volume, options)?;
            volume
        }
    };
    let mount = mount_table::of_volume(&volume).or_fail(exit::FAILED)?;
    // A mount out of sight may have ended just now.
    let Some(mount) = mount else { return Ok(None) };
    HeldMount::of(&mount).or_fail_doing(exit::FAILED, cannot("open the mount on", &mount.dir))
}

fn mount_hidden(volume: &Path, options: &MountOptions) -> Outcome {
    if !setup::is_root() {
        return Err(Failure::new(exit::FAILED, "disks need root: use sudo"));
    }
    Store::profile_of(volume).or_fail_doing(exit::FAILED, shown(volume))?;
    let dir = hidden::place(volume).or_fail_doing(exit::FAILED, cannot("make a mount point for", volume))?;
    let options = MountOptions { until_idle: true, ..options.clone() };
    start::in_background(&Task { volume: volume.to_owned(), dir, options })
}

/// The disk of this name, locked against other commands.
pub fn find(target: &Path, name: &DiskName) -> Outcome<Disk> {
    find_in(&mount_of(target, &MountOptions::default())?, target, name)
}

/// As [`find`], in `mount`. `target` is the user's name for it.
pub fn find_in(mount: &HeldMount, target: &Path, name: &DiskName) -> Outcome<Disk> {
    let unknown = || {
        let text = format!("there is no disk {name} (oncefs disk list {} shows all)", shown(target));
        Failure::new(exit::FAILED, text)
    };
    let folder = mount.folder()?.ok_or_else(unknown)?;
    let disk = folder.find(name).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => unknown(),
        _ => Failure::new(exit::FAILED, format!("cannot open the disk {name}: {e}")),
    })?;
    match lock(&disk).or_fail_doing(exit::FAILED, format!("cannot lock the disk {name}"))? {
        true => Ok(disk),
        false => Err(Failure::new(exit::FAILED, format!("another command works on the disk {name}: try again"))),
    }
}

/// The snapshots of a disk, sorted.
pub fn snapshots_of(folder: &Folder, name: &DiskName) -> Outcome<Vec<DiskName>> {
    let mut names = folder.names().or_fail_doing(exit::FAILED, format!("cannot tell which snapshots {name} has"))?;
    names.retain(|snapshot| snapshot.is_snapshot_of(name));
    Ok(names)
}

/// How long writes of a disk wait for room on a full volume if nothing else is asked for: as long as those of dm-thin.
pub const WAIT_SECONDS: u64 = 60;

/// How a disk is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attaching {
    /// As which kind of device.
    pub kind: Kind,
    /// The access that the device gives.
    pub access: Access,
    /// How long its writes wait for room on a full volume.
    pub wait_seconds: u64,
}

/// Shows a disk as a device.
pub fn attach(mount: &HeldMount, disk: &Disk, name: &DiskName, how: Attaching) -> Outcome<PathBuf> {
    let Attaching { kind, access, wait_seconds } = how;
    let doing = || format!("cannot attach the disk {name}");
    let attach = || kind.front().attach(disk, access).or_fail_doing(exit::FAILED, doing());
    if access == Access::ReadOnly {
        return attach();
    }
    let inode = disk.metadata().or_fail_doing(exit::FAILED, doing())?.ino();
    let waits_max: usize = mount.daemon.ask(Request::WaitForRoom { inode, seconds: wait_seconds })?;
    if wait_seconds == 0 {
        return attach();
    }
    kind.front().attach_bounded(disk, waits_max).or_else(|why| {
        let device = attach()?;
        tell!(
            "oncefs: note: on a full volume some writes to {name} fail at once, for only {waits_max} can wait: {why}"
        );
        Ok(device)
    })
}

/// The number of writes that wait for room, by the inode number of their disk.
pub fn room_waits(mount: &HeldMount) -> Outcome<BTreeMap<u64, u64>> {
    let waits: RoomWaits = mount.daemon.ask(Request::RoomWaits)?;
    Ok(waits.files.into_iter().map(|wait| (wait.inode, wait.requests)).collect())
}

/// The device that shows a disk, if any.
pub fn device_of(disk: &Disk, name: &DiskName) -> Outcome<Option<PathBuf>> {
    kinds::device_of(disk).or_fail_doing(exit::FAILED, format!("cannot tell whether the disk {name} is attached"))
}

/// As [`device_of`]. A ublk device may be about to end with the mount that it was made for: its process has to notice,
/// and still has the disk for a moment after the device is gone.
pub fn lasting_device_of(disk: &Disk, name: &DiskName) -> Outcome<Option<PathBuf>> {
    let until = Instant::now() + END_PATIENCE;
    loop {
        let device = device_of(disk, name)?;
        if !device.as_deref().is_some_and(may_end) || Instant::now() > until {
            return Ok(device);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// As [`device_of`], each with where it is mounted. Without a device that has ended meanwhile.
pub fn device_and_mount_of(disk: &Disk, name: &DiskName) -> Outcome<Option<(PathBuf, Option<PathBuf>)>> {
    device_of(disk, name)?.map_or(Ok(None), with_mount)
}

fn with_mount(device: PathBuf) -> Outcome<Option<(PathBuf, Option<PathBuf>)>> {
    match mounted_at(&device) {
        Ok(mounted) => Ok(Some((device, mounted))),
        // Its process still has the disk, and is about to end. All that was written to it is in the disk's file.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Failure::new(exit::FAILED, format!("cannot tell where {} is mounted: {e}", shown(&device)))),
    }
}

/// Refuses to go on while a disk is attached, and says how to detach it.
pub fn refuse_attached(disk: &Disk, target: &Path, name: &DiskName) -> Outcome {
    let Some(device) = lasting_device_of(disk, name)? else { return Ok(()) };
    let (device, volume) = (shown(&device), shown(target));
    let text = format!(
        "the disk {name} is attached as {device}: unmount what is on it, then oncefs disk detach {volume} {name}"
    );
    Err(Failure::new(exit::FAILED, text))
}

/// The beginning of a message about a path.
pub fn cannot(what: &str, path: &Path) -> String {
    format!("cannot {what} {}", shown(path))
}

/// Refuses sizes that a device with sectors of 4 KiB cannot have.
pub fn whole_sectors(bytes: u64) -> Outcome<u64> {
    let text = if bytes < DISK_BYTES_MIN {
        format!("{} is too small for a disk: give at least {}", Size(bytes), Size(DISK_BYTES_MIN))
    } else if !bytes.is_multiple_of(SECTOR_BYTES) {
        let next = exact(bytes / SECTOR_BYTES * SECTOR_BYTES);
        format!("{} is no multiple of {}: give {next}, for instance", exact(bytes), Size(SECTOR_BYTES))
    } else if i64::try_from(bytes).is_err() {
        format!("no file is as large as {}: give a smaller size", Size(bytes))
    } else {
        return Ok(bytes);
    };
    Err(Failure::new(exit::USAGE, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_has_ended_shows_nothing_and_another_may_be_mounted_nowhere() {
        assert_eq!(with_mount("/dev/ublkb4294967295".into()).unwrap(), None);
        assert_eq!(with_mount("/dev/null".into()).unwrap(), Some(("/dev/null".into(), None)));
    }

    #[test]
    fn a_mount_that_is_gone_is_looked_for_again_and_one_that_cannot_be_opened_is_an_error() {
        let at = |dir: &Path| {
            let (device, kind) = ("0:0".to_owned(), "fuse.oncefs".into());
            HeldMount::of(&Mount { device, dir: dir.to_owned(), kind, source: "/volume".into(), owner: Some(0) })
        };
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(at(Path::new("/proc/none")).unwrap().is_none());
        assert!(at(Path::new("/proc")).unwrap().is_none(), "another file system");
        assert!(at(&file.path().join("below")).is_err());
    }

    #[test]
    fn a_disk_has_whole_sectors_and_room_for_something() {
        assert_eq!(whole_sectors(1 << 30).unwrap(), 1 << 30);
        for bytes in [0, 4096, (1 << 20) + 512, u64::MAX - 4095] {
            assert_eq!(whole_sectors(bytes).unwrap_err().code, exit::USAGE, "{bytes}");
        }
    }
}
