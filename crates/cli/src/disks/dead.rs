//! Devices whose disk is gone, because the daemon of its volume died. Every access to them is an I/O error, and they
//! end as any device does.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::front::Access;
use super::kinds::{all_devices, shown_disk};
use crate::mounting::mount_table::Mount;

/// A device answers within this time, or its daemon hangs and is not dead.
const PATIENCE: Duration = Duration::from_secs(2);

/// A device over a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOfDisk {
    /// Below `/dev`.
    pub device: PathBuf,
    /// `MAJOR:MINOR`, as the mount table has it.
    pub number: String,
    /// The name of the disk, or of the snapshot.
    pub disk: String,
    /// Where the volume was mounted when the device began. None: nothing tells any more.
    pub volume_dir: Option<PathBuf>,
    /// How it was attached.
    pub access: Access,
}

/// The devices over disks of volumes that are mounted nowhere, or whose mount is among `dead`, and that answer with I/O
/// errors. A device whose daemon hangs is not among them.
pub fn devices(mounts: &[Mount], dead: &[Mount]) -> io::Result<Vec<DeviceOfDisk>> {
    let is_served = |found: &DeviceOfDisk| {
        let at = |mount: &&Mount| Some(&mount.dir) == found.volume_dir.as_ref() && mount.is_oncefs();
        mounts.iter().rev().find(at).is_some_and(|mount| !dead.contains(mount))
    };
    let candidates = all()?.into_iter().filter(|found| !is_served(found));
    let asked: Vec<_> = candidates.filter_map(|found| Some((ask(&found.device)?, found))).collect();
    let is_dead = |answer: Receiver<bool>| answer.recv_timeout(PATIENCE) == Ok(true);
    Ok(asked.into_iter().filter_map(|(answer, found)| is_dead(answer).then_some(found)).collect())
}

fn all() -> io::Result<Vec<DeviceOfDisk>> {
    Ok(all_devices()?.into_iter().filter_map(|(device, _)| look(device)).collect())
}

/// None: it has just ended.
fn look(device: PathBuf) -> Option<DeviceOfDisk> {
    let (disk, volume_dir) = parts(&shown_disk(&device)?)?;
    let name = device.file_name()?.to_str()?;
    let number = fs::read_to_string(format!("/sys/block/{name}/dev")).ok()?.trim().to_owned();
    let is_read_only = fs::read_to_string(format!("/sys/block/{name}/ro")).ok()?.trim() == "1";
    let access = if is_read_only { Access::ReadOnly } else { Access::ReadWrite };
    Some(DeviceOfDisk { device, number, disk, volume_dir, access })
}

/// The disk and the mount point in the path of a disk. A mount that was detached is none any more: the kernel then
/// shows the path within it.
fn parts(backing_file: &Path) -> Option<(String, Option<PathBuf>)> {
    let disk = backing_file.file_name()?.to_str()?.to_owned();
    let dir = backing_file.ancestors().nth(3)?;
    Some((disk, (dir != Path::new("/")).then(|| dir.to_owned())))
}

/// Asks once whether a device is dead. None: no thread could be started.
fn ask(device: &Path) -> Option<Receiver<bool>> {
    let (say, answer) = mpsc::channel();
    let device = device.to_owned();
    let ask = move || {
        // The receiver is gone if the answer comes too late.
        let _ = say.send(is_dead(&device));
    };
    thread::Builder::new().name("ask".into()).spawn(ask).ok().map(|_| answer)
}

/// Whether a device neither reads nor flushes. Damage of one block does not fail a flush.
fn is_dead(device: &Path) -> bool {
    /// Direct I/O needs an aligned buffer.
    #[repr(align(4096))]
    struct Sector([u8; 4096]);
    let fails = |result: io::Result<()>| result.is_err_and(|e| e.raw_os_error() == Some(libc::EIO));
    let Ok(file) = File::options().read(true).custom_flags(libc::O_DIRECT).open(device) else { return false };
    let mut sector = Sector([0; 4096]);
    fails(file.read_exact_at(&mut sector.0, 0)) && fails(file.sync_all())
}

/// Whether a mount or another device (device mapper, swap) has claimed a device.
pub fn is_claimed(device: &Path) -> bool {
    let opened = File::options().read(true).custom_flags(libc::O_EXCL).open(device);
    opened.is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)
}

/// Whether it is the device that it was.
pub fn is_there(found: &DeviceOfDisk) -> bool {
    let is_it = |device: &PathBuf| look(device.clone()).as_ref() == Some(found);
    fs::metadata(&found.device).is_ok_and(|at| at.rdev() != 0) && is_it(&found.device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_disk_says_where_its_volume_was_mounted_while_it_was() {
        let parts = |path: &str| parts(Path::new(path));
        assert_eq!(parts("/mnt/v/.oncefs/disks/home"), Some(("home".to_owned(), Some("/mnt/v".into()))));
        assert_eq!(parts("/.oncefs/disks/home@monday"), Some(("home@monday".to_owned(), None)));
        assert_eq!(parts("/home"), None);
    }

    #[test]
    fn a_file_that_reads_is_not_dead() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        assert!(!is_dead(file.path()) && !is_dead(Path::new("/nowhere")));
    }
}
