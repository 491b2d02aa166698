//! Creates and removes entries of a held directory. Each name is one component; no link is followed.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;
use std::os::unix::ffi::OsStrExt;

use super::held::Held;
use crate::process::setup::check;

/// Until their attributes are set, only root sees new entries.
const DIRECTORY_MODE: libc::mode_t = 0o700;
const FILE_MODE: libc::mode_t = 0o600;

impl Held {
    /// Creates a directory.
    pub fn create_directory(&self, name: &OsStr) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: an open directory, and a string that ends with a zero.
        check(unsafe { libc::mkdirat(self.descriptor(), name.as_ptr(), DIRECTORY_MODE) })
    }

    /// Creates a regular file, open for reading and writing.
    pub fn create_file(&self, name: &OsStr) -> io::Result<File> {
        self.open_entry(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)
    }

    /// Opens a regular file for reading and writing.
    pub fn open_to_write(&self, name: &OsStr) -> io::Result<File> {
        let file = self.open_entry(name, libc::O_RDWR | libc::O_NONBLOCK)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
    }

    fn open_entry(&self, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
        let (name, flags) = (c_string(name)?, flags | libc::O_NOFOLLOW | libc::O_CLOEXEC);
        // SAFETY: an open directory, and a string that ends with a zero.
        let opened = unsafe { libc::openat(self.descriptor(), name.as_ptr(), flags, FILE_MODE) };
        check(opened.min(0))?;
        // SAFETY: a new descriptor without another owner.
        Ok(unsafe { File::from_raw_fd(opened) })
    }

    /// Creates a symbolic link.
    pub fn create_symlink(&self, name: &OsStr, target: &[u8]) -> io::Result<()> {
        let (name, target) = (c_string(name)?, CString::new(target)?);
        // SAFETY: an open directory, and strings that end with a zero.
        check(unsafe { libc::symlinkat(target.as_ptr(), self.descriptor(), name.as_ptr()) })
    }

    /// Creates a device, a pipe or a socket: `mode` has the type.
    pub fn create_special(&self, name: &OsStr, mode: u32, device: u64) -> io::Result<()> {
        let (name, mode) = (c_string(name)?, mode & libc::S_IFMT | FILE_MODE);
        // SAFETY: an open directory, and a string that ends with a zero.
        check(unsafe { libc::mknodat(self.descriptor(), name.as_ptr(), mode, device) })
    }

    /// Gives an entry of the directory `above` another name in this one.
    pub fn create_link(&self, name: &OsStr, above: &Self, target: &OsStr) -> io::Result<()> {
        let (name, target) = (c_string(name)?, c_string(target)?);
        let (from, to) = (above.descriptor(), self.descriptor());
        // SAFETY: open directories, and strings that end with a zero.
        check(unsafe { libc::linkat(from, target.as_ptr(), to, name.as_ptr(), 0) })
    }

    /// Renames an entry of this directory into another one, if the new name is free.
    pub fn move_entry(&self, name: &OsStr, to: &Self, new: &OsStr) -> io::Result<()> {
        let (name, new) = (c_string(name)?, c_string(new)?);
        let (from, to) = (self.descriptor(), to.descriptor());
        // SAFETY: open directories, and strings that end with a zero.
        check(unsafe { libc::renameat2(from, name.as_ptr(), to, new.as_ptr(), libc::RENAME_NOREPLACE) })
    }

    /// Renames an entry of this directory, in place of another one.
    pub fn replace_entry(&self, name: &OsStr, new: &OsStr) -> io::Result<()> {
        let (name, new, at) = (c_string(name)?, c_string(new)?, self.descriptor());
        // SAFETY: an open directory, and strings that end with a zero.
        check(unsafe { libc::renameat(at, name.as_ptr(), at, new.as_ptr()) })
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
        let mut target = vec![0_u8; libc::PATH_MAX as usize];
        let place = target.as_mut_ptr().cast();
        // SAFETY: an empty path names the link itself, and the length is that of `target`.
        let length = unsafe { libc::readlinkat(self.descriptor(), c"".as_ptr(), place, target.len()) };
        if length < 0 {
            return Err(io::Error::last_os_error());
        }
        target.truncate(length as usize);
        Ok(target)
    }
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}
