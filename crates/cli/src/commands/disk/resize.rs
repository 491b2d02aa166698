//! `oncefs disk resize`.

use std::path::PathBuf;

use clap::Args;

use crate::commands::help::UNITS;
use crate::disks::of_mount::{find, lasting_device_of, whole_sectors};
use crate::disks::{Content, DiskName, content, front_of};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;
use crate::size::{NewSize, Size};

/// Arguments of `disk resize`.
#[derive(Debug, Args)]
#[command(after_help = format!("{UNITS}

A mounted file system may grow with its disk; the command says how. Before a disk shrinks, its file system must have
shrunk, and the disk is refused a size in which it does not fit.

Examples:
  oncefs disk resize /mnt home +50G"))]
pub struct ResizeArgs {
    /// The volume, or any path inside its mount
    target: PathBuf,
    /// Name of the disk
    name: DiskName,
    /// Its new size, or +SIZE to add; multiples of 4K
    #[arg(allow_hyphen_values = true)]
    size: NewSize,
    /// Cut off what lies beyond the new size, whatever it is
    #[arg(long)]
    force: bool,
}

/// Changes the size of a disk.
pub fn run(ResizeArgs { target, name, size, force }: &ResizeArgs) -> Outcome {
    let disk = find(target, name)?;
    let device = lasting_device_of(&disk, name)?;
    let before = disk.metadata().or_fail_doing(exit::FAILED, format!("cannot read the disk {name}"))?.len();
    let after = whole_sectors(size.from(before))?;
    let found = content(&disk.file).or_fail_doing(exit::FAILED, format!("cannot read the disk {name}"))?;
    if after < before && !force {
        refuse_cutting(found, after, name)?;
    }
    let resized = disk.file.set_len(after).and_then(|()| disk.file.sync_all());
    resized.or_fail_doing(exit::FAILED, format!("cannot resize the disk {name} to {}", Size(after)))?;
    if let Some(device) = &device {
        front_of(device)
            .resized(device)
            .or_fail_doing(exit::FAILED, format!("{} keeps its old size: detach and attach", shown(device)))?;
    }
    say!("the disk {name} has {} now, {} before", Size(after), Size(before));
    if let (true, Content::FileSystem { kind, .. }) = (after > before, found) {
        let device = device.map_or_else(|| "DEVICE".to_owned(), |device| shown(&device).to_string());
        let grows = if kind == "xfs" { "xfs_growfs MOUNTPOINT".to_owned() } else { format!("resize2fs {device}") };
        say!("its {kind} grows by: {grows}");
    }
    Ok(())
}

/// Refuses a size that would cut off a part of the file system on the disk.
fn refuse_cutting(found: Content, after: u64, name: &DiskName) -> Outcome {
    let text = match found {
        Content::Nothing => return Ok(()),
        Content::FileSystem { bytes, .. } if bytes <= after => return Ok(()),
        Content::FileSystem { kind: "xfs", bytes } => {
            format!("the disk {name} has an xfs of {}, which cannot shrink: give a larger size", Size(bytes))
        }
        Content::FileSystem { kind, bytes } => {
            let to = after / 1024;
            format!("the disk {name} has an {kind} of {}: shrink it first (resize2fs DEVICE {to}K)", Size(bytes))
        }
        Content::Unknown => {
            format!("what is on the disk {name} is not known here, and may end beyond {}: --force cuts it", Size(after))
        }
    };
    Err(Failure::new(exit::FAILED, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_system_is_cut_and_unknown_content_only_by_force() {
        let name = "home".parse().unwrap();
        let refused = |found| refuse_cutting(found, 100, &name).is_err();
        assert!(!refused(Content::Nothing));
        assert!(!refused(Content::FileSystem { kind: "ext4", bytes: 100 }));
        assert!(refused(Content::FileSystem { kind: "ext4", bytes: 101 }));
        assert!(refused(Content::FileSystem { kind: "xfs", bytes: 101 }));
        assert!(refused(Content::Unknown));
    }
}
