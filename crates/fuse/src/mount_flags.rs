//! The flags of mount(2) that the kernel leaves to a FUSE file system: they say which changes are durable before they
//! return.

use std::sync::atomic::{AtomicBool, Ordering};

/// The flags of a mount, which a remount changes.
#[derive(Debug, Default)]
pub struct MountFlags {
    is_sync: AtomicBool,
    is_dirsync: AtomicBool,
}

impl MountFlags {
    /// From `MS_...` flags.
    pub fn new(kernel_flags: libc::c_ulong) -> Self {
        let flags = Self::default();
        flags.set(kernel_flags);
        flags
    }

    /// Takes over the flags of a remount.
    pub fn set(&self, kernel_flags: libc::c_ulong) {
        self.is_sync.store(kernel_flags & libc::MS_SYNCHRONOUS != 0, Ordering::Relaxed);
        self.is_dirsync.store(kernel_flags & libc::MS_DIRSYNC != 0, Ordering::Relaxed);
    }

    /// `-o sync`: every change is durable before it returns.
    pub fn is_sync(&self) -> bool {
        self.is_sync.load(Ordering::Relaxed)
    }

    /// `-o dirsync` or `-o sync`: every change of a name is.
    pub fn syncs_names(&self) -> bool {
        self.is_sync() || self.is_dirsync.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sync_covers_names_too_and_dirsync_names_alone() {
        for (flags, is_sync, syncs_names) in [
            (0, false, false),
            (libc::MS_DIRSYNC, false, true),
            (libc::MS_SYNCHRONOUS, true, true),
            (libc::MS_SYNCHRONOUS | libc::MS_DIRSYNC, true, true),
        ] {
            let mount = MountFlags::new(flags);
            assert_eq!((mount.is_sync(), mount.syncs_names()), (is_sync, syncs_names), "{flags:x}");
        }
    }

    #[test]
    fn a_remount_replaces_all_flags() {
        let mount = MountFlags::new(libc::MS_SYNCHRONOUS);
        mount.set(libc::MS_DIRSYNC);
        assert!(!mount.is_sync() && mount.syncs_names());
    }
}
