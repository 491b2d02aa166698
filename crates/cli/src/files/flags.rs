//! Flags of files and directories, as chattr(1) sets them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use oncefs_stream::Flags;

use super::held::Held;
use crate::process::setup::check;

/// The flags of a file or directory that a stream carries.
pub fn of(file: &File) -> io::Result<Flags> {
    let mut bits: libc::c_int = 0;
    // SAFETY: the kernel writes one number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut bits) })?;
    Ok(Flags::carried(bits as u32))
}

/// Sets all flags of a file or directory.
pub fn set(held: &Held, flags: Flags) -> io::Result<()> {
    let file = held.open_unnoticed()?;
    let bits = flags.bits() as libc::c_int;
    // SAFETY: the kernel reads one number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const bits) })
}
