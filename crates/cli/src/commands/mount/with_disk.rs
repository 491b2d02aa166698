//! `-o disk=NAME`: mounts the file system on a disk of a volume. The volume itself is mounted out of sight, or used
//! where it is mounted. A plain umount(8) ends all of it: the device ends with its file system's mount, and the mount
//! out of sight ends with the last device.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oncefs_engine::settings;

use crate::disks::of_mount::{
    self, Attaching, HeldMount, WAIT_SECONDS, device_of, find_in, lasting_device_of, mount_of,
};
use crate::disks::{Access, Content, Disk, DiskName, Kind, content, front_of};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table;
use crate::mounting::options::{MountOptions, VALUED};
use crate::names::{printable, shown};
use crate::process::programs::program;

/// The file systems that can be made on an empty disk.
const FILE_SYSTEMS: [&str; 2] = ["ext4", "xfs"];

/// Values of ext4's option `data`, which is also the name of an option of volumes.
const JOURNAL_MODES: [&str; 3] = ["ordered", "journal", "writeback"];

/// The options of a mount of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskMount {
    disk: DiskName,
    /// The file system to make on an empty disk.
    mkfs: Option<&'static str>,
    /// How long its writes wait for room on a full volume.
    wait_seconds: u64,
    /// The kind of its device.
    kind: Kind,
    /// For the volume, if it is not mounted yet.
    for_volume: MountOptions,
    /// For the file system on the disk.
    for_file_system: Vec<String>,
    is_remount: bool,
    /// A missing volume is not an error.
    pub nofail: bool,
}

impl DiskMount {
    /// Reads the lists of `-o`. None: they name no disk.
    pub fn of(lists: &[String]) -> Result<Option<Self>, String> {
        let options: Vec<&str> = lists.iter().flat_map(|list| list.split(',')).filter(|o| !o.is_empty()).collect();
        let value = |name: &str| options.iter().rev().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        let Some(disk) = value("disk") else { return Ok(None) };
        let mut request = Self {
            disk: disk.parse().map_err(|why| format!("disk={disk}: {why}"))?,
            mkfs: value("mkfs").map(file_system).transpose()?,
            wait_seconds: value("wait").map_or(Ok(WAIT_SECONDS), seconds)?,
            kind: value("disk_device").map_or(Ok(Kind::default()), device_kind)?,
            for_volume: MountOptions::default(),
            for_file_system: Vec::new(),
            is_remount: false,
            nofail: false,
        };
        options.into_iter().try_for_each(|option| request.take(option))?;
        Ok(Some(request))
    }

    /// Mounts it read-only.
    pub fn read_only(&mut self) {
        self.for_file_system.push("ro".to_owned());
    }

    fn take(&mut self, option: &str) -> Result<(), String> {
        match option.split_once('=') {
            Some(("disk" | "disk_device" | "mkfs" | "wait", _)) => {}
            Some(("data", mode)) if JOURNAL_MODES.contains(&mode) => self.for_file_system.push(option.to_owned()),
            Some((name, _)) if VALUED.contains(&name) || settings::is_setting(name) => self.for_volume.apply(option)?,
            _ if option == "nofail" => self.nofail = true,
            _ => {
                self.is_remount |= option == "remount";
                self.for_file_system.push(option.to_owned());
            }
        }
        Ok(())
    }
}

fn file_system(asked: &str) -> Result<&'static str, String> {
    let known = FILE_SYSTEMS.into_iter().find(|known| *known == asked);
    known.ok_or_else(|| format!("mkfs={asked}: use one of {}", FILE_SYSTEMS.join(", ")))
}

fn seconds(asked: &str) -> Result<u64, String> {
    asked.parse().map_err(|_| format!("wait={asked}: give a number of seconds"))
}

fn device_kind(asked: &str) -> Result<Kind, String> {
    asked.parse().map_err(|why| format!("disk_device={asked}: {why}"))
}

/// Mounts the disk of a volume, both by their paths without links.
pub fn run(volume: &Path, dir: &Path, request: &DiskMount) -> Outcome {
    mount(volume, dir, request).map_err(|failure| Failure { code: exit::MOUNT_FAILED, ..failure })
}

fn mount(volume: &Path, dir: &Path, request: &DiskMount) -> Outcome {
    let name = &request.disk;
    let is_mounted = mount_table::of_volume(volume).or_fail(exit::MOUNT_FAILED)?.is_some();
    if is_mounted && request.for_volume != MountOptions::default() {
        tell!("oncefs: note: {} is mounted already: options for the volume change nothing", shown(volume));
    }
    let place = mount_of(volume, &request.for_volume)?;
    let disk = find_in(&place, volume, name)?;
    let device = if request.is_remount { device_of(&disk, name)? } else { lasting_device_of(&disk, name)? };
    match device {
        Some(device) if request.is_remount => mount_device(&device, None, dir, request),
        Some(device) => {
            let text = format!(
                "the disk {name} is in use already, as {}: unmount what is on it, or oncefs disk detach {} {name}",
                shown(&device),
                shown(volume)
            );
            Err(Failure::new(exit::MOUNT_FAILED, text))
        }
        None if request.is_remount => {
            let text = format!("the disk {name} is not mounted: mount it without the option remount");
            Err(Failure::new(exit::MOUNT_FAILED, text))
        }
        None => attach_and_mount(&place, &disk, dir, request),
    }
}

fn attach_and_mount(place: &HeldMount, disk: &Disk, dir: &Path, request: &DiskMount) -> Outcome {
    let name = &request.disk;
    let how = Attaching { kind: request.kind, access: Access::ReadWrite, wait_seconds: request.wait_seconds };
    let device = of_mount::attach(place, disk, name, how)?;
    let mounted = file_system_on(disk, &device, request).and_then(|kind| mount_device(&device, kind, dir, request));
    let ended = match mounted {
        Ok(()) => front_of(&device).end_with_last_user(&device),
        Err(_) => front_of(&device).detach(disk, &device),
    };
    let doing = format!("cannot detach the disk {name} from {}", shown(&device));
    mounted.and(ended.or_fail_doing(exit::MOUNT_FAILED, doing))
}

/// The kind of the file system on a disk, made now if that was asked for. None: mount(8) will tell.
fn file_system_on(disk: &Disk, device: &Path, request: &DiskMount) -> Outcome<Option<&'static str>> {
    let name = &request.disk;
    let found = content(&disk.file).or_fail_doing(exit::MOUNT_FAILED, format!("cannot read the disk {name}"))?;
    match (found, request.mkfs) {
        (Content::FileSystem { kind, .. }, _) => Ok(Some(kind)),
        (Content::Unknown, _) => Ok(None),
        (Content::Nothing, None) => {
            let text = format!("the disk {name} is empty: mount it once with mkfs=ext4 among its options");
            Err(Failure::new(exit::MOUNT_FAILED, text))
        }
        (Content::Nothing, Some(kind)) => {
            call(program(format!("mkfs.{kind}")).arg("-q").arg(device)).map(|()| Some(kind))
        }
    }
}

fn mount_device(device: &Path, kind: Option<&str>, dir: &Path, request: &DiskMount) -> Outcome {
    let mut command = program("mount");
    command.args(kind.into_iter().flat_map(|kind| ["-t", kind]));
    if !request.for_file_system.is_empty() {
        command.arg("-o").arg(request.for_file_system.join(","));
    }
    call(command.arg(device).arg(dir))
}

/// Runs a program to its end.
fn call(command: &mut Command) -> Outcome {
    let program = PathBuf::from(command.get_program());
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|e| {
        let way_out = match e.kind() {
            io::ErrorKind::NotFound => " (e2fsprogs has mkfs.ext4, xfsprogs mkfs.xfs)",
            _ => "",
        };
        Failure::new(exit::MOUNT_FAILED, format!("cannot run {}: {e}{way_out}", shown(&program)))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8(output.stderr).unwrap_or_default();
    Err(Failure::new(exit::MOUNT_FAILED, format!("{} failed: {}", shown(&program), printable(&said))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_to_the_volume_or_to_the_file_system_on_the_disk() {
        let of = |list: &str| DiskMount::of(&[list.to_owned()]);
        assert_eq!(of("ro,memory=64M"), Ok(None));
        let found = of("noatime,disk=home,memory=64M,mkfs=ext4,data=ordered,inline=off,nofail,x-systemd.automount");
        let found = found.unwrap().unwrap();
        assert_eq!((found.disk.as_str(), found.mkfs, found.nofail), ("home", Some("ext4"), true));
        assert_eq!(found.wait_seconds, 60);
        assert_eq!(of("disk=x,wait=5").unwrap().unwrap().wait_seconds, 5);
        assert!(of("disk=x,wait=long").unwrap_err().contains("a number of seconds"));
        assert_eq!(found.for_file_system, ["noatime", "data=ordered", "x-systemd.automount"]);
        assert_eq!(found.for_volume.memory, Some(64 << 20));
        assert_eq!(found.for_volume.settings.len(), 1);
        assert_eq!((found.kind, of("disk=x,disk_device=ublk").unwrap().unwrap().kind), (Kind::Loop, Kind::Ublk));
        assert!(of("disk=x,disk_device=nbd").unwrap_err().contains("disk_device=nbd: use loop or ublk"));
        assert!(of("disk=../x").unwrap_err().contains("disk=../x: the name of a disk"));
        assert!(of("disk=x,mkfs=ntfs").unwrap_err().contains("use one of ext4, xfs"));
        assert!(of("disk=x,memory=1").unwrap_err().contains("too little"));
        assert!(of("disk=x,remount,ro").unwrap().unwrap().is_remount);
    }
}
