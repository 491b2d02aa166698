//! Mounts out of sight: of a volume whose disks are in use while the volume itself is mounted nowhere.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::mount_table;

/// Their mount points lie here. Only root looks in.
const PLACES: &str = "/run/oncefs/volumes";

/// A mount point that was asked for within this time may be about to be used.
const NEW: Duration = Duration::from_secs(60);

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
    if folder.uid() != 0 || folder.mode() & 0o022 != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{PLACES} is not root's alone")));
    }
    if mount_table::at(&place).ok().flatten().is_none() {
        // Keeps it from the commands that remove old ones.
        File::open(&place)?.set_modified(SystemTime::now())?;
    }
    remove_old(Path::new(PLACES));
    Ok(place)
}

/// Removes the mount points that are not in use and were asked for a while ago.
fn remove_old(places: &Path) {
    let Ok(mounts) = mount_table::all() else { return };
    for place in fs::read_dir(places).into_iter().flatten().flatten().map(|entry| entry.path()) {
        // Nothing asks a mount for its attributes: its daemon may hang.
        if mounts.iter().any(|mount| mount.dir == place) {
            continue;
        }
        let age = fs::symlink_metadata(&place).and_then(|found| found.modified()).map(|since| since.elapsed());
        if age.is_ok_and(|age| age.is_ok_and(|age| age > NEW)) {
            // Fails for one that holds something or was mounted meanwhile.
            let _ = fs::remove_dir(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_that_were_not_asked_for_lately_are_removed() {
        let places = tempfile::tempdir().unwrap();
        let [old, new, held] = ["old", "new", "held"].map(|name| places.path().join(name));
        [&old, &new, &held].into_iter().for_each(|place| fs::create_dir(place).unwrap());
        fs::write(held.join("file"), "").unwrap();
        let long_ago = SystemTime::now() - 2 * NEW;
        for place in [&old, &held] {
            File::open(place).unwrap().set_modified(long_ago).unwrap();
        }
        remove_old(places.path());
        assert!(!old.exists() && new.exists() && held.exists());
    }
}
