//! `oncefs disk snapshot`, `rollback` and `clone`.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::control::protocol::Request;
use crate::disks::of_mount::{HeldMount, cannot, device_of, find_in, mount_of, refuse_attached, snapshots_of};
use crate::disks::standstill::Standstill;
use crate::disks::{Disk, DiskName, DiskOrSnapshot, Folder, Front, LoopDevices, mounted_at};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::options::MountOptions;
use crate::names::shown;

/// Arguments of `disk snapshot`.
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot has what the disk holds at one moment. A mounted file system stands still for that moment. It takes no room
until the disk changes.

Examples:
  oncefs disk snapshot /mnt home monday
  mount -o ro $(oncefs disk attach /mnt home@monday) /media")]
pub struct SnapshotArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the disk
    name: DiskName,
    /// Name of the new snapshot
    snapshot: DiskName,
}

/// Arguments of `disk rollback`.
#[derive(Debug, Args)]
#[command(after_help = "\
The disk must be detached. What was written since the snapshot is gone, and the snapshot stays.

Examples:
  oncefs disk rollback /mnt home monday")]
pub struct RollbackArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the disk
    name: DiskName,
    /// Name of its snapshot
    snapshot: DiskName,
}

/// Arguments of `disk clone`.
#[derive(Debug, Args)]
#[command(after_help = "\
The file system on the new disk has the identity of the old one; tune2fs -U random or xfs_admin -U generate gives it
another.

Examples:
  oncefs disk clone /mnt vm7@clean vm8")]
pub struct CloneArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the disk, or of a snapshot: NAME or NAME@SNAPSHOT
    name: DiskOrSnapshot,
    /// Name of the new disk
    new: DiskName,
}

/// Makes a snapshot.
pub fn snapshot(SnapshotArgs { target, name, snapshot }: &SnapshotArgs) -> Outcome {
    copy(target, name, &name.snapshot(snapshot))
}

/// Makes a disk with the content of another one or of a snapshot.
pub fn clone(CloneArgs { target, name: DiskOrSnapshot(name), new }: &CloneArgs) -> Outcome {
    copy(target, name, new)
}

/// Gives a disk the content of its snapshot.
pub fn rollback(RollbackArgs { target, name, snapshot }: &RollbackArgs) -> Outcome {
    let mount = mount_of(target, &MountOptions::default())?;
    let disk = find_in(&mount, target, name)?;
    refuse_attached(&disk, target, name)?;
    let snapshot = name.snapshot(snapshot);
    let source = find_in(&mount, target, &snapshot)?;
    sync(&source)?;
    let made = Unfinished::begin(&mount, &source, name)?;
    made.finish(name, true)
}

/// Refuses to remove a disk with snapshots.
pub fn refuse_with_snapshots(folder: &Folder, target: &Path, name: &DiskName) -> Outcome {
    let snapshots = snapshots_of(folder, name)?;
    let Some(first) = snapshots.first() else { return Ok(()) };
    let volume = shown(target);
    let text = format!(
        "the disk {name} has {} snapshots (oncefs disk list {volume}): remove them first, as oncefs disk remove {volume} \
         {first}",
        snapshots.len()
    );
    Err(Failure::new(exit::FAILED, text))
}

/// Makes a new disk or snapshot with the content that a disk has at one moment.
fn copy(target: &Path, name: &DiskName, new: &DiskName) -> Outcome {
    let mount = mount_of(target, &MountOptions::default())?;
    let source = find_in(&mount, target, name)?;
    let folder = mount.make_folder()?;
    if folder.find(new).is_ok() {
        let kind = if new.is_snapshot() { "snapshot" } else { "disk" };
        let text = format!("there is a {kind} {new} already (oncefs disk list {})", shown(target));
        return Err(Failure::new(exit::FAILED, text));
    }
    // What may take long comes before the file system stands still.
    sync(&source)?;
    mount.daemon.ask::<()>(Request::PrepareClone { inode: inode_of(&source)? })?;
    let made = match device_of(&source, name)? {
        None => Unfinished::begin(&mount, &source, new)?,
        Some(device) => match mounted_at(&device).or_fail(exit::FAILED)? {
            Some(dir) => {
                let _standstill = Standstill::begin(&dir)?;
                if !LoopDevices.is_direct(&device) {
                    sync(&source)?;
                }
                Unfinished::begin(&mount, &source, new)?
            }
            None => {
                let synced = File::open(&device).and_then(|device| device.sync_all());
                synced.or_fail_doing(exit::FAILED, cannot("sync", &device))?;
                sync(&source)?;
                Unfinished::begin(&mount, &source, new)?
            }
        },
    };
    made.finish(new, false)
}

/// A file with the content that a disk had, until it has the name of its own disk. The kernel has not seen it: the
/// daemon made it.
struct Unfinished {
    folder: Folder,
    file: String,
}

impl Unfinished {
    /// Makes a file with the present content of a disk.
    fn begin(mount: &HeldMount, source: &Disk, name: &DiskName) -> Outcome<Self> {
        let folder = mount.make_folder()?;
        // The kernel may remember that there is no file of a name, so each attempt has its own.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let file = name.unfinished(now.as_nanos() as u64);
        let directory = folder.inode().or_fail_doing(exit::FAILED, cannot("use .oncefs/disks in", &mount.dir))?;
        mount.daemon.ask::<()>(Request::CloneFile { inode: inode_of(source)?, directory, name: file.clone() })?;
        Ok(Self { folder, file })
    }

    /// Gives it its name. Durable on return.
    fn finish(self, name: &DiskName, replaces: bool) -> Outcome {
        let named = self.folder.finish(&self.file, name, replaces);
        // Also what crashes left of earlier attempts.
        let rest = self.folder.remove_unfinished(name);
        named.and(rest).or_fail_doing(exit::FAILED, format!("cannot make {name}"))
    }
}

fn inode_of(disk: &Disk) -> Outcome<u64> {
    Ok(disk.metadata().or_fail_doing(exit::FAILED, cannot("read the disk", &disk.path))?.ino())
}

/// Writes what the kernel still holds of a disk's file.
fn sync(disk: &Disk) -> Outcome {
    disk.file.sync_data().or_fail_doing(exit::FAILED, cannot("write back", &disk.path))
}
