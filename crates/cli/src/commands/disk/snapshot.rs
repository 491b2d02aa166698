//! `oncefs disk snapshot`, `rollback` and `clone`.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;

use crate::control::protocol::Request;
use crate::disks::of_mount::{
    HeldMount, cannot, device_and_mount_of, find_in, mount_of, refuse_attached, snapshots_of,
};
use crate::disks::standstill::{Keeper, Mounted};
use crate::disks::{Disk, DiskName, DiskOrSnapshot, Folder, front_of};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::options::MountOptions;
use crate::names::shown;

/// Attempts to make a snapshot of a mounted disk while other snapshots and clones begin.
const TRIES: u32 = 8;

/// Arguments of `disk snapshot`.
#[derive(Debug, Args)]
#[command(after_help = "\
A snapshot has what the disk holds at one moment. A mounted file system stands still for that moment. It takes no room
until the disk changes.

Examples:
  oncefs disk snapshot /mnt home monday
  oncefs disk snapshot /mnt home monday --verbose      say how long its file system stood still
  mount -o ro $(oncefs disk attach /mnt home@monday) /media")]
pub struct SnapshotArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the disk
    name: DiskName,
    /// Name of the new snapshot
    snapshot: DiskName,
    /// Say for how long the mounted file system stood still
    #[arg(short, long)]
    verbose: bool,
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
pub fn snapshot(SnapshotArgs { target, name, snapshot, verbose }: &SnapshotArgs) -> Outcome {
    let snapshot = name.snapshot(snapshot);
    let stood = copy(target, name, &snapshot)?;
    if *verbose {
        match stood {
            Some(stood) => say!("{snapshot}: the file system stood still for {:.1} ms", stood.as_secs_f64() * 1e3),
            None => say!("{snapshot}: no mounted file system had to stand still"),
        }
    }
    Ok(())
}

/// Makes a disk with the content of another one or of a snapshot.
pub fn clone(CloneArgs { target, name: DiskOrSnapshot(name), new }: &CloneArgs) -> Outcome {
    copy(target, name, new).map(|_| ())
}

/// Gives a disk the content of its snapshot.
pub fn rollback(RollbackArgs { target, name, snapshot }: &RollbackArgs) -> Outcome {
    let mount = mount_of(target, &MountOptions::default())?;
    let disk = find_in(&mount, target, name)?;
    refuse_attached(&disk, target, name)?;
    let snapshot = name.snapshot(snapshot);
    let source = find_in(&mount, target, &snapshot)?;
    sync(&source)?;
    let unfinished = Unfinished::prepare(&mount, &source, name)?;
    unfinished.make()?;
    unfinished.finish(name, true)
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

/// Makes a new disk or snapshot with the content that a disk has at one moment. Returns for how long a file system on
/// the disk stood still.
fn copy(target: &Path, name: &DiskName, new: &DiskName) -> Outcome<Option<Duration>> {
    let mount = mount_of(target, &MountOptions::default())?;
    let source = find_in(&mount, target, name)?;
    let folder = mount.make_folder()?;
    let kind = if new.is_snapshot() { "snapshot" } else { "disk" };
    if folder.find(new).is_ok() {
        let text = format!("there is a {kind} {new} already (oncefs disk list {})", shown(target));
        return Err(Failure::new(exit::FAILED, text));
    }
    let (device, dir) = device_and_mount_of(&source, name)?.unzip();
    let mounted = match (&device, dir.flatten()) {
        (Some(device), Some(dir)) => {
            let number = device.metadata().or_fail_doing(exit::FAILED, shown(device))?.rdev();
            Some(Mounted::open(&dir, number)?)
        }
        _ => None,
    };
    // Whatever may take long comes before the file system stands still.
    let keeper = mounted.as_ref().map(Keeper::start).transpose()?;
    if let (Some(device), None) = (&device, &mounted) {
        sync_device(device).or_fail_doing(exit::FAILED, cannot("sync", device))?;
    }
    sync(&source)?;
    let unfinished = Unfinished::prepare(&mount, &source, new)?;
    let is_direct = device.as_ref().is_none_or(|device| front_of(device).is_direct(device));
    let stood = match keeper.zip(mounted) {
        Some((keeper, mounted)) => {
            let sync_rest = || if is_direct { Ok(()) } else { sync(&source) };
            let made = unfinished.make_in_standstill(keeper, &mounted, kind, sync_rest);
            made.inspect_err(|_| unfinished.discard(new))?
        }
        None => {
            unfinished.ready()?;
            unfinished.make()?;
            None
        }
    };
    unfinished.finish(new, false)?;
    Ok(stood)
}

/// A file with the content that a disk had, until it has the name of its own disk. The kernel has not seen it: the
/// daemon made it.
struct Unfinished<'a> {
    mount: &'a HeldMount,
    folder: Folder,
    /// The inode number of the folder.
    directory: u64,
    /// The inode number of the disk.
    source: u64,
    file: String,
}

impl<'a> Unfinished<'a> {
    /// Finds out everything that making the file needs.
    fn prepare(mount: &'a HeldMount, source: &Disk, name: &DiskName) -> Outcome<Self> {
        let folder = mount.make_folder()?;
        // The kernel may remember that there is no file of a name, so each attempt has its own.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let file = name.unfinished(now.as_nanos() as u64);
        let directory = folder.inode().or_fail_doing(exit::FAILED, cannot("use .oncefs/disks in", &mount.dir))?;
        Ok(Self { mount, folder, directory, source: inode_of(source)?, file })
    }

    /// Makes the file with the present content of the disk.
    fn make(&self) -> Outcome {
        let (inode, directory, name) = (self.source, self.directory, self.file.clone());
        self.mount.daemon.ask::<()>(Request::CloneFile { inode, directory, name })
    }

    /// Has the daemon do what may take long before the file is made.
    fn ready(&self) -> Outcome {
        self.mount.daemon.ask(Request::PrepareClone { inode: self.source })
    }

    /// Makes the file while the file system stands still. If other clones began after the preparation
    /// and have to be completed first, it does not stand still for that: it goes on, and the preparation begins again.
    /// Returns for how long it stood still, the last time.
    fn make_in_standstill(
        &self,
        keeper: Keeper,
        mounted: &Mounted,
        kind: &str,
        sync_rest: impl Fn() -> Outcome,
    ) -> Outcome<Option<Duration>> {
        let mut ready_keeper = Some(keeper);
        for _ in 0..TRIES {
            self.ready()?;
            let keeper = ready_keeper.take().map_or_else(|| Keeper::start(mounted), Ok)?;
            let standstill = keeper.freeze()?;
            sync_rest()?;
            let is_made = self.make_at_once()?;
            let ended = standstill.end();
            let stood = ended.map_err(|why| Failure::new(exit::FAILED, format!("{why}; the {kind} was not made")))?;
            if is_made {
                return Ok(stood);
            }
        }
        Err(Failure::new(exit::FAILED, "other snapshots and clones begin all the time: try again later"))
    }

    /// False: other clones have to be completed first, and nothing was made.
    fn make_at_once(&self) -> Outcome<bool> {
        let (inode, directory, name) = (self.source, self.directory, self.file.clone());
        self.mount.daemon.ask(Request::CloneFileAtOnce { inode, directory, name })
    }

    /// Removes it. One that stays is removed by the next command that makes a disk of this name.
    fn discard(&self, name: &DiskName) {
        let _ = self.folder.remove_unfinished(name);
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

/// Writes what the kernel still holds for a device. One that has ended meanwhile has been written.
fn sync_device(device: &Path) -> io::Result<()> {
    match File::open(device).and_then(|device| device.sync_all()) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        synced => synced,
    }
}

/// Writes what the kernel still holds of a disk's file.
fn sync(disk: &Disk) -> Outcome {
    disk.file.sync_data().or_fail_doing(exit::FAILED, cannot("write back", &disk.path))
}
