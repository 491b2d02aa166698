//! Ends a connection at once, as `/sys/fs/fuse/connections/N/abort` does: every request that waits fails, and so does
//! every later one. The mount stays in place, so that programs do not write to the directory below it.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen};

use crate::mount::open_own;
use crate::mount_id::MountId;

/// Aborts the connection of one mount and of no other, even if that mount was moved.
#[derive(Debug)]
pub struct AbortSwitch {
    /// The kernel's switch file, which belongs to the connection and not to its number.
    switch: io::Result<OwnedFd>,
    dir: PathBuf,
    own: MountId,
}

impl AbortSwitch {
    /// The switch of a mount on `dir`. The caller holds the mount meanwhile. Needs CAP_SYS_ADMIN, here and later.
    pub fn of(dir: &Path, own: MountId) -> Self {
        Self { switch: open_switch(own), dir: dir.to_owned(), own }
    }

    /// Aborts. Sends no request and waits for none. Does nothing if the connection is gone.
    ///
    /// # Errors
    /// The kernel's errors: its switch could not be opened, and the mount is no longer at its place.
    pub fn abort(&self) -> io::Result<()> {
        match &self.switch {
            Ok(switch) => rustix::io::write(switch, b"1").map(drop)?,
            Err(_) => self.force()?,
        }
        Ok(())
    }

    /// Aborts by umount2(2), which ends the connection before it finds that the mount is in use. It is in use because
    /// its root is open here.
    fn force(&self) -> io::Result<()> {
        let root = open_own(&self.dir, self.own)?;
        match rustix::mount::unmount(format!("/proc/self/fd/{}", root.as_raw_fd()), UnmountFlags::FORCE) {
            Err(rustix::io::Errno::BUSY) => Ok(()),
            other => Ok(other?),
        }
    }
}

/// Opens the switch in a private mount of fusectl, so fusectl need not be mounted anywhere.
fn open_switch(own: MountId) -> io::Result<OwnedFd> {
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let switches = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let (_, number) = own.device();
    Ok(openat(&switches, format!("{number}/abort"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_is_no_fuse_mount_and_not_ours_is_left_alone() {
        let root = MountId::of(File::open("/").unwrap().as_fd()).unwrap();
        let switch = AbortSwitch { switch: Err(io::ErrorKind::NotFound.into()), dir: "/proc".into(), own: root };
        assert_eq!(switch.abort().unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(Path::new("/proc/self").exists());
    }
}
