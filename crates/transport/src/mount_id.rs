//! The identity of a mount, which distinguishes it from the directory below it and from a later mount.

use std::io;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Statx, StatxFlags, statx};

/// `STATX_MNT_ID_UNIQUE` (Linux 6.8): a number that no other mount gets until the next boot.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// One mount of one file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountId {
    /// Before Linux 6.8 a later mount may get the same number. Before 5.8 it is 0.
    number: u64,
    device: (u32, u32),
}

impl MountId {
    /// The mount that a descriptor leads to. Sends no request to the daemon.
    ///
    /// # Errors
    /// The kernel's errors.
    pub fn of(file: BorrowedFd<'_>) -> io::Result<Self> {
        let ask = |wanted| statx(file, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, wanted);
        let is_told = |found: &Statx, wanted: StatxFlags| found.stx_mask & wanted.bits() != 0;
        let mut found = ask(UNIQUE)?;
        if !is_told(&found, UNIQUE) {
            found = ask(StatxFlags::MNT_ID)?;
        }
        let number = if is_told(&found, UNIQUE | StatxFlags::MNT_ID) { found.stx_mnt_id } else { 0 };
        Ok(Self { number, device: (found.stx_dev_major, found.stx_dev_minor) })
    }

    /// The number of the file system, as in `/sys/class/bdi` and `/proc/self/mountinfo`. Another file system may get it
    /// as soon as this one is gone.
    pub fn device(self) -> (u32, u32) {
        self.device
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn mounts_are_told_apart_and_have_the_device_that_the_table_says() {
        let of = |path: &str| MountId::of(File::open(path).unwrap().as_fd()).unwrap();
        assert_eq!(of("/proc"), of("/proc/self"));
        assert_ne!(of("/proc"), of("/"));
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(4) == Some("/proc")).unwrap();
        let (major, minor) = of("/proc").device();
        assert_eq!(line.split(' ').nth(2).unwrap(), format!("{major}:{minor}"));
    }
}
