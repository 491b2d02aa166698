//! Mounts out of sight: of a volume whose disks are in use while the volume itself is mounted nowhere.
//!
//! A mount point's name ends with the number of the mount namespace of the command that made it, and only commands in
//! that namespace remove it: to remove a directory detaches what other namespaces have mounted there.

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
    let place = Path::new(PLACES).join(format!("{:x}-{:x}{}", found.dev(), found.ino(), suffix()?));
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

/// Ends the names of mount points that were made in this mount namespace.
fn suffix() -> io::Result<String> {
    Ok(format!("-{:x}", fs::metadata("/proc/self/ns/mnt")?.ino()))
}

/// Removes the mount points of this mount namespace that are not in use and were asked for a while ago.
fn remove_old(places: &Path) {
    let (Ok(mounts), Ok(suffix)) = (mount_table::all(), suffix()) else { return };
    let entries = fs::read_dir(places).into_iter().flatten().flatten();
    for place in
        entries.filter(|entry| entry.file_name().as_encoded_bytes().ends_with(suffix.as_bytes())).map(|e| e.path())
    {
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
        let suffix = suffix().unwrap();
        let [old, new, held] = ["old", "new", "held"].map(|name| places.path().join(name.to_owned() + &suffix));
        let other = places.path().join("of-another-namespace-1");
        [&old, &new, &held, &other].into_iter().for_each(|place| fs::create_dir(place).unwrap());
        fs::write(held.join("file"), "").unwrap();
        let long_ago = SystemTime::now() - 2 * NEW;
        for place in [&old, &held, &other] {
            File::open(place).unwrap().set_modified(long_ago).unwrap();
        }
        remove_old(places.path());
        assert!(!old.exists() && new.exists() && held.exists() && other.exists());
    }
}
