//! The interface to a kind of block device that shows disks.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::folder::Disk;

/// The access that a device gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read and write.
    ReadWrite,
    /// Read only.
    ReadOnly,
}

/// A way to show disks as block devices. Errors are one line for the user.
pub trait Front {
    /// Shows a disk. Returns the device.
    fn attach(&self, disk: &Disk, access: Access) -> Result<PathBuf, String>;
    /// As `attach`, for reading and writing, with at most `requests_max` requests under way.
    fn attach_bounded(&self, disk: &Disk, requests_max: usize) -> Result<PathBuf, String>;
    /// The device that shows a disk, if any.
    fn device_of(&self, disk: &Disk) -> Result<Option<PathBuf>, String>;
    /// Ends the device of a disk if no program uses it, once everything written to it has reached the disk.
    fn detach(&self, disk: &Disk, device: &Path) -> Result<(), String>;
    /// Lets a device end by itself with its last user, which it has already.
    fn end_with_last_user(&self, device: &Path) -> Result<(), String>;
    /// The command with which a user lets a device end whose daemon is dead.
    fn ended_by_hand(&self, device: &Path) -> String;
    /// Whether what is written to a device is in its disk at once, past the kernel's cache of the disk.
    fn is_direct(&self, device: &Path) -> bool;
    /// Gives a device the size that its disk has now.
    fn resized(&self, device: &Path) -> Result<(), String>;
}

/// Claims a device, so that nothing can mount it.
pub(super) fn hold(device: &Path) -> Result<File, String> {
    File::options().read(true).custom_flags(libc::O_EXCL).open(device).map_err(|e| match e.kind() {
        io::ErrorKind::ResourceBusy => "it is in use: unmount it first".to_owned(),
        _ => e.to_string(),
    })
}

/// Keeps other commands from attaching, resizing or removing the disk until `disk` is closed.
pub fn lock(disk: &Disk) -> io::Result<bool> {
    // SAFETY: an open descriptor.
    match unsafe { libc::flock(disk.file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
            e => Err(e),
        },
    }
}
