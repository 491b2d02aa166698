//! Disks whose daemon died: their file systems are detached, their devices end, and both begin anew.
//!
//! The old device and the file system on it fail everything, so neither can write to the volume any more. Programs that
//! still use them see I/O errors, beside the new mount.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::disks::dead::{DeviceOfDisk, is_claimed, is_there};
use crate::disks::{Access, Kind, front_of};
use crate::mounting::fstab::Entry;
use crate::mounting::hidden;
use crate::mounting::mount_table::{self, Mount};
use crate::names::{printable, shown};

/// A disk that was attached by hand.
#[derive(Clone, Debug)]
pub struct Unattached {
    /// Its volume.
    pub volume: PathBuf,
    was: DeviceOfDisk,
}

/// Where disks belong.
pub struct Table<'a> {
    /// All mounts, in the order in which they were mounted.
    pub mounts: &'a [Mount],
    /// The lines of fstab.
    pub entries: &'a [Entry],
    /// The file with the lines.
    pub fstab: &'a Path,
    /// The mount points to look at. Empty: all.
    pub dirs: &'a [PathBuf],
}

impl Table<'_> {
    fn is_meant(&self, dir: &Path) -> bool {
        self.dirs.is_empty() || self.dirs.iter().any(|meant| meant == dir)
    }

    /// The mounts of the file system on a device, the last first.
    pub fn places(&self, found: &DeviceOfDisk) -> Vec<&Path> {
        let of_device = self.mounts.iter().rev().filter(|mount| mount.device == found.number);
        of_device.map(|mount| &*mount.dir).collect()
    }

    /// Detaches the file system on a dead device from a place that fstab names. Returns the volume. None: the place is
    /// not meant. `may_try`: it was not tried too often.
    pub fn detach(
        &self,
        found: &DeviceOfDisk,
        place: &Path,
        may_try: impl FnOnce() -> bool,
    ) -> Result<Option<PathBuf>, String> {
        let (dir, disk) = (shown(place), &found.disk);
        if !self.is_meant(place) {
            return Ok(None);
        }
        let is_it = |entry: &&Entry| mount_table::resolve(&entry.dir).is_ok_and(|at| at == place);
        let Some(entry) = self.entries.iter().filter(|entry| entry.disk().is_some()).find(is_it) else {
            return Err(format!(
                "the daemon of the disk {disk} on {dir} is dead, and {} mounts no disk on {dir}: umount {dir}, then oncefs mount VOLUME {dir} -o disk={disk}",
                shown(self.fstab)
            ));
        };
        if !may_try() {
            return Err(format!("the daemon of the disk {disk} died again and again: {dir} is left as it is"));
        }
        oncefs_fuse::unmount(place, libc::MNT_DETACH)
            .map_err(|error| format!("cannot detach {dir}, whose disk is dead: {error}"))?;
        Ok(Some(mount_table::resolve(&entry.volume).unwrap_or_else(|_| entry.volume.clone())))
    }

    /// Ends a dead device that was attached by hand. The disk can be attached again where its volume is mounted again.
    /// None: it is not meant.
    pub fn end_unmounted(&self, found: &DeviceOfDisk) -> Result<Option<Unattached>, String> {
        let (device, disk) = (shown(&found.device), &found.disk);
        let of_volume = |mount: &&Mount| mount.is_oncefs() && Some(&mount.dir) == found.volume_dir.as_ref();
        let mount = self.mounts.iter().rev().find(of_volume);
        if !self.dirs.is_empty() && !mount.is_some_and(|mount| self.is_meant(&mount.dir)) {
            return Ok(None);
        }
        let is_named = |mount: &&Mount| {
            let is_it = |entry: &Entry| mount_table::resolve(&entry.dir).is_ok_and(|at| at == mount.dir);
            hidden::is_one(&mount.dir) || self.entries.iter().any(is_it)
        };
        let Some(mount) = mount.filter(is_named) else {
            let end = front_of(&found.device).ended_by_hand(&found.device);
            let volume = mount.map_or_else(|| "VOLUME".to_owned(), |mount| shown(&mount.source).to_string());
            return Err(format!(
                "the daemon of the disk {disk} is dead: end what uses {device}, {end}, then oncefs disk attach {volume} {disk}"
            ));
        };
        if is_claimed(&found.device) {
            return Err(format!(
                "the daemon of the disk {disk} is dead, and {device} is in use (lsblk {device}): end that, and the disk is attached again"
            ));
        }
        end(found);
        Ok(Some(Unattached { volume: mount.source.clone(), was: found.clone() }))
    }
}

/// Ends a device, now or with the last program that has it or a file on it open.
pub fn end(found: &DeviceOfDisk) {
    // Fails if it has ended with its mount.
    let _ = front_of(&found.device).end_with_last_user(&found.device);
    if is_there(found) {
        let (disk, device) = (&found.disk, shown(&found.device));
        say!("programs still use the dead disk {disk} ({device}) and see I/O errors: let them open their files again");
    }
}

impl Unattached {
    /// Attaches it again, if its volume is mounted or can be mounted out of sight.
    pub fn attach(&self) -> Result<(), String> {
        let (name, was) = (&self.was.disk, shown(&self.was.device));
        let device = attach(self).map_err(|why| format!("cannot attach the disk {name} again: {why}"))?;
        say!("the disk {name} is attached again, as {device}: it was {was}, and its daemon had died");
        Ok(())
    }
}

/// Attaches a disk by a command of its own, which may have to mount the volume. Returns the device.
fn attach(Unattached { volume, was }: &Unattached) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.args(["disk", "attach", "--device", Kind::of(&was.device).name()]);
    command.arg(volume).arg(&was.disk).stdin(Stdio::null());
    if was.access == Access::ReadOnly && !was.disk.contains('@') {
        command.arg("--read-only");
    }
    let run = command.output().map_err(|e| e.to_string())?;
    let text = |bytes: Vec<u8>| printable(String::from_utf8(bytes).unwrap_or_default().trim()).to_string();
    if run.status.success() { Ok(text(run.stdout)) } else { Err(text(run.stderr)) }
}
