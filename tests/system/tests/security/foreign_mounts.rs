//! Mounts and sockets that claim to be oncefs's and are a user's, or whose daemon hangs: no command waits for them.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use oncefs_system_tests::{PATIENCE, oncefs, sys};
use tempfile::TempDir;

use super::user::set_mode;

const USER: u32 = 1000;

/// A mount of type `fuse.oncefs` that nobody serves, with a control socket that takes connections and never answers.
struct Fake {
    scratch: TempDir,
    _device: File,
}

impl Fake {
    /// As the kernel shows a mount of `owner`; the socket is `peer`'s.
    fn new(owner: u32, peer: u32) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        set_mode(scratch.path(), 0o777);
        for name in ["volume", "mnt"] {
            std::fs::create_dir(scratch.path().join(name)).unwrap();
            set_mode(&scratch.path().join(name), 0o777);
        }
        let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
        let fake = Self { scratch, _device: device.try_clone().unwrap() };
        let data = format!("fd={},rootmode=40000,user_id={owner},group_id={owner},allow_other", device.as_raw_fd());
        let [source, dir, kind, data] =
            [fake.path("volume"), fake.dir(), "fuse.oncefs".into(), data.into()].map(sys::c_path);
        // SAFETY: all strings outlive the call.
        let mounted = unsafe {
            libc::mount(
                source.as_ptr(),
                dir.as_ptr(),
                kind.as_ptr(),
                libc::MS_NOSUID | libc::MS_NODEV,
                data.as_ptr().cast(),
            )
        };
        assert_eq!(mounted, 0, "{}", io::Error::last_os_error());
        let socket = fake.path("volume").join("control");
        let listening = thread::spawn(move || listen(&socket, peer));
        let listener = listening.join().unwrap();
        thread::spawn(move || {
            let mut taken: Vec<UnixStream> = Vec::new();
            listener.incoming().for_each(|stream| taken.extend(stream));
        });
        fake
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    fn dir(&self) -> PathBuf {
        self.path("mnt")
    }

    fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().any(|line| line.split(' ').nth(4) == self.dir().to_str())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let dir = sys::c_path(self.dir());
        // SAFETY: the string outlives the call.
        unsafe { libc::umount2(dir.as_ptr(), libc::MNT_FORCE | libc::MNT_DETACH) };
    }
}

/// Listens as a user: the ids of this thread alone change.
fn listen(socket: &Path, user: u32) -> UnixListener {
    // SAFETY: plain numbers.
    assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
    UnixListener::bind(socket).unwrap()
}

/// Runs a command that must end.
fn run(program: &Path, arguments: &[&str], path: &Path) -> Output {
    let start = Instant::now();
    let mut command = Command::new(program);
    command.args(arguments).arg(path).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{} {arguments:?} hangs", program.display());
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_users_mount_that_calls_itself_oncefs_is_not_ours() {
    let fake = Fake::new(USER, USER);
    let umount = run(&oncefs(), &["umount"], &fake.dir());
    assert_eq!(umount.status.code(), Some(32), "{}", complaint(&umount));
    assert!(complaint(&umount).contains("mount of user 1000, not an oncefs mount"), "{}", complaint(&umount));
    for arguments in
        [&["stats"][..], &["sync"], &["policy", "show"], &["defrag"], &["explain"], &["scrub", "--status"], &["status"]]
    {
        let output = run(&oncefs(), arguments, &fake.dir());
        assert!(!output.status.success(), "{arguments:?} took it for ours");
    }
    // Nor is the volume that it names, where the user may listen.
    let stats = run(&oncefs(), &["stats"], &fake.path("volume"));
    assert!(complaint(&stats).contains("is user 1000's, not root's"), "{}", complaint(&stats));
    assert!(fake.is_mounted());
    // umount(8) calls this name for the type, and it hands the mount back.
    let helper = fake.path("umount.fuse.oncefs");
    symlink(oncefs(), &helper).unwrap();
    run(&helper, &["-l"], &fake.dir());
    assert!(!fake.is_mounted(), "umount(8) was not called");
}

#[test]
fn a_mount_of_another_that_answers_nothing_is_unmounted_without_asking_it() {
    let fake = Fake::new(USER, USER);
    let helper = fake.path("umount.fuse.oncefs");
    symlink(oncefs(), &helper).unwrap();
    let umount = run(&helper, &[], &fake.dir());
    assert!(umount.status.success() && !fake.is_mounted(), "{}", complaint(&umount));
}

#[test]
fn a_socket_of_another_user_is_not_listened_to() {
    let fake = Fake::new(0, USER);
    let umount = run(&oncefs(), &["umount"], &fake.dir());
    assert!(umount.status.success() && !fake.is_mounted(), "{}", complaint(&umount));
    assert!(complaint(&umount).contains("is user 1000's, not root's"), "{}", complaint(&umount));
}

/// Two commands wait at the same time, for as long as commands wait for a silent daemon.
#[test]
fn a_daemon_that_never_answers_is_given_up_unmounted_lazily_or_by_force() {
    let (fake, other) = (Fake::new(0, 0), Fake::new(0, 0));
    thread::scope(|scope| {
        let lazily = scope.spawn(|| run(&oncefs(), &["umount", "--lazy"], &other.dir()));
        let umount = run(&oncefs(), &["umount"], &fake.dir());
        assert_eq!(umount.status.code(), Some(32));
        for part in ["stays mounted", "has said nothing for 30 s", "umount --force"] {
            assert!(complaint(&umount).contains(part), "no '{part}' in {}", complaint(&umount));
        }
        let lazily = lazily.join().unwrap();
        assert!(lazily.status.success() && !other.is_mounted(), "{}", complaint(&lazily));
        for part in ["cannot reach the daemon", "has said nothing for 30 s", "may still be writing"] {
            assert!(complaint(&lazily).contains(part), "no '{part}' in {}", complaint(&lazily));
        }
    });
    assert!(fake.is_mounted());
    run(&oncefs(), &["umount", "--force"], &fake.dir());
    assert!(!fake.is_mounted());
}
