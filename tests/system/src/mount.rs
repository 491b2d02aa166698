//! A volume and its mount, made for one test and gone with it.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use oncefs_toolbox::waiting::{PATIENCE, eventually};
use serde_json::Value;
use tempfile::TempDir;

use crate::device::test_dir;
use crate::run::{run, run_json};
use crate::sys;

/// A daemon that serves a test longer than this hangs: it is killed, and the test fails instead of waiting.
const DAEMON_LIFE_MAX: Duration = Duration::from_secs(900);
/// How often something without a notification is looked at, and how often if a command has to be run for it.
const POLL: Duration = Duration::from_millis(2);
const POLL_BY_COMMAND: Duration = Duration::from_millis(50);

/// The built binary: `ONCEFS_BIN`, else beside the tests.
pub fn oncefs() -> PathBuf {
    let binary =
        std::env::var_os("ONCEFS_BIN").map_or_else(|| crate::run::target_dir().join("release/oncefs"), PathBuf::from);
    assert!(binary.exists(), "{} is missing: run cargo build --release first, or set ONCEFS_BIN", binary.display());
    binary
}

/// How requests are to come to every mount: `ONCEFS_TRANSPORT`, else as the program chooses.
fn transport() -> Option<String> {
    std::env::var("ONCEFS_TRANSPORT").ok().map(|way| format!("transport={way}"))
}

/// Copies the built program to where another user can run it. A process of its own does it: a descriptor for writing
/// would be inherited by what other tests start just then, and the copy could not be run.
pub fn copy_program(to: &Path) {
    run(Command::new("cp").arg(oncefs()).arg(to));
}

/// A volume in a directory of its own and the daemon that serves it.
/// Dropping unmounts and removes both; after a panic the daemon's last words are printed first.
pub struct Mount {
    scratch: TempDir,
    options: Vec<String>,
    cgroup: Option<PathBuf>,
    daemon: Option<Daemon>,
}

struct Daemon {
    pid: i32,
    ended: Receiver<ExitStatus>,
}

impl Mount {
    /// Makes a volume of `size` (as `mkfs --size` takes it) on the test disk and mounts it.
    pub fn new(size: &str) -> Self {
        Self::on(&test_dir(), size, &[])
    }

    /// The same below `parent`, with mount options.
    pub fn on(parent: &Path, size: &str, options: &[&str]) -> Self {
        let mut mount = Self::unmounted(parent, size, options);
        mount.mount();
        mount
    }

    /// The same, with the daemon in the cgroup whose `cgroup.procs` is given.
    pub fn in_cgroup(size: &str, procs: &Path, options: &[&str]) -> Self {
        let mut mount = Self::unmounted(&test_dir(), size, options);
        mount.cgroup = Some(procs.to_owned());
        mount.mount();
        mount
    }

    /// Options of the next mount.
    pub fn set_options(&mut self, options: &[&str]) {
        self.options = options.iter().map(|o| (*o).to_owned()).collect();
    }

    /// The daemon's process.
    pub fn daemon_pid(&self) -> i32 {
        self.daemon.as_ref().expect("the volume must be mounted").pid
    }

    /// Everything that the daemon logged.
    pub fn logged(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Makes the volume only.
    pub fn unmounted(parent: &Path, size: &str, options: &[&str]) -> Self {
        Self::made(parent, options, &["--size", size])
    }

    /// The same on the test disk, with the blocks on a raw device.
    pub fn with_data_on(device: &Path) -> Self {
        let mut mount = Self::made(&test_dir(), &[], &["--data", device.to_str().expect("a path in ASCII")]);
        mount.mount();
        mount
    }

    /// The same, with the blocks in objects at `address`, of the cluster that `conf` configures. Not mounted.
    pub fn in_objects(address: &str, conf: &Path, size: &str) -> Self {
        Self::in_objects_with(address, conf, size, &[])
    }

    /// The same with more arguments of mkfs.
    pub fn in_objects_with(address: &str, conf: &Path, size: &str, more: &[&str]) -> Self {
        let conf = conf.to_str().expect("a path in ASCII");
        let place = ["--experimental", "rados", "--data", address, "--conf", conf, "--size", size];
        Self::made(&test_dir(), &[], &[&place[..], more].concat())
    }

    fn made(parent: &Path, options: &[&str], mkfs_arguments: &[&str]) -> Self {
        require_root_and_fuse();
        let scratch = tempfile::Builder::new().prefix("oncefs-test-").tempdir_in(parent).unwrap();
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let mount = Mount { scratch, options, cgroup: None, daemon: None };
        fs::create_dir(mount.dir()).unwrap();
        let keys = mount.scratch.path().join("keys");
        run(Command::new(oncefs()).env("ONCEFS_KEYS", keys).arg("mkfs").arg(mount.volume()).args(mkfs_arguments));
        mount
    }

    /// The volume's directory.
    pub fn volume(&self) -> PathBuf {
        self.scratch.path().join("volume")
    }

    /// Where it is mounted.
    pub fn dir(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }

    /// A path inside the mount.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir().join(name)
    }

    fn log(&self) -> PathBuf {
        self.scratch.path().join("daemon.log")
    }

    /// Starts the daemon and waits until the mount is live. A dead mount is removed first.
    pub fn mount(&mut self) {
        self.start_daemon();
        self.wait_until_live();
    }

    fn start_daemon(&mut self) {
        assert!(self.daemon.is_none(), "already mounted");
        self.remove_dead_mount();
        let mut command = Command::new(oncefs());
        command.arg("mount").arg("-f").arg(self.volume()).arg(self.dir());
        for option in self.options.iter().chain(&transport()) {
            command.args(["-o", option]);
        }
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        if let Some(procs) = self.cgroup.clone() {
            // SAFETY: one write to a file, by a child that has one thread.
            unsafe { command.pre_exec(move || fs::write(&procs, "0")) };
        }
        let child = command.spawn().unwrap();
        self.daemon = Some(Daemon { pid: child.id() as i32, ended: reap(child) });
    }

    fn wait_until_live(&mut self) {
        let start = Instant::now();
        while !is_live(&self.dir()) {
            let daemon = self.daemon.as_ref().expect("set by the caller");
            match daemon.ended.recv_timeout(POLL) {
                Err(RecvTimeoutError::Timeout) => {}
                ended => panic!("the daemon ended before it mounted: {ended:?}\n{}", self.last_words()),
            }
            assert!(start.elapsed() < PATIENCE, "no mount after {PATIENCE:?}\n{}", self.last_words());
        }
    }

    /// Unmounts as a person does, and requires the daemon's success.
    pub fn umount(&mut self) {
        let daemon = self.daemon.take().expect("umount needs a mount");
        self.umount_when_idle();
        let status = daemon.ended.recv_timeout(PATIENCE).expect("the daemon outlived umount");
        assert!(status.success(), "the daemon ended with {status}\n{}", self.last_words());
    }

    /// Other tests start programs, and between fork and exec those hold our files open for a moment.
    fn umount_when_idle(&self) {
        let start = Instant::now();
        loop {
            let output = Command::new(oncefs()).arg("umount").arg(self.dir()).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.success() {
                return;
            }
            assert!(
                said.contains("in use") && start.elapsed() < PATIENCE,
                "umount ended with {}: {said}",
                output.status
            );
            thread::sleep(POLL);
        }
    }

    /// Unmounts a volume that may have failed; the daemon ends in either case.
    pub fn end(&mut self) {
        let daemon = self.daemon.take().expect("end needs a mount");
        let start = Instant::now();
        while sys::is_mounted(&self.dir()) {
            assert!(start.elapsed() < PATIENCE, "the mount stays\n{}", self.last_words());
            let _ = Command::new("umount").arg(self.dir()).status();
            thread::sleep(POLL);
        }
        let ended = daemon.ended.recv_timeout(PATIENCE);
        assert!(ended.is_ok_and(|status| status.code().is_some()), "the daemon hangs or died\n{}", self.last_words());
    }

    /// Asks the daemon to end, as a shutdown does, and waits for it.
    pub fn terminate(&mut self) {
        let daemon = self.daemon.take().expect("terminate needs a mount");
        // SAFETY: plain numbers; the child is not reaped before it has ended.
        unsafe { libc::kill(daemon.pid, libc::SIGTERM) };
        let ended = daemon.ended.recv_timeout(PATIENCE);
        assert!(ended.is_ok_and(|status| status.code().is_some()), "the daemon hangs or died\n{}", self.last_words());
    }

    /// Waits for the daemon to end by itself. Its dead mount stays until the next [`Mount::mount`].
    pub fn ended(&mut self) -> ExitStatus {
        let daemon = self.daemon.take().expect("a daemon that runs");
        let ended = daemon.ended.recv_timeout(PATIENCE);
        ended.unwrap_or_else(|_| panic!("the daemon hangs\n{}", self.last_words()))
    }

    /// Everything that daemons of this volume said.
    pub fn said(&self) -> String {
        fs::read_to_string(self.log()).unwrap_or_default()
    }

    /// Unmounts and mounts again.
    pub fn remount(&mut self) {
        self.umount();
        self.mount();
    }

    /// Kills the daemon as a crash would. The dead mount stays until the next [`Mount::mount`], so that
    /// programs that still write meet an error and not the directory below.
    pub fn kill(&mut self) {
        let daemon = self.daemon.take().expect("kill needs a mount");
        // SAFETY: plain numbers; the child is not reaped before it has ended.
        unsafe { libc::kill(daemon.pid, libc::SIGKILL) };
        daemon.ended.recv_timeout(PATIENCE).expect("a killed daemon ends");
    }

    /// Starts the daemon and kills it after so long, in the middle of its recovery or just after it.
    pub fn kill_while_mounting(&mut self, after: Duration) {
        self.start_daemon();
        thread::sleep(after);
        self.kill();
    }

    /// Ends a daemon of which a failed test may have seen the end already.
    fn end_after_a_failure(&mut self) {
        let Some(daemon) = self.daemon.take() else { return };
        if daemon.ended.try_recv() == Err(TryRecvError::Empty) {
            // SAFETY: plain numbers; the child is not reaped before it has ended.
            unsafe { libc::kill(daemon.pid, libc::SIGKILL) };
            // Nothing is left to be told of a daemon that does not end.
            let _ = daemon.ended.recv_timeout(PATIENCE);
        }
    }

    fn remove_dead_mount(&self) {
        if sys::is_mounted(&self.dir()) {
            sys::unmount_dead(&self.dir()).unwrap();
        }
    }

    /// Kills the daemon, and mounts again.
    pub fn crash(&mut self) {
        self.kill();
        self.mount();
    }

    /// The daemon's process id.
    pub fn pid(&self) -> i32 {
        self.daemon.as_ref().expect("mounted").pid
    }

    /// Exit code and output of `oncefs fsck`.
    pub fn fsck(&self) -> (i32, String) {
        let output = Command::new(oncefs()).arg("fsck").arg(self.volume()).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&said).into_owned())
    }

    /// Requires that `oncefs fsck` finds nothing wrong.
    pub fn assert_clean(&self) {
        let (code, said) = self.fsck();
        assert_eq!(code, 0, "fsck:\n{said}\ndaemon:\n{}", self.last_words());
    }

    /// Unmounts, checks and mounts again.
    pub fn check(&mut self) {
        self.umount();
        self.assert_clean();
        self.mount();
    }

    /// What `oncefs stats --json` says.
    pub fn stats(&self) -> Value {
        run_json(Command::new(oncefs()).args(["stats", "--json"]).arg(self.dir()))
    }

    /// A figure of `stats`, such as ("space", "stored_bytes").
    pub fn figure(&self, group: &str, name: &str) -> u64 {
        let stats = self.stats();
        stats[group][name].as_u64().unwrap_or_else(|| panic!("stats has no {group}.{name}: {stats:#}"))
    }

    /// Waits until `figure` satisfies `wanted`.
    pub fn wait_for(&self, group: &str, name: &str, wanted: impl Fn(u64) -> bool) -> u64 {
        let start = Instant::now();
        loop {
            let value = self.figure(group, name);
            if wanted(value) {
                return value;
            }
            assert!(start.elapsed() < PATIENCE, "{group}.{name} stayed at {value} for {PATIENCE:?}");
            thread::sleep(POLL_BY_COMMAND);
        }
    }

    /// Waits until everything published so far is durable, without asking for it: two further changes are committed,
    /// and the second one's group began after this.
    pub fn await_commit(&self) {
        for turn in 0..2 {
            let before = self.figure("counters", "groups_committed");
            File::create(self.join(format!("committed-{turn}"))).unwrap();
            self.wait_for("counters", "groups_committed", |groups| groups > before);
        }
    }

    /// Whether the kernel makes all writes synchronous, as it does while a volume is nearly full.
    pub fn is_synchronous(&self) -> bool {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|line| line.split(' ').nth(1) == self.dir().to_str()).expect("it is mounted");
        line.split(' ').nth(3).unwrap().split(',').any(|option| option == "sync")
    }

    fn last_words(&self) -> String {
        let mut text = String::new();
        let _ = File::open(self.log()).and_then(|mut log| log.read_to_string(&mut text));
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("the daemon's last words:\n{}", self.last_words());
            self.end_after_a_failure();
        } else if self.daemon.is_some() {
            self.umount();
        }
        self.remove_dead_mount();
    }
}

/// Reaps the child when it ends, and kills it at the end of its time.
fn reap(mut child: Child) -> Receiver<ExitStatus> {
    let (sender, ended) = channel();
    thread::spawn(move || {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > DAEMON_LIFE_MAX {
                println!("the test hangs: killing the daemon after {DAEMON_LIFE_MAX:?}");
                child.kill().unwrap();
            }
            thread::sleep(POLL);
        };
        // Nobody listens when the mount was dropped before its daemon ended.
        let _ = sender.send(status);
    });
    ended
}

fn require_root_and_fuse() {
    // SAFETY: no arguments, cannot fail.
    assert_eq!(unsafe { libc::geteuid() }, 0, "the system tests need root");
    assert!(Path::new("/dev/fuse").exists(), "the system tests need /dev/fuse: load the fuse module");
    static ALL_MODE_BITS: std::sync::Once = std::sync::Once::new();
    // SAFETY: plain number. Tests state the modes they mean.
    ALL_MODE_BITS.call_once(|| unsafe {
        libc::umask(0);
    });
}

/// Whether something is mounted at `dir` and answers. A mount is in the kernel's table before its daemon has answered
/// INIT; stat(2) waits for that.
fn is_live(dir: &Path) -> bool {
    sys::is_mounted(dir) && fs::metadata(dir).is_ok()
}

/// Reserves everything but `bytes` in a file `rest`, and waits until the daemon has seen it. `bytes` is so little that
/// writes are synchronous then.
pub fn leave_free(mount: &Mount, bytes: u64) {
    let space = sys::space(&mount.dir()).unwrap();
    let rest = fs::File::create(mount.join("rest")).unwrap();
    sys::fallocate(&rest, 0, 0, space.f_bavail * space.f_frsize - bytes).unwrap();
    eventually("writes are synchronous on a nearly full volume", || mount.is_synchronous());
}
