//! Requests that nobody will answer any more, while a thread of the daemon itself waits in the kernel for one of them: no
//! signal ends that thread, and as long as it lives the connection is open. The daemon and every call end all the same.
//!
//! The only thread that reads requests is traced, so that it is known which of them it has read.

#![cfg(target_arch = "x86_64")]

use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::thread::JoinHandle;

use oncefs_system_tests::{Mount, eventually, refused_by_the_dead, sys, test_dir};

const PAGE_BYTES: u64 = 4096;
/// FUSE_LSEEK.
const LSEEK: i64 = 46;
/// Where a message has its operation.
const OPERATION_AT: u64 = 4;

/// A mount whose only reader is stopped before it reads the next request, while the daemon's own thread waits for the
/// answer to that.
struct Stuck {
    reader: Traced,
    mount: Mount,
    caller: JoinHandle<io::Result<u64>>,
    _page: sys::Mapping,
}

impl Stuck {
    fn new() -> Self {
        let mount = Mount::on(&test_dir(), "256M", &["transport=classic", "threads=1"]);
        let file = File::options().read(true).write(true).create_new(true).open(mount.join("file")).unwrap();
        file.set_len(PAGE_BYTES).unwrap();
        file.sync_all().unwrap();
        let mut page = sys::Mapping::new(&file, PAGE_BYTES as usize, libc::MAP_SHARED | libc::MAP_LOCKED).unwrap();
        assert_eq!(page.bytes()[0], 0, "the kernel has the page, and keeps it");
        let reader = Traced::stop(thread_of(mount.pid(), "fuse-0").expect("the reader"));
        let caller = std::thread::spawn(move || sys::seek(&file, 0, libc::SEEK_HOLE));
        reader.read(LSEEK);
        // From here on nobody takes the page from the kernel, even if it begins to write it back by itself.
        page.bytes()[0] = 1;
        reader.finish();
        let cache = thread_of(mount.pid(), "kernel-cache").expect("the thread that writes pages back");
        eventually("the daemon waits in the kernel", || state_of(mount.pid(), cache) == Some('D'));
        Self { mount, reader, caller, _page: page }
    }

    /// Whoever called, and who calls now, learns that nobody answers.
    fn all_calls_fail(mut self) {
        let error = self.caller.join().unwrap().unwrap_err();
        assert!(matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error}");
        refused_by_the_dead(|| fs::metadata(self.mount.join("never-looked-up")));
        self.mount.mount();
        self.mount.check();
    }
}

#[test]
fn a_daemon_that_can_read_no_requests_ends_the_mount_and_itself_and_says_why() {
    let mut stuck = Stuck::new();
    stuck.reader.fail(libc::EIO);
    let status = stuck.mount.ended();
    assert!(status.code().is_some_and(|code| code != 0), "{status}");
    let said = stuck.mount.said();
    assert!(said.contains("requests can be answered no more (Input/output error"), "{said}");
    assert!(said.contains(" ended unexpectedly (mount it again): Input/output error"), "{said}");
    stuck.all_calls_fail();
}

#[test]
fn a_killed_daemon_ends_although_one_of_its_threads_waits_for_a_lost_request() {
    let mut stuck = Stuck::new();
    // SAFETY: plain numbers; the child is not reaped before it has ended.
    unsafe { libc::kill(stuck.mount.pid(), libc::SIGKILL) };
    stuck.reader.reap();
    assert_eq!(stuck.mount.ended().code(), None, "it was killed");
    stuck.all_calls_fail();
}

/// A thread of a process by its name.
fn thread_of(pid: i32, name: &str) -> Option<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|entry| entry.unwrap().path());
    let is_it = |path: &PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name);
    threads.filter(is_it).find_map(|path| path.file_name()?.to_str()?.parse().ok())
}

/// The letter of a thread's state.
fn state_of(pid: i32, thread: i32) -> Option<char> {
    let line = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).ok()?;
    line.rsplit(") ").next()?.chars().next()
}

/// A stopped thread of the daemon. Only the thread that stopped it may use this.
struct Traced(i32);

/// A test that failed lets it go, so that its process can end.
impl Drop for Traced {
    fn drop(&mut self) {
        // SAFETY: takes numbers only. Fails where the thread has ended or was let go.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

impl Traced {
    fn stop(thread: i32) -> Self {
        let traced = Self(thread);
        traced.ask(libc::PTRACE_SEIZE, libc::PTRACE_O_TRACESYSGOOD as usize);
        traced.ask(libc::PTRACE_INTERRUPT, 0);
        traced.wait();
        traced
    }

    /// Lets it work until it has read this request, and no further.
    fn read(&self, operation: i64) {
        loop {
            let (is_entry, registers) = self.next_read();
            if !is_entry && self.word(registers.rsi + OPERATION_AT) & 0xffff_ffff == operation {
                return;
            }
        }
    }

    /// Lets it work on what it has read until it is about to read the next request.
    fn finish(&self) {
        while !self.next_read().0 {}
    }

    /// Lets it run to the beginning or the end of a read of a request.
    fn next_read(&self) -> (bool, libc::user_regs_struct) {
        loop {
            let (is_entry, registers) = self.next_call();
            if registers.orig_rax == libc::SYS_read as u64 && self.is_fuse(registers.rdi) {
                return (is_entry, registers);
            }
        }
    }

    /// Fails the system call that it is about to make, and lets it go.
    fn fail(&self, errno: i32) {
        let mut registers = self.registers();
        registers.orig_rax = u64::MAX;
        self.set(&registers);
        // The end of the call, which is none now.
        let (_, mut registers) = self.next_call();
        registers.rax = i64::from(-errno).cast_unsigned();
        self.set(&registers);
        self.ask(libc::PTRACE_DETACH, 0);
    }

    /// Waits for its end. Its process has not ended before that.
    fn reap(&self) {
        while !libc::WIFSIGNALED(self.wait()) {}
    }

    /// Lets it run to the beginning or the end of a system call.
    fn next_call(&self) -> (bool, libc::user_regs_struct) {
        loop {
            self.ask(libc::PTRACE_SYSCALL, 0);
            let status = self.wait();
            assert!(libc::WIFSTOPPED(status), "the reader ended: {status:#x}");
            if libc::WSTOPSIG(status) == libc::SIGTRAP | 0x80 {
                let registers = self.registers();
                // What the kernel returns from a call that has only begun.
                return (registers.rax == i64::from(-libc::ENOSYS).cast_unsigned(), registers);
            }
        }
    }

    fn is_fuse(&self, descriptor: u64) -> bool {
        fs::read_link(format!("/proc/{}/fd/{descriptor}", self.0)).is_ok_and(|path| path.ends_with("fuse"))
    }

    fn registers(&self) -> libc::user_regs_struct {
        let mut registers = std::mem::MaybeUninit::<libc::user_regs_struct>::uninit();
        self.ask(libc::PTRACE_GETREGS, registers.as_mut_ptr() as usize);
        // SAFETY: the request succeeded, so it filled them.
        unsafe { registers.assume_init() }
    }

    fn set(&self, registers: &libc::user_regs_struct) {
        self.ask(libc::PTRACE_SETREGS, std::ptr::from_ref(registers) as usize);
    }

    fn word(&self, at: u64) -> i64 {
        // SAFETY: reads a word of the stopped thread's memory, and none of this process's.
        unsafe { libc::ptrace(libc::PTRACE_PEEKDATA, self.0, at, 0) }
    }

    fn ask(&self, request: libc::c_uint, data: usize) {
        // SAFETY: `data` is a number, or points to what the request reads or fills, which outlives the call.
        let done = unsafe { libc::ptrace(request, self.0, 0, data) };
        assert_eq!(done, 0, "request {request}: {}", io::Error::last_os_error());
    }

    fn wait(&self) -> i32 {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let waited = unsafe { libc::waitpid(self.0, &mut status, libc::__WALL) };
        assert_eq!(waited, self.0, "{}", io::Error::last_os_error());
        status
    }
}
