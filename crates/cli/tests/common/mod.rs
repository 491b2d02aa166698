//! A place for a test: a volume, a mount point, the binary under all its names. Cleans up after the test.

use std::ffi::OsStr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use oncefs_toolbox::Random;
use oncefs_toolbox::waiting::eventually;
use tempfile::TempDir;

pub const BINARY: &str = env!("CARGO_BIN_EXE_oncefs");

/// No command of these tests takes longer, unless it hangs.
const PATIENCE_SECONDS: &str = "120";

/// The names under which mount(8) and its relatives call the binary.
pub const HELPERS: [&str; 7] = [
    "mkfs.oncefs",
    "mount.oncefs",
    "mount.fuse.oncefs",
    "umount.oncefs",
    "umount.fuse.oncefs",
    "umount.fuse",
    "fsck.oncefs",
];

/// The result of a command.
#[derive(Debug)]
pub struct Run {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Run {
    pub fn of(command: &mut Command) -> Self {
        let Output { status, stdout, stderr } = command.output().expect("the command must start");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: status.code(), out: text(stdout), err: text(stderr) }
    }

    #[track_caller]
    pub fn succeeds(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Requires that it fails with this code, and with one line that has all of `words`.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert_eq!(self.err.trim_end().lines().count(), 1, "not one line: {self:?}");
        for word in words {
            assert!(self.err.contains(word), "no '{word}' in {self:?}");
        }
        self
    }
}

/// Runs `oncefs`, and ends it if it hangs.
pub fn oncefs<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    Run::of(Command::new("timeout").arg(PATIENCE_SECONDS).arg(BINARY).args(arguments))
}

/// Takes the copies of other tests' mounts out of a new mount namespace: a mount ends with its last copy.
const FORGET_OTHERS: &str = "cat /proc/self/mounts | while read -r _ at type _; do
    case $type in fuse.*) umount -i -c -l $at 2>/dev/null || true ;; esac
done";

/// Runs a shell script with `set -e` in a mount namespace of its own.
pub fn in_own_namespace(script: &str) -> Run {
    let script = format!("set -e\n{FORGET_OTHERS}\n{script}");
    let unshare = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &script];
    Run::of(Command::new("timeout").arg(PATIENCE_SECONDS).args(unshare))
}

/// Content without repeats, the same for the same seed.
pub fn content(seed: u64, len: usize) -> Vec<u8> {
    Random::new(seed).bytes(len)
}

/// A block device over a file.
pub struct LoopDevice(pub String);

impl LoopDevice {
    pub fn of(image: &str) -> Self {
        Self(Run::of(Command::new("losetup").args(["--find", "--show", image])).succeeds().out.trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        Run::of(Command::new("losetup").args(["--detach", &self.0]));
    }
}

/// A temporary directory with room for a volume and a mount point.
pub struct Place {
    root: TempDir,
}

impl Place {
    pub fn new() -> Self {
        assert!(Path::new("/dev/fuse").exists(), "these tests need /dev/fuse");
        // SAFETY: geteuid has no arguments and cannot fail.
        assert_eq!(unsafe { libc::geteuid() }, 0, "these tests need root");
        let root = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        std::fs::create_dir(root.path().join("mnt")).unwrap();
        Self { root }
    }

    /// A place with a volume of 256 MiB.
    pub fn with_volume() -> Self {
        let place = Self::new();
        oncefs(&["mkfs", "--size", "256M", place.volume_str()]).succeeds();
        place
    }

    /// A place with a mounted volume.
    pub fn mounted() -> Self {
        let place = Self::with_volume();
        place.mount(&[]).succeeds();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    pub fn str(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub fn volume(&self) -> PathBuf {
        self.path("volume")
    }

    pub fn volume_str(&self) -> &str {
        Box::leak(self.str("volume").into_boxed_str())
    }

    pub fn mnt(&self) -> PathBuf {
        self.path("mnt")
    }

    pub fn mnt_str(&self) -> &str {
        Box::leak(self.str("mnt").into_boxed_str())
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.mnt().join(name)
    }

    pub fn mount(&self, more: &[&str]) -> Run {
        let run = oncefs(&[&["mount", self.volume_str(), self.mnt_str(), "--memory", "64M"], more].concat());
        if run.code == Some(0) {
            eventually("the mount answers", || std::fs::metadata(self.mnt()).is_ok());
        }
        run
    }

    /// Unmounts. A child that another test starts may hold this test's files for a moment, until its exec.
    pub fn umount(&self) -> Run {
        let mut run = oncefs(&["umount", self.mnt_str()]);
        eventually("nobody uses the mount", || {
            let is_over = !run.err.contains("is in use");
            if !is_over {
                run = oncefs(&["umount", self.mnt_str()]);
            }
            is_over
        });
        run
    }

    /// A directory with the binary under its helper names.
    pub fn helpers(&self) -> PathBuf {
        let dir = self.path("helpers");
        std::fs::create_dir_all(&dir).unwrap();
        for name in HELPERS {
            symlink(BINARY, dir.join(name)).unwrap();
        }
        dir
    }

    /// The process that serves this place's volume.
    pub fn daemon(&self) -> Option<u32> {
        let volume = self.volume().canonicalize().ok()?;
        processes()
            .find(|(_, arguments)| {
                arguments.iter().any(|a| a == "serve") && arguments.iter().any(|a| Path::new(a) == volume)
            })
            .map(|(pid, _)| pid)
    }

    #[track_caller]
    pub fn signal_daemon(&self, signal: libc::c_int) {
        let pid = self.daemon().expect("the daemon must run");
        // SAFETY: kill takes two integers; the process is this test's own.
        assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
    }

    /// Kills the daemon with kill -9, and waits until the process has released its files.
    #[track_caller]
    pub fn kill_daemon(&self) {
        kill(self.daemon().expect("the daemon must run"));
    }

    /// Waits until no process serves this place's volume.
    #[track_caller]
    pub fn await_daemon_gone(&self) {
        eventually("the daemon ends", || self.daemon().is_none());
    }

    pub fn is_mounted(&self) -> bool {
        let mnt = self.mnt_str();
        std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().any(|line| line.split(' ').nth(4) == Some(mnt))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        while self.is_mounted() {
            if !Command::new("umount").args(["-i", "-l", self.mnt_str()]).status().is_ok_and(|s| s.success()) {
                break;
            }
        }
        if let Some(pid) = self.daemon() {
            kill(pid);
        }
    }
}

/// Ends a process of this test, and waits until it has released its files.
#[track_caller]
fn kill(pid: u32) {
    // SAFETY: kill takes two integers. It fails if the process has already ended, which does no harm.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGKILL) };
    eventually("a killed process ends", || is_over(pid));
}

/// Whether a process is gone, or a zombie without threads. Only then are its files closed.
fn is_over(pid: u32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else {
        return true;
    };
    let is_zombie = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    is_zombie && threads <= 1
}

fn processes() -> impl Iterator<Item = (u32, Vec<String>)> {
    std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Some((pid, line.split(|&b| b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()))
    })
}
