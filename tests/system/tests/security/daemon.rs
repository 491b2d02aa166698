//! What the daemon keeps of root's privileges: nothing but its files.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use oncefs_system_tests::{Mount, eventually, oncefs, refused_by_the_dead, run, test_dir};

/// CAP_DAC_READ_SEARCH and CAP_SYS_ADMIN.
const OF_THE_MOUNTER: u64 = 1 << 2 | 1 << 21;

fn status(of: &str, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{of}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

fn capabilities(of: &str) -> [u64; 5] {
    ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"]
        .map(|set| u64::from_str_radix(&status(of, set), 16).unwrap())
}

/// The processes that `parent` started.
fn children(parent: i32) -> Vec<i32> {
    let processes =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let parent_of = |process: &i32| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    processes.filter(|process| parent_of(process) == Some(parent)).collect()
}

#[test]
fn no_thread_of_the_daemon_has_a_capability_or_can_get_one() {
    let mount = Mount::new("256M");
    fs::write(mount.join("file"), "x").unwrap();
    let threads: Vec<String> = fs::read_dir(format!("/proc/{}/task", mount.daemon_pid()))
        .unwrap()
        .map(|task| format!("{}/task/{}", mount.daemon_pid(), task.unwrap().file_name().display()))
        .collect();
    assert!(threads.len() > 5, "{threads:?}");
    for thread in &threads {
        assert_eq!(capabilities(thread), [0; 5], "{}", status(thread, "Name:"));
        assert_eq!(status(thread, "NoNewPrivs:"), "1");
        assert_eq!(status(thread, "Umask:"), "0077");
    }
    let [mounter] = children(mount.daemon_pid())[..] else { panic!("one process beside the daemon is expected") };
    let mounter = mounter.to_string();
    eventually("the mounter shows its name", || status(&mounter, "Name:") == "oncefs-mounter");
    assert_eq!(capabilities(&mounter), [0, OF_THE_MOUNTER, OF_THE_MOUNTER, OF_THE_MOUNTER, 0]);
    assert_eq!(status(&mounter, "NoNewPrivs:"), "1");
    let logged = mount.logged();
    assert!(!logged.contains("confine") && !logged.contains("privileges"), "this kernel lacks something: {logged}");
}

/// What threads of a command may do while it waits to say its last line into a pipe that is full.
fn capabilities_of_threads(command: &mut Command) -> Vec<[u64; 5]> {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: fcntl with an integer argument on an open descriptor.
    let full = unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_GETPIPE_SZ) };
    writer.write_all(&vec![b'.'; full as usize]).unwrap();
    let mut child = command.stdin(Stdio::null()).stdout(writer).spawn().unwrap();
    // The command holds the other copy of the pipe's end.
    command.stdout(Stdio::null());
    let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
    let writes_to_stdout = format!("{} 0x1 ", libc::SYS_write);
    let call = PathBuf::from(format!("/proc/{}/syscall", child.id()));
    eventually("the command comes to its last line", || {
        fs::read_to_string(&call).unwrap().starts_with(&writes_to_stdout)
    });
    let threads: Vec<String> = fs::read_dir(tasks)
        .unwrap()
        .map(|task| format!("{}/task/{}", child.id(), task.unwrap().file_name().display()))
        .collect();
    let found = threads.iter().map(|thread| {
        assert_eq!(status(thread, "NoNewPrivs:"), "1");
        capabilities(thread)
    });
    let found = found.collect();
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert!(child.wait().unwrap().success());
    found
}

#[test]
fn a_check_and_mkfs_have_no_capability_once_they_know_their_volume() {
    let mount = Mount::unmounted(&test_dir(), "256M", &[]);
    let mut fsck = Command::new(oncefs());
    let threads = capabilities_of_threads(fsck.args(["fsck", "-y"]).arg(mount.volume()));
    assert!(threads.len() > 1 && threads.iter().all(|sets| *sets == [0; 5]), "{threads:?}");
    let mut mkfs = Command::new(oncefs());
    let other = mount.volume().with_file_name("other");
    let threads = capabilities_of_threads(mkfs.arg("mkfs").arg(other).args(["--size", "64M"]));
    assert!(threads.iter().all(|sets| *sets == [0; 5]), "{threads:?}");
}

#[test]
fn a_volume_in_a_private_directory_of_a_user_takes_the_one_capability_that_leads_there() {
    const SEARCH: u64 = 1 << 2;
    let mut mount = Mount::unmounted(&test_dir(), "256M", &[]);
    let home = mount.volume().parent().unwrap().to_owned();
    std::os::unix::fs::chown(&home, Some(1000), None).unwrap();
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    mount.mount();
    fs::write(mount.join("file"), "x").unwrap();
    assert_eq!(capabilities(&mount.daemon_pid().to_string()), [0, SEARCH, SEARCH, SEARCH, 0]);
    mount.remount();
    assert_eq!(fs::read(mount.join("file")).unwrap(), b"x");
    mount.umount();
    mount.assert_clean();
    let other = home.join("other");
    run(Command::new(oncefs()).arg("mkfs").arg(&other).args(["--size", "64M"]));
    run(Command::new(oncefs()).args(["fsck", "-y"]).arg(&other));
}

#[test]
fn the_daemon_keeps_no_file_directory_or_variable_of_who_started_it() {
    let mount = Mount::unmounted(&test_dir(), "256M", &[]);
    let lock = File::create(mount.volume().parent().unwrap().join("lock of a script")).unwrap();
    let descriptor = lock.as_raw_fd();
    let mut command = Command::new(oncefs());
    command.arg("mount").arg(mount.volume()).arg(mount.dir()).env("PASSWORD", "hidden").current_dir(test_dir());
    // SAFETY: one system call: the lock's descriptor survives the exec, as one that a shell opened would.
    unsafe {
        command.pre_exec(move || {
            libc::fcntl(descriptor, libc::F_SETFD, 0);
            Ok(())
        })
    };
    assert!(command.stdin(Stdio::null()).status().unwrap().success());
    let volume = mount.volume().to_str().unwrap().to_owned();
    let serving: Vec<String> = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|pid| fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(&volume)))
        .collect();
    assert_eq!(serving.len(), 2, "the daemon and its mounter");
    for pid in serving {
        let open = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        let open: Vec<_> = open.filter_map(|fd| fs::read_link(fd.unwrap().path()).ok()).collect();
        assert!(!open.iter().any(|path| path.to_string_lossy().contains("lock of a script")), "{open:?}");
        assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap().to_str(), Some("/"));
        assert!(!fs::read_to_string(format!("/proc/{pid}/environ")).unwrap().contains("hidden"));
    }
    run(Command::new(oncefs()).arg("umount").arg(mount.dir()));
}

#[test]
fn nothing_of_a_killed_daemon_is_left_and_its_mount_answers_at_once() {
    let mut mount = Mount::new("256M");
    let [mounter] = children(mount.daemon_pid())[..] else { panic!("one process beside the daemon is expected") };
    mount.kill();
    refused_by_the_dead(|| File::open(mount.join("file")));
    eventually("the mounter ends with its daemon", || !fs::exists(format!("/proc/{mounter}/fd/0")).unwrap());
    mount.mount();
}
