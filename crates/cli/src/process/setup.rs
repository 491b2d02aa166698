//! Prepares the process of the daemon or a command: limits, signals, descriptors, memory.

use std::backtrace::Backtrace;
use std::ffi::CStr;
use std::io;

/// prctl(2): this process writes back dirty memory, so its own allocations must not wait for writeback.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// The OOM killer takes the daemon after nearly everything else, because no dirty page can be written without it.
const OOM_SCORE_ADJ: &str = "-900";

/// Wanted limit of open files: RocksDB's tables, the data area, one descriptor per command.
const OPEN_FILES_WANTED: libc::rlim_t = 65536;

/// Makes new files private: only root may read the files of a volume.
pub fn make_private_files() {
    // SAFETY: umask only sets a number.
    unsafe { libc::umask(0o077) };
}

/// Sets the process's name in `ps` and in the kernel's messages. The kernel keeps 15 bytes.
pub fn set_name(name: &CStr) {
    // SAFETY: the name ends with NUL and is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Reads the time zone now, because its file is out of reach when local times are needed.
fn read_time_zone() {
    // SAFETY: no other thread exists that could change the environment.
    unsafe { tzset() };
}

unsafe extern "C" {
    /// A POSIX function that the crate libc does not declare for Linux.
    fn tzset();
}

/// Prepares the daemon's process before any thread exists, because threads inherit these settings.
pub fn prepare() {
    make_private_files();
    set_name(c"oncefs");
    // The working directory would stay in use for as long as the volume is mounted. All paths are absolute.
    warn_if("leave the working directory", std::env::set_current_dir("/"));
    keep_from_dumps();
    // A closed log pipe or a limit on file sizes must not end the daemon. Both become errors of the write, which its
    // caller gets.
    for signal in [libc::SIGPIPE, libc::SIGXFSZ] {
        // SAFETY: SIG_IGN is a valid disposition.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    warn_if("mark the daemon as an I/O flusher", set_io_flusher());
    warn_if("lower the daemon's OOM score", std::fs::write("/proc/self/oom_score_adj", OOM_SCORE_ADJ));
    warn_if("raise the limit of open files", raise_open_files());
    read_time_zone();
    abort_on_panic();
}

fn warn_if(doing: &str, result: io::Result<()>) {
    if let Err(e) = result {
        log::warn!("cannot {doing}: {e}");
    }
}

/// Forbids core files, and debuggers except root's: the volume's key and the data of all users are in memory.
pub fn keep_from_dumps() {
    // SAFETY: prctl with integer arguments.
    let forbidden = check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) });
    warn_if("keep memory out of core dumps", forbidden);
}

fn set_io_flusher() -> io::Result<()> {
    // SAFETY: prctl with integer arguments.
    check(unsafe { libc::prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0) })
}

fn raise_open_files() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is writable and outlives the call.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) })?;
    if limit.rlim_cur >= OPEN_FILES_WANTED {
        return Ok(());
    }
    limit.rlim_cur = OPEN_FILES_WANTED.min(limit.rlim_max);
    // SAFETY: `limit` outlives the call.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) })
}

/// A panic in any thread ends the process: a clean mount error is better than a daemon that half works.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        log::error!("this is a bug in oncefs; please report it: {panic}; {}", Backtrace::force_capture());
        std::process::abort();
    }));
}

/// Whether this process may mount.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Starts a new session, so that the daemon does not end with the terminal.
pub fn leave_terminal() -> io::Result<()> {
    // SAFETY: setsid has no arguments.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
