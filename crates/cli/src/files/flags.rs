//! Flags of files and directories, as chattr(1) sets them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use oncefs_stream::Flags;

use super::held::Held;
use crate::process::setup::check;

/// The flags of a file or directory that a stream carries.
pub fn of(file: &File) -> io::Result<Flags> {
    bits_of(file).map(Flags::carried)
}

fn bits_of(file: &File) -> io::Result<u32> {
    let mut bits: libc::c_int = 0;
    // SAFETY: the kernel writes one number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_GETFLAGS, &raw mut bits) })?;
    Ok(bits as u32)
}

/// Sets all flags of a file or directory that a stream carries. Others stay: that for compression is an attribute too.
pub fn set(held: &Held, flags: Flags) -> io::Result<()> {
    let file = held.open_unnoticed()?;
    let before = bits_of(&file)?;
    let bits = (before & !Flags::carried(before).bits() | flags.bits()) as libc::c_int;
    // SAFETY: the kernel reads one number.
    check(unsafe { libc::ioctl(file.as_raw_fd(), libc::FS_IOC_SETFLAGS, &raw const bits) })
}
