//! What the daemon and the commands ask of their own process: limits, signals, descriptors, memory.

use std::backtrace::Backtrace;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// prctl(2): this process writes back dirty memory, so its own allocations must not wait for writeback.
const PR_SET_IO_FLUSHER: libc::c_int = 57;

/// The daemon goes after nearly everything else: without it no dirty page can be written.
const OOM_SCORE_ADJ: &str = "-900";

/// Open files wanted: RocksDB's tables, the data area, one descriptor per command.
const OPEN_FILES_WANTED: libc::rlim_t = 65536;

/// A command whose output nobody reads any more (`oncefs stats | head`) ends like any other Unix command.
pub fn end_on_closed_pipe() {
    // SAFETY: SIG_DFL is a valid disposition.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Everything in a volume is root's alone.
pub fn make_private_files() {
    // SAFETY: umask only sets a number.
    unsafe { libc::umask(0o077) };
}

/// Closes what the process was started with beside stdin, stdout and stderr: a lock file that a script holds open must
/// not stay locked for as long as the volume is mounted. To be called before anything is opened.
pub fn close_inherited() {
    // SAFETY: nothing in this process has opened a descriptor above these three.
    unsafe { libc::close_range(libc::STDERR_FILENO as libc::c_uint + 1, libc::c_uint::MAX, 0) };
}

/// The process's name in `ps` and in the kernel's messages; 15 bytes of it are kept.
pub fn set_name(name: &CStr) {
    // SAFETY: the name ends with NUL and is copied.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// Local times are asked for when the zone's file is out of reach.
fn read_time_zone() {
    // SAFETY: no other thread exists that could change the environment.
    unsafe { tzset() };
}

unsafe extern "C" {
    /// POSIX; the crate libc leaves it out for Linux.
    fn tzset();
}

/// Prepares the daemon's process, before any thread exists: threads inherit all of it.
pub fn prepare() {
    make_private_files();
    set_name(c"oncefs");
    // A working directory would be in use for as long as the volume is mounted. All paths are absolute.
    warn_if("leave the working directory", std::env::set_current_dir("/"));
    keep_from_dumps();
    // A log that nobody reads any more must not end the daemon, nor a limit on the size of files: both are errors of
    // the write, which is told to who asked for it.
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

/// The C library's arenas: each one keeps what its threads freed, 10 MB and more, and there may be eight for every CPU.
/// So there is one for this much of the daemon's memory.
const MEMORY_BYTES_PER_ARENA: u64 = 64 << 20;

/// A daemon with less memory than this gives up speed for it.
const SMALL_MEMORY_BYTES: u64 = 128 << 20;

/// The C library's own first values. Set by hand they stay; else they rise with every large buffer that is freed,
/// and what is freed below them is kept.
const KEPT_BYTES_MAX: libc::c_int = 128 << 10;

/// Keeps what the C library holds on to of freed memory in proportion to the daemon's. Before any thread exists.
pub fn bound_allocator(memory_bytes_max: u64) {
    let mut bounds = vec![(libc::M_ARENA_MAX, arenas_max(memory_bytes_max))];
    if memory_bytes_max < SMALL_MEMORY_BYTES {
        bounds.extend([(libc::M_TRIM_THRESHOLD, KEPT_BYTES_MAX), (libc::M_MMAP_THRESHOLD, KEPT_BYTES_MAX)]);
    }
    for (name, value) in bounds {
        // SAFETY: mallopt takes two integers.
        if unsafe { libc::mallopt(name, value) } == 0 {
            log::warn!("cannot bound the allocator: parameter {name} is not {value}");
        }
    }
}

fn arenas_max(memory_bytes_max: u64) -> libc::c_int {
    (memory_bytes_max / MEMORY_BYTES_PER_ARENA).clamp(1, 1024) as libc::c_int
}

fn warn_if(doing: &str, result: io::Result<()>) {
    if let Err(e) = result {
        log::warn!("cannot {doing}: {e}");
    }
}

/// The volume's key and everybody's data are in memory: no core file, and only root's debuggers get at it.
pub fn keep_from_dumps() {
    // SAFETY: prctl with integer arguments.
    let forbidden = check(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) });
    warn_if("keep what is in memory out of core dumps", forbidden);
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

/// A panic in any thread ends the process: a clean mount error is better than a daemon that answers by half.
fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        log::error!("this is a bug in oncefs, please report it: {panic}; {}", Backtrace::force_capture());
        std::process::abort();
    }));
}

/// The signals that ask the daemon to end.
const END_SIGNALS: [libc::c_int; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// The signals that ask the daemon to end, kept back from all threads that are started after this.
pub struct EndSignals {
    set: libc::sigset_t,
}

impl EndSignals {
    /// Blocks them in this thread and its children.
    pub fn block() -> Self {
        // SAFETY: a signal set is plain data; the calls fill and read it.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in END_SIGNALS {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Self { set }
        }
    }

    /// Waits for one of them, at most for `timeout`. Its name, if one came.
    pub fn wait(&self, timeout: Option<Duration>) -> Option<&'static str> {
        loop {
            let signal = match timeout {
                Some(timeout) => self.wait_for(timeout),
                // SAFETY: the set is initialised; null asks for no details.
                None => unsafe { libc::sigwaitinfo(&self.set, std::ptr::null_mut()) },
            };
            match signal {
                libc::SIGTERM => return Some("SIGTERM"),
                libc::SIGINT => return Some("SIGINT"),
                libc::SIGHUP => return Some("SIGHUP"),
                _ if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) => {
                    return None;
                }
                _ => {}
            }
        }
    }

    fn wait_for(&self, timeout: Duration) -> libc::c_int {
        let timeout =
            libc::timespec { tv_sec: timeout.as_secs() as libc::time_t, tv_nsec: timeout.subsec_nanos().into() };
        // SAFETY: set and timeout outlive the call; null asks for no details.
        unsafe { libc::sigtimedwait(&self.set, std::ptr::null_mut(), &timeout) }
    }
}

/// Whether this process may mount.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// RAM that this process may use: the machine's, or less in a container.
pub fn ram_bytes() -> u64 {
    // SAFETY: sysconf takes and returns integers.
    let (pages, page_bytes) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let machine = u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0));
    cgroup_limit().map_or(machine, |limit| limit.min(machine))
}

/// The memory limit of this process's own cgroup, version 2 or 1.
fn cgroup_limit() -> Option<u64> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|c| c == "memory") => ("/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            _ => return None,
        };
        let limit = Path::new(root).join(path.trim_start_matches('/')).join(file);
        std::fs::read_to_string(limit).ok()?.trim().parse().ok()
    });
    limits.min()
}

/// Everything written through the file system at `dir` reaches its daemon.
pub fn sync_file_system(dir: &Path) -> io::Result<()> {
    let dir = std::fs::File::open(dir)?;
    // SAFETY: syncfs on a descriptor that is open.
    check(unsafe { libc::syncfs(dir.as_raw_fd()) })
}

/// Waits until a descriptor is readable; without a timeout for ever. Whether it is.
pub fn await_readable(fd: BorrowedFd, timeout: Option<Duration>) -> bool {
    let millis = timeout.map_or(-1, |t| t.as_millis().min(i32::MAX as u128) as libc::c_int);
    let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one pollfd that outlives the call.
        match unsafe { libc::poll(&mut poll, 1, millis) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            ready => return ready > 0,
        }
    }
}

/// Starts a session of its own, so that the terminal's end is not the daemon's.
pub fn leave_terminal() -> io::Result<()> {
    // SAFETY: setsid has no arguments.
    if unsafe { libc::setsid() } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts `/dev/null` in the place of stdin, stdout and stderr.
pub fn detach_stdio() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    for standard in 0..=2 {
        // SAFETY: dup2 between descriptors that are open; the standard ones are nobody's property.
        if unsafe { libc::dup2(null.as_raw_fd(), standard) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
