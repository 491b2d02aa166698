//! `oncefs disk`: disks in a volume and their snapshots, shown as block devices for other file systems.

mod list;
mod resize;
mod snapshot;

use std::fs::File;
use std::io;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::disks::of_mount::{
    self, Attaching, WAIT_SECONDS, device_of, find, find_in, lasting_device_of, mount_of, refuse_attached,
    whole_sectors,
};
use crate::disks::ublk::ServeArgs;
use crate::disks::{Access, DiskName, DiskOrSnapshot, Kind, front_of, standstill, ublk};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::options::MountOptions;
use crate::names::shown;
use crate::size::Size;

/// Arguments of `disk`.
#[derive(Debug, Args)]
#[command(after_help = "\
A disk is a block device whose blocks the volume stores once. A file system on it (ext4, xfs, ...) handles small files
in the kernel, faster than the mount can. Experimental.

Examples:
  oncefs disk create /srv/volume home 100G
  mount -t oncefs -o disk=home,mkfs=ext4 /srv/volume /home
  oncefs disk list /srv/volume")]
pub struct DiskArgs {
    #[command(subcommand)]
    what: What,
}

/// What to do.
#[derive(Debug, Subcommand)]
enum What {
    /// Make an empty disk in a mounted volume
    Create(CreateArgs),
    /// Show a disk as a block device, and print the device
    Attach(AttachArgs),
    /// End the block device of a disk
    Detach(OneArgs),
    /// Show the disks of a mounted volume, and their snapshots
    List(list::ListArgs),
    /// Enlarge a disk, or shrink it as far as its file system was shrunk
    Resize(resize::ResizeArgs),
    /// Keep what a disk holds now, mounted or not
    Snapshot(snapshot::SnapshotArgs),
    /// Give a disk what its snapshot holds
    Rollback(snapshot::RollbackArgs),
    /// Make a disk with the content of another, or of a snapshot
    Clone(snapshot::CloneArgs),
    /// Remove a disk or a snapshot with everything on it
    Remove(OneArgs),
    /// Let a file system stand still until standard input ends; `snapshot` starts it
    #[command(hide = true)]
    StandStill(StandStillArgs),
    /// Serve a ublk device over the disk that is standard input; `attach` starts it
    #[command(hide = true)]
    Serve(ServeArgs),
}

/// Arguments of `disk create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  oncefs disk create /mnt home 100G
  oncefs disk create /mnt vm7 20G --thick     with all its room reserved")]
struct CreateArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the new disk
    name: DiskName,
    /// Its size; multiples of 4K
    size: Size,
    /// Reserve room for all of it, so that writes to it never find the volume full
    #[arg(long)]
    thick: bool,
}

/// Arguments of `disk attach`.
#[derive(Debug, Args)]
#[command(after_help = "\
The device has sectors of 4 KiB. It ends with oncefs disk detach, and with the machine; while it exists, the volume
cannot be unmounted.

Examples:
  mount $(oncefs disk attach /mnt home) /home")]
struct AttachArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the disk, or of a snapshot: NAME or NAME@SNAPSHOT
    name: DiskOrSnapshot,
    /// Refuse writes to the device; a snapshot is never written
    #[arg(long)]
    read_only: bool,
    /// How long writes wait for room when the volume is full, before they fail. 0: they fail at once
    #[arg(long, value_name = "SECONDS", default_value_t = WAIT_SECONDS)]
    wait: u64,
    /// The kind of the device: loop, or ublk (experimental), which needs the kernel's ublk_drv
    #[arg(long, value_name = "KIND", default_value = "loop")]
    device: Kind,
}

/// A disk of a volume.
#[derive(Debug, Args)]
struct OneArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the disk, or of a snapshot: NAME or NAME@SNAPSHOT
    name: DiskOrSnapshot,
}

/// Arguments of `disk stand-still`.
#[derive(Debug, Args)]
struct StandStillArgs {
    /// Where the file system is mounted
    dir: PathBuf,
    /// The number of its device
    device: u64,
}

/// Runs the command.
pub fn run(arguments: DiskArgs) -> Outcome {
    match arguments.what {
        What::Create(arguments) => create(&arguments),
        What::Attach(arguments) => attach(&arguments),
        What::Detach(arguments) => detach(&arguments),
        What::List(arguments) => list::run(&arguments),
        What::Resize(arguments) => resize::run(&arguments),
        What::Snapshot(arguments) => snapshot::snapshot(&arguments),
        What::Rollback(arguments) => snapshot::rollback(&arguments),
        What::Clone(arguments) => snapshot::clone(&arguments),
        What::Remove(arguments) => remove(&arguments),
        What::StandStill(arguments) => standstill::keep(&arguments.dir, arguments.device),
        What::Serve(arguments) => ublk::serve(&arguments),
    }
}

fn create(CreateArgs { target, name, size, thick }: &CreateArgs) -> Outcome {
    let bytes = whole_sectors(size.0)?;
    let mount = mount_of(target, &MountOptions::default())?;
    let folder = mount.make_folder()?;
    let disk = folder.make(name).map_err(|e| match e.kind() {
        io::ErrorKind::AlreadyExists => Failure::new(
            exit::FAILED,
            format!(
                "there is a disk {name} already: choose another name (oncefs disk list {} shows all)",
                shown(target)
            ),
        ),
        _ => Failure::new(exit::FAILED, format!("cannot make the disk {name}: {e}")),
    })?;
    let made = disk.file.set_len(bytes).and_then(|()| if *thick { reserve(&disk.file, bytes) } else { Ok(()) });
    made.and_then(|()| disk.file.sync_all()).map_err(|e| {
        // The disk is empty and unknown to everybody.
        let _ = folder.remove(name);
        let way_out = match e.kind() {
            io::ErrorKind::StorageFull if *thick => " (enlarge the volume by oncefs grow, or leave out --thick)",
            _ => "",
        };
        Failure::new(exit::FAILED, format!("cannot make the disk {name} with {size}: {e}{way_out}"))
    })
}

/// Reserves room without writing.
fn reserve(file: &File, bytes: u64) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let bytes = libc::off_t::try_from(bytes).map_err(|_| io::Error::from(io::ErrorKind::FileTooLarge))?;
    // SAFETY: an open descriptor and plain numbers.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, bytes) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn attach(AttachArgs { target, name: DiskOrSnapshot(name), read_only, wait, device }: &AttachArgs) -> Outcome {
    let mount = mount_of(target, &MountOptions::default())?;
    let disk = find_in(&mount, target, name)?;
    if let Some(device) = lasting_device_of(&disk, name)? {
        let text = format!("the disk {name} is attached already, as {}: use that device", shown(&device));
        return Err(Failure::new(exit::FAILED, text));
    }
    let access = if *read_only || name.is_snapshot() { Access::ReadOnly } else { Access::ReadWrite };
    let how = Attaching { kind: *device, access, wait_seconds: *wait };
    let device = of_mount::attach(&mount, &disk, name, how)?;
    say!("{}", shown(&device));
    Ok(())
}

fn detach(OneArgs { target, name: DiskOrSnapshot(name) }: &OneArgs) -> Outcome {
    let disk = find(target, name)?;
    let Some(device) = lasting_device_of(&disk, name)? else {
        let text = format!("the disk {name} is not attached (oncefs disk list {} shows devices)", shown(target));
        return Err(Failure::new(exit::FAILED, text));
    };
    let doing = || format!("cannot detach the disk {name} from {}", shown(&device));
    front_of(&device).detach(&disk, &device).or_fail_doing(exit::FAILED, doing())?;
    match device_of(&disk, name)? {
        None => Ok(()),
        Some(_) => {
            let text = format!("a program has it open (fuser -v {}); it is detached once that ends", shown(&device));
            Err(Failure::new(exit::FAILED, format!("{}: {text}", doing())))
        }
    }
}

fn remove(OneArgs { target, name: DiskOrSnapshot(name) }: &OneArgs) -> Outcome {
    let disk = find(target, name)?;
    refuse_attached(&disk, target, name)?;
    let folder = mount_of(target, &MountOptions::default())?.make_folder()?;
    snapshot::refuse_with_snapshots(&folder, target, name)?;
    let removed = folder.remove(name);
    removed.or_fail_doing(exit::FAILED, format!("cannot remove the disk {name}"))
}
