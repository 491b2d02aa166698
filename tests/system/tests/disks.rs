//! `oncefs disk`: ext4 on block devices whose blocks the volume stores once.

mod room;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use oncefs_system_tests::{Mount, bytes, eventually, oncefs, run, run_json, sys, test_dir};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

pub fn disk(mount: &Mount, what: &str, more: &[&str]) -> Command {
    let mut command = Command::new(oncefs());
    command.args(["disk", what]).arg(mount.dir()).args(more);
    command
}

/// The exit code and the message of a command that fails.
fn fails(mut command: Command) -> (i32, String) {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{command:?} succeeded");
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// An attached disk, and its ext4 mounted on a directory. Both end when this is dropped.
pub struct Attached {
    /// Where the volume is mounted.
    volume: PathBuf,
    device: PathBuf,
    place: TempDir,
}

impl Attached {
    pub fn new(mount: &Mount, name: &str, makes_ext4: bool) -> Self {
        let device = PathBuf::from(run(&mut disk(mount, "attach", &[name])).trim());
        let attached = Self { volume: mount.dir(), device, place: tempfile::tempdir().unwrap() };
        if makes_ext4 {
            let lazy = "lazy_itable_init=0,lazy_journal_init=0";
            run(Command::new("mkfs.ext4").args(["-q", "-E", lazy]).arg(&attached.device));
        }
        run(Command::new("mount").args(["-t", "ext4"]).arg(&attached.device).arg(attached.place.path()));
        attached
    }

    /// A snapshot with an ext4.
    pub fn read_only(mount: &Mount, name: &str) -> Self {
        let device = PathBuf::from(run(&mut disk(mount, "attach", &[name])).trim());
        let attached = Self { volume: mount.dir(), device, place: tempfile::tempdir().unwrap() };
        run(Command::new("mount").args(["-t", "ext4", "-o", "ro"]).arg(&attached.device).arg(attached.place.path()));
        attached
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    pub fn umount(&self) {
        run(Command::new("umount").arg(self.place.path()));
    }

    /// Whether the device shows the disk still. A device that ended may show a disk of another test by now.
    fn is_there(&self) -> bool {
        let name = self.device.file_name().unwrap();
        let shown = fs::read_to_string(Path::new("/sys/block").join(name).join("loop/backing_file"));
        shown.is_ok_and(|path| Path::new(path.trim_end()).starts_with(&self.volume))
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if sys::is_mounted(self.place.path()) {
            let _ = Command::new("umount").arg("--lazy").arg(self.place.path()).status();
        }
        if self.is_there() {
            let _ = Command::new("losetup").arg("--detach").arg(&self.device).status();
        }
    }
}

pub fn write_synced(path: &Path, content: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(content).unwrap();
    file.sync_all().unwrap();
}

fn shown(mount: &Mount) -> serde_json::Value {
    run_json(&mut disk(mount, "list", &["--json"]))["disks"].clone()
}

#[test]
fn a_disk_carries_an_ext4_whose_blocks_are_stored_once_and_freed_by_discard() {
    let mut mount = Mount::new("512M");
    run(&mut disk(&mount, "create", &["home", "128M"]));
    let attached = Attached::new(&mount, "home", true);
    let block_size = fs::read_to_string(
        Path::new("/sys/block").join(attached.device.file_name().unwrap()).join("queue/logical_block_size"),
    );
    assert_eq!(block_size.unwrap().trim(), "4096");

    let content = bytes(7, 16 * MIB as usize);
    write_synced(&attached.join("first"), &content);
    let stored = |mount: &Mount| mount.figure("space", "stored_bytes");
    let (once, unshared) = (stored(&mount), content.len() as u64);
    write_synced(&attached.join("second"), &content);
    let twice = stored(&mount);
    assert!(twice - once < unshared / 4, "the second copy stores {} bytes", twice - once);
    assert!(fs::read(attached.join("second")).unwrap() == content);

    let list = shown(&mount);
    assert_eq!(list[0]["name"], "home");
    assert_eq!(list[0]["file_system"], "ext4");
    assert_eq!(list[0]["mounted_on"].as_str().unwrap(), attached.place.path().to_str().unwrap());

    for name in ["first", "second"] {
        fs::remove_file(attached.join(name)).unwrap();
    }
    File::open(attached.place.path()).unwrap().sync_all().unwrap();
    run(Command::new("fstrim").arg(attached.place.path()));
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    let left = stored(&mount);
    assert!(left + unshared / 2 < twice, "{left} bytes are stored after a trim, {twice} before");

    attached.umount();
    // The device has a bound of its own, so it is not left to others.
    let name = attached.device.file_name().unwrap().to_str().unwrap();
    assert!(name.strip_prefix("loop").unwrap().parse::<u32>().unwrap() >= 4096, "{name}");
    let requests = fs::read_to_string(Path::new("/sys/block").join(name).join("queue/nr_requests")).unwrap();
    assert!((4..=32).contains(&requests.trim().parse::<u32>().unwrap()), "{requests}");
    run(&mut disk(&mount, "detach", &["home"]));
    assert!(!attached.is_there() && shown(&mount)[0]["device"].is_null());
    run(&mut disk(&mount, "remove", &["home"]));
    assert_eq!(shown(&mount).as_array().unwrap().len(), 0);
    mount.check();
}

#[test]
fn what_ext4_on_a_disk_has_synced_survives_a_killed_daemon() {
    let mut mount = Mount::new("256M");
    run(&mut disk(&mount, "create", &["home", "64M"]));
    let attached = Attached::new(&mount, "home", true);
    for number in 0..20 {
        write_synced(&attached.join(&format!("file{number}")), &bytes(number << 32, 300_000));
    }
    mount.kill();
    drop(attached);
    mount.mount();

    let again = Attached::new(&mount, "home", false);
    for number in 0..20 {
        let kept = fs::read(again.join(&format!("file{number}"))).unwrap();
        assert!(kept == bytes(number << 32, 300_000), "file{number}");
    }
    again.umount();
    run(Command::new("fsck.ext4").arg("-fn").arg(&again.device));
    drop(again);
    mount.check();
}

#[test]
fn a_disk_is_resized_but_never_below_its_file_system() {
    let mount = Mount::new("256M");
    run(&mut disk(&mount, "create", &["home", "32M"]));
    let attached = Attached::new(&mount, "home", true);
    write_synced(&attached.join("kept"), b"content");

    let said = run(&mut disk(&mount, "resize", &["home", "+32M"]));
    assert!(said.contains(&format!("resize2fs {}", attached.device.display())), "{said}");
    // On a mounted file system resize2fs needs a capability that containers lack.
    attached.umount();
    run(Command::new("fsck.ext4").arg("-fp").arg(&attached.device));
    run(Command::new("resize2fs").arg(&attached.device));
    run(Command::new("mount").arg(&attached.device).arg(attached.place.path()));
    let space = sys::space(attached.place.path()).unwrap();
    assert!(space.f_blocks * space.f_frsize > 48 * MIB);

    let (code, said) = fails(disk(&mount, "resize", &["home", "32M"]));
    assert_eq!(code, 1);
    assert!(said.contains("resize2fs DEVICE 32768K"), "{said}");
    attached.umount();
    run(Command::new("fsck.ext4").arg("-fp").arg(&attached.device));
    run(Command::new("resize2fs").arg(&attached.device).arg("32768K"));
    run(&mut disk(&mount, "resize", &["home", "32M"]));
    run(Command::new("fsck.ext4").arg("-fn").arg(&attached.device));
    run(Command::new("mount").arg(&attached.device).arg(attached.place.path()));
    assert_eq!(fs::read(attached.join("kept")).unwrap(), b"content");
}

#[test]
fn what_cannot_be_done_with_a_disk_is_refused_with_the_way_out() {
    let mount = Mount::new("256M");
    let list = run(&mut disk(&mount, "list", &[]));
    assert!(list.contains("has no disks"), "{list}");
    let refused = |what: &str, more: &[&str], code: i32, words: &str| {
        let found = fails(disk(&mount, what, more));
        assert!(found.0 == code && found.1.contains(words), "{what} {more:?}: {found:?}");
    };
    refused("create", &["../out", "1G"], 2, "does not begin with . or -");
    refused("create", &["odd", "1048577"], 2, "1048577 is no multiple of 4.00 KiB: give 1M, for instance");
    refused("create", &["large", "1G", "--thick"], 1, "(enlarge the volume by oncefs grow, or leave out --thick)");
    refused("attach", &["large"], 1, "there is no disk large");
    run(&mut disk(&mount, "create", &["home", "32M", "--thick"]));
    refused("create", &["home", "32M"], 1, "there is a disk home already: choose another name");
    refused("detach", &["home"], 1, "is not attached");
    let attached = Attached::new(&mount, "home", true);
    refused("attach", &["home"], 1, &format!("attached already, as {}", attached.device.display()));
    refused("detach", &["home"], 1, "unmount it first");
    refused("remove", &["home"], 1, "oncefs disk detach");
    let umount = || {
        let mut command = Command::new(oncefs());
        command.arg("umount").arg(mount.dir());
        fails(command).1
    };
    let place = attached.place.path().display();
    assert!(umount().contains(&format!("its disk home is mounted on {place}: unmount that first")), "{}", umount());
    attached.umount();
    assert!(umount().contains(&format!("oncefs disk detach {} home", mount.dir().display())), "{}", umount());
    run(&mut disk(&mount, "detach", &["home"]));

    let device = PathBuf::from(run(&mut disk(&mount, "attach", &["home", "--read-only"])).trim());
    let writes = File::options().write(true).open(&device).and_then(|mut file| file.write_all(&[0; 4096]));
    assert!(writes.is_err(), "a read-only disk takes writes");
    run(&mut disk(&mount, "detach", &["home"]));
}

/// A volume that is mounted nowhere, with an empty disk `home`, and a directory to mount that on.
struct Unmounted {
    volume: Mount,
    place: TempDir,
}

impl Unmounted {
    fn new() -> Self {
        let (volume, place) = (Mount::unmounted(&test_dir(), "256M", &[]), tempfile::tempdir().unwrap());
        run(Command::new(oncefs()).args(["disk", "create"]).arg(volume.volume()).args(["home", "64M"]));
        Self { volume, place }
    }

    /// As mount(8) of Debian 12 calls its helper: without a PATH.
    fn mount(&self, options: &str) -> Command {
        let mut command = Command::new(oncefs());
        command.env_remove("PATH");
        command.arg("mount").arg(self.volume.volume()).arg(self.place.path()).args(["-o", options]);
        command
    }

    fn join(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn umount(&self) {
        run(Command::new("umount").arg(self.place.path()));
    }

    /// The processes that serve the volume.
    fn daemons(&self) -> Vec<i32> {
        let volume = self.volume.volume();
        let volume = volume.to_str().unwrap();
        let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let serves = |pid: &i32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words: Vec<_> = words.split(|byte| *byte == 0).collect();
            words.contains(&&b"serve"[..]) && words.contains(&volume.as_bytes())
        };
        pids.filter(serves).collect()
    }

    /// Waits until nothing holds the volume, and checks it. A daemon that ends has no command line any more and still
    /// holds the lock for a moment; fsck says 8 meanwhile.
    fn await_end_and_check(&self) {
        eventually("nothing holds the volume", || self.volume.fsck().0 != 8);
        self.volume.assert_clean();
    }
}

impl Drop for Unmounted {
    fn drop(&mut self) {
        if sys::is_mounted(self.place.path()) {
            let _ = Command::new("umount").arg("--lazy").arg(self.place.path()).status();
        }
    }
}

#[test]
fn one_mount_shows_a_disk_of_an_unmounted_volume_and_a_plain_umount_ends_all_of_it() {
    let disk = Unmounted::new();
    let (code, said) = fails(disk.mount("disk=home"));
    assert!(code == 32 && said.contains("mkfs=ext4"), "{code}: {said}");
    // Reserved room is no content.
    run(Command::new(oncefs()).args(["disk", "create"]).arg(disk.volume.volume()).args(["thick", "16M", "--thick"]));
    let (code, said) = fails(disk.mount("disk=thick"));
    assert!(code == 32 && said.contains("mkfs=ext4"), "{code}: {said}");
    let (code, said) = fails(disk.mount("disk=work"));
    assert!(code == 32 && said.contains("there is no disk work"), "{code}: {said}");
    run(&mut disk.mount("disk=home,mkfs=ext4,noatime,memory=64M"));
    write_synced(&disk.join("kept"), b"content");
    let (_, said) = fails(disk.mount("disk=home"));
    assert!(said.contains("in use already, as /dev/loop"), "{said}");
    disk.umount();
    disk.await_end_and_check();

    // mkfs= is for an empty disk only.
    run(&mut disk.mount("disk=home,mkfs=ext4,ro"));
    assert_eq!(fs::read(disk.join("kept")).unwrap(), b"content");
    assert!(File::create(disk.join("new")).is_err(), "ro reached the file system");
    run(Command::new(oncefs()).arg("umount").arg(disk.place.path()));
    disk.await_end_and_check();
}

#[test]
fn a_command_waits_for_the_daemon_of_a_mount_that_is_ending() {
    let disk = Unmounted::new();
    disk.await_end_and_check();
    run(Command::new(oncefs()).arg("mount").arg(disk.volume.volume()).arg(disk.place.path()));
    let open = File::create(disk.join("open")).unwrap();
    // Without a mount, the daemon lives until the last file is closed.
    run(Command::new("umount").arg("--lazy").arg(disk.place.path()));
    let mut list = Command::new(oncefs());
    list.args(["disk", "list"]).arg(disk.volume.volume()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut list = list.spawn().unwrap();
    // Long enough for a command that does not wait, and far less than it waits.
    std::thread::sleep(Duration::from_millis(500));
    assert!(list.try_wait().unwrap().is_none());
    drop(open);
    let output = list.wait_with_output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("home"), "{output:?}");
    disk.await_end_and_check();
}

#[test]
fn a_disk_whose_daemon_died_is_unmounted_as_usual_and_mounted_again() {
    let disk = Unmounted::new();
    run(&mut disk.mount("disk=home,mkfs=ext4"));
    write_synced(&disk.join("kept"), b"content");
    for pid in disk.daemons() {
        // SAFETY: plain numbers.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    eventually("no daemon is left", || disk.daemons().is_empty());
    disk.umount();
    run(&mut disk.mount("disk=home"));
    assert_eq!(fs::read(disk.join("kept")).unwrap(), b"content");
    disk.umount();
    disk.await_end_and_check();
}

#[test]
fn a_snapshot_of_a_mounted_disk_holds_one_moment_and_a_rollback_brings_it_back() {
    let mut mount = Mount::new("512M");
    run(&mut disk(&mount, "create", &["home", "128M"]));
    let attached = Attached::new(&mount, "home", true);
    let (old, new) = (bytes(3, 20 * MIB as usize), bytes(4 << 32, 20 * MIB as usize));
    write_synced(&attached.join("file"), &old);
    // Not synced: the file system writes it before it stands still.
    fs::write(attached.join("late"), b"late").unwrap();
    let said = run(&mut disk(&mount, "snapshot", &["home", "one", "--verbose"]));
    assert!(said.starts_with("home@one: the file system stood still for ") && said.ends_with(" ms\n"), "{said}");
    write_synced(&attached.join("file"), &new);
    fs::remove_file(attached.join("late")).unwrap();

    let (code, said) = fails(disk(&mount, "snapshot", &["home", "one"]));
    assert!(code == 1 && said.contains("there is a snapshot home@one already"), "{said}");
    let (_, said) = fails(disk(&mount, "rollback", &["home", "one"]));
    assert!(said.contains("is attached as /dev/loop"), "{said}");

    let seen = Attached::read_only(&mount, "home@one");
    assert!(fs::read(seen.join("file")).unwrap() == old);
    assert_eq!(fs::read(seen.join("late")).unwrap(), b"late");
    assert!(fs::write(seen.join("file"), b"no").is_err());
    let list = shown(&mount);
    assert_eq!(list.as_array().unwrap().len(), 1);
    assert_eq!(list[0]["snapshots"][0]["name"], "home@one");
    assert!(list[0]["snapshots"][0]["device"].is_string());
    seen.umount();
    run(&mut disk(&mount, "detach", &["home@one"]));

    attached.umount();
    run(&mut disk(&mount, "detach", &["home"]));
    run(&mut disk(&mount, "rollback", &["home", "one"]));
    let back = Attached::new(&mount, "home", false);
    assert!(fs::read(back.join("file")).unwrap() == old);
    write_synced(&back.join("file"), &new);
    back.umount();
    run(Command::new("fsck.ext4").arg("-fn").arg(&back.device));
    run(&mut disk(&mount, "detach", &["home"]));

    let (_, said) = fails(disk(&mount, "remove", &["home"]));
    assert!(said.contains("has 1 snapshots") && said.contains("home@one"), "{said}");
    run(&mut disk(&mount, "remove", &["home@one"]));
    run(&mut disk(&mount, "remove", &["home"]));
    assert_eq!(shown(&mount).as_array().unwrap().len(), 0);
    mount.check();
}

#[test]
fn a_clone_of_a_snapshot_is_a_disk_of_its_own_and_survives_a_killed_daemon() {
    let mut mount = Mount::new("512M");
    run(&mut disk(&mount, "create", &["vm", "64M"]));
    let attached = Attached::new(&mount, "vm", true);
    let content = bytes(9, 10 * MIB as usize);
    write_synced(&attached.join("file"), &content);
    run(&mut disk(&mount, "snapshot", &["vm", "clean"]));
    run(&mut disk(&mount, "clone", &["vm@clean", "second"]));
    run(&mut disk(&mount, "clone", &["vm", "third"]));
    write_synced(&attached.join("file"), b"changed");
    mount.kill();
    drop(attached);
    mount.mount();
    for name in ["second", "third"] {
        let clone = Attached::new(&mount, name, false);
        assert!(fs::read(clone.join("file")).unwrap() == content, "{name}");
        write_synced(&clone.join("file"), name.as_bytes());
        clone.umount();
        run(Command::new("fsck.ext4").arg("-fn").arg(&clone.device));
        run(&mut disk(&mount, "detach", &[name]));
    }
    let seen = Attached::read_only(&mount, "vm@clean");
    assert!(fs::read(seen.join("file")).unwrap() == content);
    drop(seen);
    mount.check();
}

#[test]
fn a_file_system_goes_on_when_the_command_that_lets_it_stand_still_is_killed() {
    let mount = Mount::new("256M");
    run(&mut disk(&mount, "create", &["home", "64M"]));
    let attached = Attached::new(&mount, "home", true);
    let (mut keeper, _keeper_said) = frozen(&attached);
    let (_, said) = fails(disk(&mount, "snapshot", &["home", "one"]));
    assert!(said.contains("another program has frozen it"), "{said}");
    // A killed command closes its end of the pipe.
    drop(keeper.stdin.take());
    assert!(keeper.wait().unwrap().success());
    write_synced(&attached.join("file"), b"goes on");
    assert!(shown(&mount)[0]["snapshots"].as_array().unwrap().is_empty());
}

/// A process that let the ext4 of a disk stand still, and what it says afterwards.
fn frozen(attached: &Attached) -> (Child, BufReader<ChildStdout>) {
    let mut keeper = Command::new(oncefs())
        .args(["disk", "stand-still"])
        .arg(attached.place.path())
        .arg(fs::metadata(attached.place.path()).unwrap().dev().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    keeper.stdin.as_mut().unwrap().write_all(b"freeze\n").unwrap();
    let mut said = BufReader::new(keeper.stdout.take().unwrap());
    assert_eq!(next_line(&mut said), "frozen\n");
    (keeper, said)
}

fn next_line(said: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    line
}

#[test]
fn a_file_system_goes_on_when_its_command_says_nothing_or_another_program_thaws_it() {
    let mount = Mount::new("256M");
    run(&mut disk(&mount, "create", &["home", "64M"]));
    let attached = Attached::new(&mount, "home", true);

    let (mut keeper, mut said) = frozen(&attached);
    run(Command::new("fsfreeze").arg("--unfreeze").arg(attached.place.path()));
    drop(keeper.stdin.take());
    assert_eq!(next_line(&mut said), "lost\n");
    assert!(!keeper.wait().unwrap().success());

    // Its end of the pipe stays open.
    let (mut keeper, mut said) = frozen(&attached);
    let open = keeper.stdin.take();
    assert_eq!(next_line(&mut said), "late\n");
    assert!(!keeper.wait().unwrap().success());
    write_synced(&attached.join("file"), b"goes on");
    drop(open);
}
