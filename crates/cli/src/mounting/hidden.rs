//! Mounts out of sight: of a volume whose disks are in use while the volume itself is mounted nowhere.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::mount_table;

/// Their mount points lie here. Only root looks in.
const PLACES: &str = "/run/oncefs/volumes";

/// Whether a mount point is one of these.
pub fn is_one(dir: &Path) -> bool {
    dir.parent() == Some(Path::new(PLACES))
}

/// The mount point for a volume, which exists afterwards. A dead mount there is detached.
///
/// # Errors
/// PermissionDenied: the folder of mount points is not root's alone.
pub fn place(volume: &Path) -> io::Result<PathBuf> {
    let found = fs::metadata(volume)?;
    let place = Path::new(PLACES).join(format!("{:x}-{:x}", found.dev(), found.ino()));
    if let Some(dead) = mount_table::at(&place).ok().flatten().filter(mount_table::Mount::is_dead) {
        oncefs_fuse::unmount(&dead.dir, libc::MNT_DETACH)?;
    }
    DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
    let folder = fs::symlink_metadata(PLACES)?;
    match folder.uid() == 0 && folder.mode() & 0o022 == 0 {
        true => Ok(place),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{PLACES} is not root's alone"))),
    }
}
