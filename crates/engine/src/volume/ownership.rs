//! Whether users other than root could read or change a volume's files.
//!
//! A volume that others can change is refused: exchanging a block writes a file, and adding a name creates a program
//! that runs as root. A volume that others can only read is opened with a warning.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::{Error, Result};

/// Mode bits that let the group or others change a file.
const OTHERS_WRITE: u32 = 0o022;

/// Mode bits that let the group or others read a file or list a directory.
const OTHERS_READ: u32 = 0o055;

/// Mode of a volume's directory: only its owner can reach anything in it.
pub const DIRECTORY_MODE: u32 = 0o700;

/// Refuses a volume whose directory or files others can change. The permissions of a raw device are the system's
/// business.
pub fn refuse_if_others_can_change(volume: &Path) -> Result<()> {
    for (path, found) in parts(volume) {
        refuse_owner(&path, &found)?;
        if found.mode() & OTHERS_WRITE != 0 {
            let path = path.display();
            return Err(Error::Exposed(format!(
                "others can change {path}: chmod go-w {path}, and mount no volume that somebody else may have changed"
            )));
        }
    }
    Ok(())
}

/// Refuses a file or directory of a user other than root and this process's.
pub fn refuse_owner(path: &Path, found: &Metadata) -> Result<()> {
    // SAFETY: geteuid has no arguments and cannot fail.
    let own = unsafe { libc::geteuid() };
    if found.uid() == 0 || found.uid() == own {
        return Ok(());
    }
    let path = path.display();
    let text = format!("{path} belongs to user {}, who could change it at any time: chown -R root {path}", found.uid());
    Err(Error::Exposed(text))
}

/// The parts of a volume that others can read, if its directory lets them in.
pub fn readable_by_others(volume: &Path) -> Vec<PathBuf> {
    let is_open = fs::metadata(volume).is_ok_and(|found| found.mode() & OTHERS_READ != 0);
    let parts = if is_open { parts(volume) } else { Vec::new() };
    let readable =
        |(path, found): (PathBuf, Metadata)| (path != volume && found.mode() & OTHERS_READ != 0).then_some(path);
    parts.into_iter().filter_map(readable).collect()
}

/// Prepares an empty directory for a new volume.
pub fn claim(directory: &Path) -> Result<()> {
    let failed = |e| Error::io(format!("making {}", directory.display()), e);
    refuse_owner(directory, &fs::metadata(directory).map_err(failed)?)?;
    fs::set_permissions(directory, PermissionsExt::from_mode(DIRECTORY_MODE)).map_err(failed)
}

/// The targets outside a volume's directory of the links in it: a part may lie on another disk.
pub fn linked_parts(volume: &Path) -> Vec<PathBuf> {
    let links = entries(volume).into_iter().filter(|path| path.is_symlink());
    links.filter_map(|path| path.canonicalize().ok()).collect()
}

/// The directory itself, and the files and directories in it, including the targets of links.
fn parts(volume: &Path) -> Vec<(PathBuf, Metadata)> {
    let paths = std::iter::once(volume.to_owned()).chain(entries(volume));
    let found = paths.filter_map(|path| Some((fs::metadata(&path).ok()?, path)));
    found.filter(|(found, _)| found.is_dir() || found.is_file()).map(|(found, path)| (path, found)).collect()
}

/// A directory that cannot be listed counts as empty: opening its files then fails with the reason.
fn entries(volume: &Path) -> Vec<PathBuf> {
    fs::read_dir(volume).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        set_mode(directory.path(), DIRECTORY_MODE);
        for name in ["superblock", "data"] {
            fs::write(directory.path().join(name), "").unwrap();
            set_mode(&directory.path().join(name), 0o600);
        }
        directory
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    fn refusal(volume: &Path) -> Option<String> {
        refuse_if_others_can_change(volume).err().map(|e| e.to_string())
    }

    #[test]
    fn a_volume_that_others_can_change_is_refused_with_the_way_out() {
        let directory = volume();
        assert_eq!(refusal(directory.path()), None);
        for (name, good, bad) in
            [("", 0o700, 0o770), ("", 0o700, 0o1777), ("superblock", 0o600, 0o602), ("data", 0o600, 0o620)]
        {
            let path = directory.path().join(name);
            set_mode(&path, bad);
            assert!(refusal(directory.path()).unwrap().contains("chmod go-w"), "{name} {bad:o}");
            set_mode(&path, good);
        }
        assert_eq!(refusal(directory.path()), None);
    }

    #[test]
    fn a_part_of_somebody_elses_is_refused() {
        let directory = volume();
        for name in ["data", ""] {
            let path = directory.path().join(name);
            std::os::unix::fs::chown(&path, Some(1000), None).expect("this test needs root");
            assert!(refusal(directory.path()).unwrap().contains("belongs to user 1000"), "{name}");
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        assert!(refuse_owner(Path::new("x"), &fs::metadata("/").unwrap()).is_ok());
    }

    #[test]
    fn what_others_can_read_counts_where_the_directory_lets_them_in() {
        let directory = volume();
        let superblock = directory.path().join("superblock");
        set_mode(&superblock, 0o644);
        assert!(readable_by_others(directory.path()).is_empty(), "nobody gets as far");
        set_mode(directory.path(), 0o711);
        assert_eq!(readable_by_others(directory.path()), std::slice::from_ref(&superblock));
        set_mode(&superblock, 0o600);
        assert!(readable_by_others(directory.path()).is_empty());
    }

    #[test]
    fn a_part_behind_a_link_is_looked_at_where_it_lies() {
        let (directory, elsewhere) = (volume(), volume());
        let data = elsewhere.path().join("data");
        fs::remove_file(directory.path().join("data")).unwrap();
        std::os::unix::fs::symlink(&data, directory.path().join("data")).unwrap();
        assert_eq!(linked_parts(directory.path()), [data.canonicalize().unwrap()]);
        assert_eq!(refusal(directory.path()), None);
        set_mode(&data, 0o666);
        assert!(refusal(directory.path()).is_some());
    }

    #[test]
    fn an_empty_directory_becomes_the_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        set_mode(directory.path(), 0o777);
        claim(directory.path()).unwrap();
        assert_eq!(fs::metadata(directory.path()).unwrap().mode() & 0o7777, DIRECTORY_MODE);
        std::os::unix::fs::chown(directory.path(), Some(1000), None).expect("this test needs root");
        assert!(claim(directory.path()).is_err());
    }
}
