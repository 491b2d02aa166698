//! One mount: `/dev/fuse`, mount(2), INIT and the event loops.
//!
//! Owns the kernel connection from mount(2) to its end. Knows no volume and no policy: what answers the
//! requests is any `fuser::Filesystem`, what the kernel may hold back is `tuning`'s business.
//! mount(2) and the handshake are apart, since who serves a mount need not be who may make it.
//! mount(2) is called here and not by fuser, so that the type is `fuse.oncefs` (umount(8) finds its helper by it),
//! the flags are the ones asked for (relatime, strictatime), and errors name their cause.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fuser::{Config, Filesystem, Notifier, SessionACL};

use crate::tuning::{BackingDevice, PageLimit};

/// The type under which a mount appears in `/proc/mounts`.
pub const MOUNT_TYPE: &str = "fuse.oncefs";

/// Where and how to mount.
#[derive(Clone, Debug)]
pub struct MountSpec {
    /// The volume, shown as the mount's source. Absolute.
    pub volume: PathBuf,
    /// The mount point. Absolute.
    pub dir: PathBuf,
    /// `MS_...` flags of mount(2).
    pub kernel_flags: libc::c_ulong,
}

/// How a mount is served.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// The mount point. Absolute.
    pub dir: PathBuf,
    /// Event loops. Each of them answers one request at a time.
    pub threads: usize,
    /// Largest WRITE or READ that the kernel may send.
    pub request_bytes_max: u32,
}

/// A mounted file system whose requests are queued until `run`.
#[derive(Debug)]
pub struct Session<F: Filesystem> {
    session: fuser::Session<F>,
    device: BackingDevice,
}

impl<F: Filesystem> Session<F> {
    /// Mounts by `attach`, and answers INIT. On an error from then on the caller unmounts.
    pub fn mount(
        filesystem: F,
        connection: OwnedFd,
        spec: &SessionSpec,
        attach: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        // Sampled by the kernel when it reads the reply to INIT, so it goes back right after.
        let _page_limit = PageLimit::raise_for(spec.request_bytes_max);
        attach().map_err(|e| why_not_mounted(&e, &spec.dir))?;
        shake_hands(filesystem, connection, spec)
    }

    /// The kernel's knobs for this mount.
    pub fn device(&self) -> BackingDevice {
        self.device.clone()
    }

    /// Sends notifications (cache invalidation) to the kernel.
    pub fn notifier(&self) -> Notifier {
        self.session.notifier()
    }

    /// Answers requests until the file system is unmounted everywhere, then calls `destroy`.
    pub fn run(self) -> io::Result<()> {
        self.session.run()
    }
}

/// umount2(2) of what is mounted on `dir` itself: a link that somebody put there is not followed.
pub fn unmount(dir: &Path, flags: libc::c_int) -> io::Result<()> {
    let dir = c_string(dir)?;
    // SAFETY: `dir` is a NUL-terminated string that outlives the call.
    check(unsafe { libc::umount2(dir.as_ptr(), flags | libc::UMOUNT_NOFOLLOW) })
}

/// mount(2) with MS_REMOUNT: changes the flags of an existing mount.
pub fn remount(dir: &Path, kernel_flags: libc::c_ulong) -> io::Result<()> {
    let dir = c_string(dir)?;
    let nothing = std::ptr::null();
    // SAFETY: `dir` outlives the call; the kernel ignores source and type and accepts null data on a remount.
    check(unsafe { libc::mount(nothing, dir.as_ptr(), nothing, kernel_flags | libc::MS_REMOUNT, nothing.cast()) })
}

/// Opens `/dev/fuse`: the daemon's end of a mount to come.
pub fn open_device() -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => io::Error::new(
            e.kind(),
            "there is no /dev/fuse: load the kernel module (modprobe fuse), or pass the device to the container",
        ),
        _ => io::Error::new(e.kind(), format!("cannot open /dev/fuse: {e}")),
    })?;
    Ok(device.into())
}

/// mount(2): whoever reads from `connection` serves the mount. Errors are the kernel's own.
pub fn attach(connection: BorrowedFd, spec: &MountSpec) -> io::Result<()> {
    let mode = File::open(&spec.dir)?.metadata()?.mode();
    // The daemon answers for every user; the kernel checks permissions from the attributes it is given.
    let data =
        format!("fd={},rootmode={mode:o},user_id=0,group_id=0,default_permissions,allow_other", connection.as_raw_fd());
    let (source, dir) = (c_string(&spec.volume)?, c_string(&spec.dir)?);
    let (kind, data) = (c_string(Path::new(MOUNT_TYPE))?, c_string(Path::new(&data))?);
    // SAFETY: all four strings are NUL-terminated and outlive the call.
    let done =
        unsafe { libc::mount(source.as_ptr(), dir.as_ptr(), kind.as_ptr(), spec.kernel_flags, data.as_ptr().cast()) };
    check(done)
}

fn why_not_mounted(error: &io::Error, dir: &Path) -> io::Error {
    let way_out = match error.raw_os_error() {
        Some(libc::EPERM) => ": mounting needs root (CAP_SYS_ADMIN)",
        Some(libc::ENODEV) => ": this kernel has no FUSE (modprobe fuse)",
        _ => "",
    };
    io::Error::new(error.kind(), format!("cannot mount on {}: {error}{way_out}", dir.display()))
}

fn shake_hands<F: Filesystem>(filesystem: F, connection: OwnedFd, spec: &SessionSpec) -> io::Result<Session<F>> {
    let mut config = Config::default();
    config.n_threads = Some(spec.threads);
    let session = fuser::Session::from_fd(filesystem, connection, SessionACL::All, config)?;
    Ok(Session { session, device: BackingDevice::of(&spec.dir)? })
}

fn c_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a path must not hold a NUL byte"))
}

fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
