//! Shows the code that one request executes: prints the addresses of all executed basic blocks of our crates, for
//! `scripts/files-touched`.
//!
//!     touched write|read
//!
//! `write` is one WRITE of 4 KiB of new content over an old block and its FSYNC. `read` is one READ of 4 KiB on a
//! volume that was just opened. The volume is on disk with the default profile, the file is known, and the volume's
//! threads are idle. The requests come over a socket instead of `/dev/fuse`, so that there are no others and root is
//! not needed. They pass all our code from the adapter down.
//!
//! The compiler puts a call before every basic block of our crates (`scripts/instrument-calls`). Only the threads that
//! serve the request count: the thread that reads, readers that help it, and for `write` the committer.

#![allow(clippy::unwrap_used, reason = "a measurement ends by panicking")]

use std::cell::Cell;
use std::fs;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize};
use std::thread;
use std::time::Duration;

use oncefs_engine::{BLOCK_BYTES, DataPlace, Profile, Store, VolumeSpec};
use oncefs_fs::{AtimePolicy, Caller, FileSystem, Ino, Options, SystemClock, WriteOrigin};
use oncefs_fuse::{Adapter, AdapterConfig, HeldMount, Session, SessionSpec, Settings, Transport};

const BLOCK: usize = BLOCK_BYTES;
const FILE_BLOCKS: u64 = 1024;
/// An offset within the file.
const PLACE: u64 = 700 * BLOCK as u64;
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// After this the threads of a volume wait for work.
const QUIET: Duration = Duration::from_secs(3);
/// The threads that serve a request.
const SERVING: [&str; 2] = ["fuse-0", "oncefs-read"];
/// The thread that makes it durable.
const COMMITTER: &str = "oncefs-commit";
/// Operations of the kernel's protocol.
const READ: u32 = 15;
const WRITE: u32 = 16;
const FSYNC: u32 = 20;
const INIT: u32 = 26;
/// Of a request.
const HEADER_BYTES: u32 = 40;
/// More basic blocks than our crates have.
const BLOCKS_MAX: usize = 1 << 20;

static IS_RECORDING: AtomicBool = AtomicBool::new(false);
/// Whether the committer counts. It looks at its clock now and then while it has nothing to do.
static COMMITS: AtomicBool = AtomicBool::new(false);
static GUARDS: AtomicPtr<u32> = AtomicPtr::new(std::ptr::null_mut());
/// Pairs of an address and flags, one for each guard.
static ADDRESSES: AtomicPtr<[usize; 2]> = AtomicPtr::new(std::ptr::null_mut());
static COUNT: AtomicUsize = AtomicUsize::new(0);
static REACHED: [AtomicU8; BLOCKS_MAX] = [const { AtomicU8::new(0) }; BLOCKS_MAX];

thread_local! {
    static SERVES: Cell<Option<bool>> = const { Cell::new(None) };
}

/// Called by the compiler's code before `main`.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_guard_init(start: *mut u32, stop: *mut u32) {
    let count = (stop as usize - start as usize) / size_of::<u32>();
    assert!(count <= BLOCKS_MAX, "{count} basic blocks");
    GUARDS.store(start, Relaxed);
    COUNT.store(count, Relaxed);
}

/// Called by the compiler's code before `main`.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_pcs_init(start: *mut [usize; 2], _stop: *mut [usize; 2]) {
    ADDRESSES.store(start, Relaxed);
}

/// Called before every basic block.
#[unsafe(no_mangle)]
extern "C" fn __sanitizer_cov_trace_pc_guard(guard: *mut u32) {
    if IS_RECORDING.load(Relaxed) && serves() {
        let number = (guard as usize - GUARDS.load(Relaxed) as usize) / size_of::<u32>();
        REACHED[number].store(1, Relaxed);
    }
}

/// Whether this thread serves requests.
fn serves() -> bool {
    let known = |serves: &Cell<Option<bool>>| {
        serves.get().unwrap_or_else(|| {
            let is_one = thread::current()
                .name()
                .is_some_and(|name| SERVING.contains(&name) || name == COMMITTER && COMMITS.load(Relaxed));
            serves.set(Some(is_one));
            is_one
        })
    };
    // A thread that ends has no such variable any more.
    SERVES.try_with(known).unwrap_or(false)
}

/// Runs `work`, and returns the addresses of the blocks that were reached meanwhile.
fn record(work: impl FnOnce()) -> Vec<usize> {
    IS_RECORDING.store(true, Relaxed);
    work();
    IS_RECORDING.store(false, Relaxed);
    let count = COUNT.load(Relaxed);
    assert!(count > 0, "built without instrumentation: scripts/files-touched builds it");
    let reached = (0..count).filter(|number| REACHED[*number].load(Relaxed) != 0);
    // SAFETY: the table has an entry for each guard, and is never changed.
    let address = |number: usize| unsafe { (*ADDRESSES.load(Relaxed).add(number))[0] };
    let base = load_address();
    reached.map(|number| address(number) - base).collect()
}

/// Where the program was loaded.
fn load_address() -> usize {
    let program = std::env::current_exe().unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let first = maps.lines().find(|line| line.ends_with(program.to_str().unwrap())).unwrap();
    usize::from_str_radix(first.split('-').next().unwrap(), 16).unwrap()
}

/// A mount that does not exist, with a number that no device has.
struct NoMount;

impl HeldMount for NoMount {
    fn device(&self) -> (u32, u32) {
        (0, u32::MAX)
    }
}

/// The kernel's end of the connection.
struct Kernel(fs::File);

impl Kernel {
    /// Serves a file system, and returns its kernel.
    fn serving(file_system: &Arc<FileSystem>, dir: &Path) -> Self {
        let (ours, theirs) = connection();
        let mut kernel = Self(fs::File::from(ours));
        let config = AdapterConfig {
            request_bytes_max: REQUEST_BYTES_MAX,
            gauge: Arc::default(),
            flags: Arc::default(),
            patience: Arc::default(),
        };
        let adapter = Adapter::new(file_system.clone(), config);
        let transport = Settings { transport: Transport::Classic, threads: 1, ring_bytes_max: 0 };
        let spec =
            SessionSpec { dir: dir.to_owned(), transport, request_bytes_max: REQUEST_BYTES_MAX, knob_lock: None };
        let attach = || kernel.send(INIT, Ino::ROOT, &init()).map(|()| NoMount);
        let session = Session::mount(adapter, theirs, &spec, attach).unwrap();
        assert!(kernel.answer().len() > 8, "the answer to INIT");
        thread::spawn(move || session.run());
        kernel
    }

    /// Sends a request: the kernel's header and the operation's body.
    fn send(&mut self, operation: u32, ino: Ino, body: &[u8]) -> std::io::Result<()> {
        let mut request = Vec::new();
        request.extend((HEADER_BYTES + body.len() as u32).to_le_bytes());
        request.extend(operation.to_le_bytes());
        request.extend(1_u64.to_le_bytes());
        request.extend(ino.0.to_le_bytes());
        // User, group, process, and no extensions.
        request.extend([0; 16]);
        request.extend(body);
        self.0.write_all(&request)
    }

    /// The body of an answer.
    fn answer(&mut self) -> Vec<u8> {
        let mut answer = vec![0; 64 << 10];
        let len = self.0.read(&mut answer).unwrap();
        assert_eq!(answer[4..8], [0; 4], "errno of the answer");
        answer[16..len].to_vec()
    }

    fn request(&mut self, operation: u32, ino: Ino, body: &[u8]) -> Vec<u8> {
        self.send(operation, ino, body).unwrap();
        self.answer()
    }
}

/// Both ends of a connection that keeps requests apart, as `/dev/fuse` does.
fn connection() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, ends.as_mut_ptr()) };
    assert_eq!(made, 0, "socketpair: {}", std::io::Error::last_os_error());
    // SAFETY: both descriptors are new and have no other owner.
    unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) }
}

/// `struct fuse_init_in`: a kernel of version 7.40 with all flags.
fn init() -> Vec<u8> {
    let words = [7_u32, 40, 1 << 17, !0, !0];
    words.into_iter().chain([0; 11]).flat_map(u32::to_le_bytes).collect()
}

/// `struct fuse_write_in` and `struct fuse_read_in` are alike: handle, place, size, flags, lock owner, flags.
fn transfer(at: u64) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(0_u64.to_le_bytes());
    body.extend(at.to_le_bytes());
    body.extend((BLOCK as u32).to_le_bytes());
    body.extend([0; 20]);
    body
}

fn write(kernel: &mut Kernel, ino: Ino) {
    let body = [&transfer(PLACE)[..], &content(1 << 20)].concat();
    assert_eq!(kernel.request(WRITE, ino, &body)[..4], (BLOCK as u32).to_le_bytes());
    kernel.request(FSYNC, ino, &[0; 16]);
}

fn read(kernel: &mut Kernel, ino: Ino) {
    assert!(kernel.request(READ, ino, &transfer(PLACE)) == content(700), "what was written there");
}

/// Content that no other block has.
fn content(number: u64) -> Vec<u8> {
    let word = |at: u64| (number << 32 | at).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (0..BLOCK as u64 / 8).flat_map(word).collect()
}

fn open(volume: &Path) -> Arc<FileSystem> {
    let store = Store::open(volume, &oncefs_engine::OpenOptions::new(64 << 20)).unwrap();
    let options =
        Options { memory_bytes_max: 1 << 20, atime: AtimePolicy::Relative, read_only: false, generation: None };
    FileSystem::open(store, Arc::new(SystemClock), &options).unwrap()
}

/// Makes a volume with one file.
fn prepare(volume: &Path) {
    let (data_bytes, log_bytes) = (Some(1 << 30), 64 << 20);
    let spec = VolumeSpec { data_bytes, data: DataPlace::File, profile: Profile::Desktop, log_bytes, copies: None };
    Store::format(volume, &spec, [7; 64]).unwrap();
    let store = Store::open(volume, &oncefs_engine::OpenOptions::new(64 << 20)).unwrap();
    FileSystem::format(&store, &SystemClock).unwrap();
    store.close().unwrap();
    drop(store);
    let file_system = open(volume);
    let root = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
    let ino = file_system.mknod(Ino::ROOT, b"file", libc::S_IFREG | 0o644, 0, &root).unwrap().ino;
    for number in 0..FILE_BLOCKS {
        let origin = WriteOrigin::PageCache;
        file_system.write(ino, number * BLOCK as u64, &content(number), origin).unwrap();
    }
    // The first read sets the time of last access, and no other does for a day.
    file_system.read(ino, 0, BLOCK, true).unwrap();
    // Ends with a checkpoint.
    file_system.close().unwrap();
}

fn main() {
    let (work, commits): (fn(&mut Kernel, Ino), bool) = match std::env::args().nth(1).as_deref() {
        Some("write") => (write, true),
        Some("read") => (read, false),
        _ => panic!("usage: touched write|read"),
    };
    let place = tempfile::tempdir().unwrap();
    let volume = place.path().join("volume");
    prepare(&volume);
    let file_system = open(&volume);
    let mut kernel = Kernel::serving(&file_system, place.path());
    let ino = file_system.lookup(Ino::ROOT, b"file").unwrap().ino;
    COMMITS.store(commits, Relaxed);
    thread::sleep(QUIET);
    for address in record(|| work(&mut kernel, ino)) {
        println!("{address:#x}");
    }
}
