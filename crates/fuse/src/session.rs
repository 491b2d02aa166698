//! One mount: the kernel's knobs around mount(2), INIT, and its end. Any `Service` answers the requests, the transport
//! delivers them, and `tuning` sets the dirty limit.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use oncefs_transport::{KnobLock, Knobs, Mounted, Notifier, PAGE_LIMIT, Service, Settings, Way};

use crate::tuning::BackingDevice;

/// The type under which a mount appears in `/proc/mounts`; umount(8) finds its helper by it.
pub const MOUNT_TYPE: &str = "fuse.oncefs";

/// A mount that cannot be unmounted as long as this lives.
pub trait HeldMount {
    /// The number of its file system.
    fn device(&self) -> (u32, u32);
}

impl HeldMount for Mounted {
    fn device(&self) -> (u32, u32) {
        self.id().device()
    }
}

/// How a mount is served.
#[derive(Debug)]
pub struct SessionSpec {
    /// The mount point. Absolute.
    pub dir: PathBuf,
    /// How requests come, and the threads and memory for them.
    pub transport: Settings,
    /// Largest WRITE or READ that the kernel may send.
    pub request_bytes_max: u32,
    /// The right to turn the kernel's global knobs. Without it they stay as they are.
    pub knob_lock: Option<KnobLock>,
}

/// A mounted file system whose requests are queued until `run`.
pub struct Session {
    session: oncefs_transport::Session,
    device: Option<BackingDevice>,
}

impl Session {
    /// Mounts by `attach`, and answers INIT.
    ///
    /// # Errors
    /// Mounting failed, or requests cannot come in the requested way. The caller unmounts.
    pub fn mount<M: HeldMount>(
        service: impl Service,
        connection: OwnedFd,
        spec: &SessionSpec,
        attach: impl FnOnce() -> io::Result<M>,
    ) -> io::Result<Self> {
        // The kernel samples the knobs when it reads the reply to INIT, so all knobs go back right after that.
        let _knobs = spec.knob_lock.as_ref().and_then(|lock| turn_knobs(lock, spec));
        let mounted = attach().map_err(|e| why_not_mounted(&e, &spec.dir))?;
        let device = BackingDevice::of(mounted.device())
            .inspect_err(|e| log::warn!("the kernel's limits for {} stay as they are: {e}", spec.dir.display()))
            .ok();
        drop(mounted);
        let session = oncefs_transport::Session::start(connection, service, &spec.transport)?;
        Ok(Self { session, device })
    }

    /// The kernel's knobs for this mount. None: they are not available, and stay as they are.
    pub fn device(&self) -> Option<BackingDevice> {
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
    /// Serving failed while the mount existed.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

/// Turns the global knobs. A knob that cannot be turned stays as it is.
fn turn_knobs<'a>(lock: &'a KnobLock, spec: &SessionSpec) -> Option<Knobs<'a>> {
    let knobs = lock.take().inspect_err(|e| log::warn!("the kernel's knobs for FUSE stay as they are: {e}"));
    let mut knobs = knobs.ok()?;
    if let Err(e) = knobs.raise_page_limit(spec.request_bytes_max) {
        log::warn!("cannot raise {PAGE_LIMIT}: {e}; requests stay smaller than requested");
    }
    knobs.turn_on_rings(spec.transport.transport);
    Some(knobs)
}

fn why_not_mounted(error: &io::Error, dir: &Path) -> io::Error {
    let way_out = match error.raw_os_error() {
        Some(libc::EPERM) => ": mounting needs root (CAP_SYS_ADMIN)",
        Some(libc::ENODEV) => ": this kernel has no FUSE (modprobe fuse)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot mount on {}: {error}{way_out}", dir.display()))
}
