//! Disks on a volume without room: their writes and zeroed ranges wait.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use oncefs_system_tests::{Mount, bytes, eventually, oncefs, run, run_json, test_dir};

use super::{Attached, MIB, disk};

/// A command that ends, or is killed: on a full volume a hanging one is what the tests look for.
fn promptly(command: &Command) -> Command {
    let mut timed = Command::new("timeout");
    timed.args(["-s", "KILL", "120"]).arg(command.get_program()).args(command.get_args());
    timed
}

fn attach_waiting(mount: &Mount, name: &str, seconds: &str) -> PathBuf {
    PathBuf::from(run(&mut promptly(&disk(mount, "attach", &[name, "--wait", seconds]))).trim())
}

/// Writes to the mount until it is full, into a file whose removal makes room.
fn fill_up(mount: &Mount, seed: u64) -> PathBuf {
    let ballast = mount.join("ballast");
    let mut file = File::create(&ballast).unwrap();
    let is_full = (0..).find_map(|step| {
        let written = file.write_all(&bytes(seed + (step << 32), MIB as usize)).and_then(|()| file.sync_all());
        written.err()
    });
    assert_eq!(is_full.unwrap().raw_os_error(), Some(libc::ENOSPC));
    ballast
}

fn waiting(mount: &Mount) -> u64 {
    run_json(&mut promptly(&disk(mount, "list", &["--json"])))["disks"][0]["waiting_for_room"].as_u64().unwrap()
}

#[test]
fn writes_of_a_disk_wait_for_room_on_a_full_volume_and_nothing_is_lost_when_it_comes() {
    writes_wait_for_room(&["memory=256M", "transport=classic"]);
}

#[test]
fn writes_of_a_disk_wait_over_rings_as_many_as_its_device_has_under_way() {
    writes_wait_for_room(&["memory=256M", "transport=rings"]);
}

#[test]
fn writes_of_a_disk_wait_over_rings_that_have_no_entry_for_others() {
    writes_wait_for_room(&["memory=64M", "transport=rings"]);
}

fn writes_wait_for_room(options: &[&str]) {
    let mut mount = Mount::on(&test_dir(), "128M", options);
    run(&mut disk(&mount, "create", &["home", "64M"]));
    let device = attach_waiting(&mount, "home", "3600");
    run(Command::new("mkfs.ext4").args(["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"]).arg(&device));
    let attached = Attached { volume: mount.dir(), device, place: tempfile::tempdir().unwrap() };
    let mount_it = || run(Command::new("mount").arg(&attached.device).arg(attached.place.path()));
    mount_it();
    let ballast = fill_up(&mount, 1 << 50);

    let (content, file) = (bytes(1 << 41, 32 * MIB as usize), attached.join("file"));
    let writer = std::thread::spawn({
        let content = content.clone();
        move || File::create(file).and_then(|mut file| file.write_all(&content).and_then(|()| file.sync_all()))
    });
    eventually("a write waits for room", || waiting(&mount) > 0);
    let list = run(&mut promptly(&disk(&mount, "list", &[])));
    assert!(list.contains("home: writes wait for room"), "{list}");
    let health = promptly(Command::new(oncefs()).arg("status").arg(mount.dir())).output().unwrap();
    let health = String::from_utf8(health.stdout).unwrap();
    assert!(health.contains("of disks wait for room") || health.contains("of a disk waits for room"), "{health}");
    assert!(mount.logged().contains("wait for room, up to 3600 s"), "{}", mount.logged());
    // Requests of other files are answered meanwhile: reads, lists, and writes, with an error.
    let mut other = File::create(mount.join("other")).unwrap();
    let refused = other.write_all(&bytes(1 << 42, 4 * MIB as usize)).and_then(|()| other.sync_all());
    assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    drop(other);
    assert!(fs::read(&ballast).unwrap().len() as u64 > MIB);
    assert!(fs::read_dir(mount.dir()).unwrap().count() >= 2);
    assert!(!writer.is_finished());
    fs::remove_file(&ballast).unwrap();
    writer.join().unwrap().unwrap();
    assert_eq!(waiting(&mount), 0);

    attached.umount();
    run(Command::new("fsck.ext4").arg("-fn").arg(&attached.device));
    mount_it();
    assert!(fs::read(attached.join("file")).unwrap() == content);
    attached.umount();
    drop(attached);
    mount.check();
}

#[test]
fn a_write_of_a_disk_waits_over_rings_too_and_is_there_when_room_comes() {
    let mut mount = Mount::on(&test_dir(), "64M", &["memory=256M"]);
    run(&mut disk(&mount, "create", &["home", "16M"]));
    let device = attach_waiting(&mount, "home", "3600");
    let (source, content) = (tempfile::NamedTempFile::new().unwrap(), bytes(1 << 41, 8 * MIB as usize));
    fs::write(source.path(), &content).unwrap();
    let ballast = fill_up(&mount, 1 << 50);
    let of = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut writer = Command::new("dd")
        .args([of("if", source.path()), of("of", &device)])
        .args(["bs=256K", "oflag=direct", "conv=fsync,notrunc", "status=none"])
        .spawn()
        .unwrap();
    eventually("a write waits for room", || waiting(&mount) > 0);
    assert!(fs::read(&ballast).unwrap().len() as u64 > MIB);
    assert!(writer.try_wait().unwrap().is_none());
    fs::remove_file(&ballast).unwrap();
    assert!(writer.wait().unwrap().success());
    assert_eq!(waiting(&mount), 0);
    assert!(fs::read(&device).unwrap()[..content.len()] == content);
    run(&mut disk(&mount, "detach", &["home"]));
    mount.check();
}

#[test]
fn a_zeroed_range_of_a_disk_waits_for_the_room_that_it_takes_and_a_discard_needs_none() {
    let mut mount = Mount::on(&test_dir(), "64M", &["memory=256M"]);
    run(&mut disk(&mount, "create", &["home", "16M"]));
    let device = attach_waiting(&mount, "home", "3600");
    let content = bytes(1 << 41, 2 * MIB as usize);
    let mut written = File::options().write(true).open(&device).unwrap();
    written.write_all(&content).and_then(|()| written.sync_all()).unwrap();
    drop(written);
    // The blocks of the snapshot stay, so that a discard makes no room.
    run(&mut disk(&mount, "snapshot", &["home", "one"]));
    let ballast = fill_up(&mount, 1 << 50);
    let discard = |options: &[&str]| {
        let mut command = Command::new("blkdiscard");
        command.args(options).arg(&device).stderr(Stdio::piped());
        command
    };
    run(&mut promptly(&discard(&["--offset", "0", "--length", "1048576"])));
    let mut waits = discard(&["--zeroout", "--offset", "8388608", "--length", "4194304"]).spawn().unwrap();
    // A list that begins before that reads the disk, and would wait for it.
    eventually("it waits for room", || mount.figure("space", "waiting_for_room") > 0);
    assert!(waits.try_wait().unwrap().is_none() && waiting(&mount) > 0);
    assert!(fs::read(&ballast).unwrap().len() as u64 > MIB);
    fs::remove_file(&ballast).unwrap();
    let output = waits.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(waiting(&mount), 0);
    let found = fs::read(&device).unwrap();
    assert!(found[..MIB as usize].iter().chain(&found[content.len()..]).all(|byte| *byte == 0));
    assert!(found[MIB as usize..content.len()] == content[MIB as usize..]);
    run(&mut disk(&mount, "detach", &["home"]));
    mount.check();
}

#[test]
fn writes_of_a_disk_fail_when_no_room_came_in_time_and_work_when_it_is_there() {
    let mut mount = Mount::on(&test_dir(), "64M", &["memory=256M"]);
    run(&mut disk(&mount, "create", &["home", "16M"]));
    let device = attach_waiting(&mount, "home", "1");
    let ballast = fill_up(&mount, 1 << 50);
    let fill = |seed: u64| {
        let mut device = File::options().write(true).open(&device).unwrap();
        device.write_all(&bytes(seed, 8 * MIB as usize)).and_then(|()| device.sync_all())
    };
    // More than fits and than can wait, without the time for each.
    for step in 0..3_u64 {
        assert!(fill((1 << 41) + (step << 32)).is_err());
    }
    assert_eq!(waiting(&mount), 0);
    assert!(mount.logged().contains("no room came for the disk"), "{}", mount.logged());
    assert!(mount.figure("space", "waited_in_vain") > 0);
    fs::remove_file(&ballast).unwrap();
    eventually("freed room is found", || fill(1 << 44).is_ok());
    assert!(fs::read(&device).unwrap()[..8 * MIB as usize] == bytes(1 << 44, 8 * MIB as usize));
    run(&mut disk(&mount, "detach", &["home"]));
    mount.check();
}

#[test]
fn a_write_of_a_disk_that_takes_some_of_the_last_room_is_done_and_waits_with_its_answer() {
    let mut mount = Mount::on(&test_dir(), "128M", &["memory=256M"]);
    run(&mut disk(&mount, "create", &["home", "16M"]));
    let device = attach_waiting(&mount, "home", "3600");
    let ballast = fill_up(&mount, 1 << 50);
    // A 128th is the reserve: 1 MiB.
    assert_eq!(mount.figure("space", "disk_reserve_bytes"), MIB);
    let file = File::options().write(true).open(&ballast).unwrap();
    file.set_len(file.metadata().unwrap().len() - MIB / 2).unwrap();
    eventually("there is room for some blocks", || mount.figure("space", "available_bytes") >= MIB / 4);
    let source = tempfile::NamedTempFile::new().unwrap();
    fs::write(source.path(), bytes(1 << 41, 4096)).unwrap();
    let of = |name: &str, path: &Path| format!("{name}={}", path.display());
    let mut writer = Command::new("dd")
        .args([of("if", source.path()), of("of", &device)])
        .args(["bs=4K", "oflag=direct", "conv=notrunc", "status=none"])
        .spawn()
        .unwrap();
    eventually("the write waits", || waiting(&mount) == 1);
    fs::write(mount.join("other"), bytes(1 << 42, 4096)).unwrap();
    assert!(writer.try_wait().unwrap().is_none());
    drop(file);
    fs::remove_file(&ballast).unwrap();
    assert!(writer.wait().unwrap().success());
    assert_eq!((waiting(&mount), &fs::read(&device).unwrap()[..4096]), (0, &bytes(1 << 41, 4096)[..]));
    let counted = ["waited_for_room", "waited_in_vain"].map(|name| mount.figure("space", name));
    assert_eq!(counted, [1, 0]);
    run(&mut disk(&mount, "detach", &["home"]));
    mount.check();
}
