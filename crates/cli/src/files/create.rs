//! Creates and removes entries of a held directory. Each name is one component; no link is followed.

use std::ffi::OsStr;
use std::fs::File;
use std::io;

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RenameFlags};

use super::held::Held;

/// Until their attributes are set, only root sees new entries.
const DIRECTORY_MODE: Mode = Mode::RWXU;
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

impl Held {
    /// Creates a directory.
    pub fn create_directory(&self, name: &OsStr) -> io::Result<()> {
        Ok(fs::mkdirat(self.descriptor(), name, DIRECTORY_MODE)?)
    }

    /// Creates a regular file, open for reading and writing.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        self.open_entry(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens a regular file for reading and writing.
    pub fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_entry(name, OFlags::RDWR | OFlags::NONBLOCK)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    fn open_entry(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        Ok(fs::openat(self.descriptor(), name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, FILE_MODE)?.into())
    }

    /// Creates a symbolic link.
    pub fn create_symlink(&self, name: &OsStr, target: &[u8]) -> io::Result<()> {
        Ok(fs::symlinkat(target, self.descriptor(), name)?)
    }

    /// Creates a device, a pipe or a socket: `mode` has the type.
    pub fn create_special(&self, name: &OsStr, mode: u32, device: u64) -> io::Result<()> {
        Ok(fs::mknodat(self.descriptor(), name, FileType::from_raw_mode(mode), FILE_MODE, device)?)
    }

    /// Gives an entry of the directory `above` another name in this one.
    pub fn create_link(&self, name: &OsStr, above: &Self, target: &OsStr) -> io::Result<()> {
        Ok(fs::linkat(above.descriptor(), target, self.descriptor(), name, AtFlags::empty())?)
    }

    /// Renames an entry of this directory into another one, if the new name is free.
    pub fn move_entry(&self, name: &OsStr, to: &Self, new: &OsStr) -> io::Result<()> {
        Ok(fs::renameat_with(self.descriptor(), name, to.descriptor(), new, RenameFlags::NOREPLACE)?)
    }

    /// Renames an entry of this directory, in place of another one.
    pub fn replace_entry(&self, name: &OsStr, new: &OsStr) -> io::Result<()> {
        Ok(fs::renameat(self.descriptor(), name, self.descriptor(), new)?)
    }

    /// Removes an entry, with everything below it.
    pub fn remove_all(&self, name: &OsStr) -> io::Result<()> {
        let path = self.path().join(name);
        match path.symlink_metadata()?.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        }
    }

    /// The text of a symbolic link.
    pub fn link_target(&self) -> io::Result<Vec<u8>> {
        // An empty path names the link itself.
        Ok(fs::readlinkat(self.descriptor(), c"", Vec::new())?.into_bytes())
    }
}
