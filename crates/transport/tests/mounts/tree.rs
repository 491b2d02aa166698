//! A mounted tree: the example `tree` in a process of its own, and the tests' operations on it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use oncefs_transport::unmount;

use super::waiting::eventually;

/// Both ways. The tests fail on a kernel that lacks one, and skip nothing.
pub const WAYS: [&str; 2] = ["rings", "classic"];

/// Held shared by every mount, and exclusively by a test that takes CPUs off line: threads with rings cannot end
/// meanwhile.
static MACHINE: RwLock<()> = RwLock::new(());

/// Waits until no other test has a mount, and keeps them from mounting.
pub fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// A mount with its daemon. Dropping it removes both, in any state.
pub struct Tree {
    pub daemon: Child,
    dir: tempfile::TempDir,
    device: u64,
    pub way: &'static str,
    /// None: the test is alone.
    beside_others: Option<RwLockReadGuard<'static, ()>>,
}

impl Tree {
    /// Mounts, in parallel with other tests.
    pub fn mount(way: &'static str) -> Self {
        let beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        let mut tree = Self::mount_alone(way);
        tree.beside_others = Some(beside_others);
        tree
    }

    /// Mounts with a daemon that may run on one CPU only, in parallel with other tests.
    pub fn mount_on_cpu(way: &'static str, cpu: usize) -> Self {
        let beside_others = MACHINE.read().unwrap_or_else(PoisonError::into_inner);
        let mut command = Command::new("taskset");
        command.args(["-c", &cpu.to_string()]).arg(program());
        let mut tree = Self::mount_by(command, way);
        tree.beside_others = Some(beside_others);
        tree
    }

    /// Mounts, for a test that runs alone.
    pub fn mount_alone(way: &'static str) -> Self {
        Self::mount_by(Command::new(program()), way)
    }

    fn mount_by(mut command: Command, way: &'static str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut daemon = command.arg(dir.path()).arg(way).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(
            line.starts_with("ready"),
            "the daemon did not mount over {way}: root and /dev/fuse are needed, {line:?}"
        );
        assert_eq!(line.contains("threads"), way == "rings", "{line}");
        let device = fs::metadata(dir.path()).unwrap().dev();
        Self { daemon, dir, device, way, beside_others: None }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// A count of the daemon.
    pub fn count(&self, name: &str) -> u64 {
        let text = fs::read_to_string(self.path("stats")).unwrap();
        let found = text.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        found.unwrap_or_else(|| panic!("no {name} in {text:?}")).parse().unwrap()
    }

    /// A process that reads the file `wait`. Its read is under way.
    pub fn waiter(&self) -> Child {
        self.waiter_by(&mut Command::new("cat"))
    }

    /// The same, on one CPU, so that the queue of this one has its read.
    pub fn waiter_on(&self, cpu: usize) -> Child {
        self.waiter_by(Command::new("taskset").args(["-c", &cpu.to_string(), "cat"]))
    }

    fn waiter_by(&self, command: &mut Command) -> Child {
        let before = self.count("waited");
        let waiter = command.arg(self.path("wait")).stderr(Stdio::null()).spawn().unwrap();
        eventually("a read waits in the daemon", || self.count("waited") > before);
        waiter
    }

    /// Ends the connection as `/sys/fs/fuse/connections/N/abort` does.
    pub fn abort(&self) {
        fs::write(self.control().join("abort"), "1").unwrap();
    }

    /// Requests that wait in the kernel or in the daemon.
    pub fn under_way(&self) -> u64 {
        fs::read_to_string(self.control().join("waiting")).unwrap().trim().parse().unwrap()
    }

    /// The kernel's files about the connection.
    fn control(&self) -> PathBuf {
        let control = Path::new("/sys/fs/fuse/connections");
        if fs::read_dir(control).unwrap().next().is_none() {
            let done = Command::new("mount").args(["-t", "fusectl", "none"]).arg(control).status().unwrap();
            assert!(done.success(), "cannot mount fusectl on {}", control.display());
        }
        control.join(self.device.to_string())
    }

    /// Unmounts, and waits until the daemon has ended well.
    pub fn unmount(mut self) {
        // Programs that were killed may still be closing their files.
        eventually("the mount is idle", || unmount(self.root(), 0).is_ok());
        self.ends_well();
    }

    pub fn ends_well(&mut self) {
        let status = ends(&mut self.daemon, "the daemon");
        assert!(status.success(), "the daemon over {} ended with {status}", self.way);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        // Cleans up after a failed test. Otherwise both are already gone.
        drop(self.daemon.kill());
        drop(unmount(self.dir.path(), libc::MNT_DETACH));
        drop(self.daemon.wait());
    }
}

/// The example: in `ONCEFS_EXAMPLES`, otherwise next to the directory of this test's program.
fn program() -> PathBuf {
    let examples = std::env::var_os("ONCEFS_EXAMPLES").map_or_else(
        || {
            let test = std::env::current_exe().unwrap();
            test.parent().unwrap().parent().unwrap().join("examples")
        },
        PathBuf::from,
    );
    let program = examples.join("tree");
    assert!(program.exists(), "{} is built with the tests of the whole crate", program.display());
    program
}

/// Waits for a process to end.
pub fn ends(child: &mut Child, what: &str) -> std::process::ExitStatus {
    let mut status = None;
    eventually(&format!("{what} ends"), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}
