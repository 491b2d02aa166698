//! The folder of a mount's disks.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags, openat, renameat_with, unlinkat};

use super::name::{DiskName, DiskOrSnapshot};
use crate::files::reserved::{self, open_at};

/// In the directory of oncefs itself.
const FOLDER: &str = "disks";
const DISK_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The folder, open.
pub struct Folder {
    held: File,
    path: PathBuf,
}

/// A disk, open.
pub struct Disk {
    /// Its file.
    pub file: File,
    /// Where it lies.
    pub path: PathBuf,
}

impl Disk {
    /// Its size in bytes.
    ///
    /// # Errors
    /// The daemon's.
    pub fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }
}

impl Folder {
    /// Opens the folder of the mount whose root is `root`, which `dir` leads to. None: no disk was ever made there.
    ///
    /// # Errors
    /// PermissionDenied: users other than root can change a directory on the way, and could put a file there.
    pub fn open(root: &File, dir: &Path) -> io::Result<Option<Self>> {
        match Self::descend(root, dir, false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// As [`Folder::open`]; creates it.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn create(root: &File, dir: &Path) -> io::Result<Self> {
        Self::descend(root, dir, true)
    }

    fn descend(root: &File, dir: &Path, creates: bool) -> io::Result<Self> {
        let (held, path) = reserved::descend(root, dir, FOLDER, creates)?;
        Ok(Self { held, path })
    }

    /// Makes an empty disk.
    ///
    /// # Errors
    /// AlreadyExists; NotFound is not among them.
    pub fn make(&self, name: &DiskName) -> io::Result<Disk> {
        let creates = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let opened = openat(&self.held, name.as_str(), creates | OFlags::NOFOLLOW | OFlags::CLOEXEC, DISK_MODE)?;
        Ok(self.disk(name, opened.into()))
    }

    /// Opens a disk.
    ///
    /// # Errors
    /// NotFound: there is none of this name.
    pub fn find(&self, name: &DiskName) -> io::Result<Disk> {
        let file = open_at(&self.held, name.as_str(), OFlags::RDWR)?;
        match file.metadata()?.is_file() {
            true => Ok(self.disk(name, file)),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// The inode number of the folder.
    ///
    /// # Errors
    /// The daemon's.
    pub fn inode(&self) -> io::Result<u64> {
        Ok(self.held.metadata()?.ino())
    }

    /// The names of all disks and snapshots, each disk before its snapshots, sorted.
    ///
    /// # Errors
    /// The daemon's.
    pub fn names(&self) -> io::Result<Vec<DiskName>> {
        let entries = std::fs::read_dir(&self.path)?.collect::<io::Result<Vec<_>>>()?;
        let files = entries.iter().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let named = |text: &str| text.parse().ok().map(|DiskOrSnapshot(name)| name);
        let mut names: Vec<_> = files.filter_map(|entry| named(entry.file_name().to_str()?)).collect();
        names.sort_by(|a, b| a.as_str().split('@').cmp(b.as_str().split('@')));
        Ok(names)
    }

    /// Gives an unfinished file the name of its disk: that of a new one, or in place of an old one.
    ///
    /// # Errors
    /// AlreadyExists, unless it replaces.
    pub fn finish(&self, file: &str, name: &DiskName, replaces: bool) -> io::Result<()> {
        let flags = if replaces { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
        renameat_with(&self.held, file, &self.held, name.as_str(), flags)?;
        self.held.sync_all()
    }

    /// Removes the files that interrupted attempts to make a disk left.
    ///
    /// # Errors
    /// The daemon's.
    pub fn remove_unfinished(&self, name: &DiskName) -> io::Result<()> {
        for entry in std::fs::read_dir(&self.path)? {
            let file = entry?.file_name();
            if let Some(file) = file.to_str().filter(|file| name.left(file)) {
                self.remove_file(file)?;
            }
        }
        Ok(())
    }

    /// Removes a disk.
    ///
    /// # Errors
    /// The daemon's.
    pub fn remove(&self, name: &DiskName) -> io::Result<()> {
        self.remove_file(name.as_str())
    }

    fn remove_file(&self, name: &str) -> io::Result<()> {
        unlinkat(&self.held, name, AtFlags::empty())?;
        self.held.sync_all()
    }

    fn disk(&self, name: &DiskName, file: File) -> Disk {
        Disk { file, path: self.path.join(name.as_str()) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use tempfile::TempDir;

    use super::*;

    fn name(text: &str) -> DiskName {
        text.parse().unwrap()
    }

    fn open(mount: &TempDir) -> io::Result<Option<Folder>> {
        Folder::open(&File::open(mount.path())?, mount.path())
    }

    fn create(mount: &TempDir) -> io::Result<Folder> {
        Folder::create(&File::open(mount.path())?, mount.path())
    }

    #[test]
    fn disks_are_made_once_found_listed_and_removed() {
        let mount = tempfile::tempdir().unwrap();
        assert!(open(&mount).unwrap().is_none());
        let folder = create(&mount).unwrap();
        folder.make(&name("b")).unwrap().file.set_len(8192).unwrap();
        folder.make(&name("a")).unwrap();
        assert_eq!(folder.make(&name("a")).err().unwrap().kind(), io::ErrorKind::AlreadyExists);
        fs::create_dir(mount.path().join(".oncefs/disks/folder")).unwrap();
        assert_eq!(folder.names().unwrap(), [name("a"), name("b")]);
        assert_eq!(folder.find(&name("b")).unwrap().metadata().unwrap().len(), 8192);
        assert_eq!(folder.find(&name("c")).err().unwrap().kind(), io::ErrorKind::NotFound);
        folder.remove(&name("b")).unwrap();
        assert_eq!(open(&mount).unwrap().unwrap().names().unwrap(), [name("a")]);
    }

    #[test]
    fn a_folder_that_others_made_or_may_change_is_refused_and_no_link_is_followed() {
        let mount = tempfile::tempdir().unwrap();
        symlink("/etc", mount.path().join(".oncefs")).unwrap();
        assert!(create(&mount).is_err());
        fs::remove_file(mount.path().join(".oncefs")).unwrap();
        let folder = create(&mount).unwrap();
        symlink("/etc/passwd", mount.path().join(".oncefs/disks/link")).unwrap();
        assert!(folder.find(&name("link")).is_err());
        fs::set_permissions(mount.path().join(".oncefs"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(open(&mount).err().unwrap().kind(), io::ErrorKind::PermissionDenied);
    }
}
