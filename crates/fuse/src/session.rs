//! One mount: the kernel's knobs around mount(2), INIT and its end. What answers the requests is any `Service`; how they
//! come is the transport's business, and what the kernel may hold back is `tuning`'s.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oncefs_transport::{Notifier, PAGE_LIMIT, RingKnob, Service, Settings, Way, raise_page_limit};

use crate::tuning::BackingDevice;

/// The type under which a mount appears in `/proc/mounts`; umount(8) finds its helper by it.
pub const MOUNT_TYPE: &str = "fuse.oncefs";

/// How a mount is served.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The mount point. Absolute.
    pub dir: PathBuf,
    /// How requests come, and what may be spent on it.
    pub transport: Settings,
    /// Largest WRITE or READ that the kernel may send.
    pub request_bytes_max: u32,
}

/// A mounted file system whose requests are queued until `run`.
pub struct Session {
    session: oncefs_transport::Session,
    device: BackingDevice,
}

impl Session {
    /// Mounts by `attach`, and answers INIT.
    ///
    /// # Errors
    /// It cannot be mounted, or requests cannot come as demanded. The caller unmounts.
    pub fn mount(
        service: impl Service,
        connection: OwnedFd,
        spec: &SessionSpec,
        attach: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        // Sampled by the kernel when it reads the reply to INIT, so both go back right after.
        let _page_limit = raise_page_limit(spec.request_bytes_max)
            .inspect_err(|e| log::warn!("cannot raise {PAGE_LIMIT}: {e}; requests stay smaller than requested"));
        let _rings = RingKnob::turn_on(spec.transport.transport);
        attach().map_err(|e| why_not_mounted(&e, &spec.dir))?;
        let session = oncefs_transport::Session::start(connection, service, &spec.transport)?;
        Ok(Self { session, device: BackingDevice::of(&spec.dir)? })
    }

    /// The kernel's knobs for this mount.
    pub fn device(&self) -> BackingDevice {
        self.device.clone()
    }

    /// Sends notifications (cache invalidation) to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

    /// How requests come.
    pub fn way(&self) -> &Way {
        self.session.way()
    }

    /// Answers requests until the file system is unmounted everywhere.
    ///
    /// # Errors
    /// Serving failed while the mount was there.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

fn why_not_mounted(error: &io::Error, dir: &Path) -> io::Error {
    let way_out = match error.raw_os_error() {
        Some(libc::EPERM) => ": mounting needs root (CAP_SYS_ADMIN)",
        Some(libc::ENODEV) => ": this kernel has no FUSE (modprobe fuse)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot mount on {}: {error}{way_out}", dir.display()))
}
