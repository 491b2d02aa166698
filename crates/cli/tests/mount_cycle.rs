//! The life of a mount: it is started, used, and ended in every way, and the next mount finds its state. Not covered:
//! power loss (the engine's crash explorer), POSIX semantics (pjdfstest, fsx).

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{BINARY, Place, Run, content, oncefs};
use oncefs_toolbox::waiting::{PATIENCE, refused_by_the_dead};
use serde_json::Value;

fn stats(place: &Place) -> Value {
    serde_json::from_str(&oncefs(&["stats", "--json", place.mnt_str()]).succeeds().out).expect("stats --json is JSON")
}

#[test]
fn what_was_written_is_there_after_unmount_and_mount() {
    let place = Place::mounted();
    let data = content(1, 3_000_001);
    fs::write(place.file("file"), &data).unwrap();
    fs::create_dir(place.file("dir")).unwrap();
    symlink("file", place.file("link")).unwrap();
    place.umount().succeeds();
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 0);
    place.mount(&[]).succeeds();
    assert_eq!(fs::read(place.file("link")).unwrap(), data);
    assert!(place.file("dir").is_dir());
}

#[test]
fn umount_returns_when_the_daemon_is_gone_and_the_volume_is_free() {
    let place = Place::mounted();
    fs::write(place.file("file"), content(2, 20_000_000)).unwrap();
    place.umount().succeeds();
    assert_eq!(place.daemon(), None);
    assert!(!place.path("volume/control").exists());
    assert!(oncefs(&["fsck", "--data", place.volume_str()]).succeeds().out.contains("clean"));
}

#[test]
fn a_busy_mount_is_not_unmounted_and_the_way_out_is_told() {
    let place = Place::mounted();
    let mut file = File::create(place.file("file")).unwrap();
    oncefs(&["umount", place.mnt_str()]).fails(32, &["in use", "umount -l"]);
    file.write_all(b"still here").unwrap();
    drop(file);
    place.umount().succeeds();
}

#[test]
fn a_forced_unmount_of_a_busy_mount_says_that_it_ended_the_daemon_and_what_is_left_to_do() {
    let place = Place::mounted();
    let mut file = File::create(place.file("file")).unwrap();
    file.write_all(b"synced").unwrap();
    file.sync_all().unwrap();
    oncefs(&["umount", "-f", place.mnt_str()]).fails(32, &["disconnected", "is durable", "get errors", "umount -l"]);
    assert!(place.is_mounted() && place.daemon().is_none());
    File::create(place.file("too late")).unwrap_err();
    oncefs(&["umount", "-l", place.mnt_str()]).succeeds();
    drop(file);
    place.mount(&[]).succeeds();
    assert_eq!(fs::read(place.file("file")).unwrap(), b"synced");
}

#[test]
fn who_lets_go_of_a_mount_while_it_is_unmounted_does_not_keep_it() {
    let place = Place::mounted();
    let file = File::create(place.file("file")).unwrap();
    thread::scope(|scope| {
        let umount = scope.spawn(|| oncefs(&["umount", place.mnt_str()]));
        thread::sleep(Duration::from_millis(300));
        drop(file);
        umount.join().unwrap().succeeds();
    });
    assert_eq!(place.daemon(), None);
}

#[test]
fn a_lazy_unmount_lets_open_files_finish() {
    let place = Place::mounted();
    let mut file = File::create(place.file("file")).unwrap();
    oncefs(&["umount", "-l", place.mnt_str()]).succeeds();
    assert!(!place.is_mounted());
    let daemon = format!("process {}", place.daemon().unwrap());
    oncefs(&["umount", place.volume_str()]).fails(32, &["still in use", &daemon]);
    oncefs(&["fsck", place.volume_str()]).fails(8, &["still in use", &daemon]);
    let status = oncefs(&["status", place.volume_str()]);
    assert!(
        status.code == Some(2) && status.out.contains("still in use") && status.out.contains(&daemon),
        "{status:?}"
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = format!("metrics={}", taken.local_addr().unwrap());
    place.mount(&["-o", &metrics]).fails(32, &["still in use", &daemon]);
    file.write_all(b"after all").unwrap();
    drop(file);
    place.await_daemon_gone();
    place.mount(&[]).succeeds();
    assert_eq!(fs::read(place.file("file")).unwrap(), b"after all");
}

/// The kernel's limits for the device of a directory.
fn limits(dir: &Path) -> String {
    let device = fs::metadata(dir).expect("the directory is there").dev();
    let knobs = format!("/sys/class/bdi/{}:{}", libc::major(device), libc::minor(device));
    let read = |knob| fs::read_to_string(format!("{knobs}/{knob}")).expect("the kernel has it");
    ["strict_limit", "read_ahead_kb", "min_ratio", "max_ratio"].map(read).concat()
}

#[test]
fn a_mount_that_is_taken_away_at_once_leaves_the_device_below_as_it_was() {
    let place = Place::with_volume();
    let before = limits(&place.path(""));
    let mnt = CString::new(place.mnt_str()).unwrap();
    for _ in 0..20 {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the path ends with NUL and outlives the call.
                while unsafe { libc::umount2(mnt.as_ptr(), libc::MNT_DETACH) } != 0 && !over.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            });
            // The message does not matter here, about a mount that is gone or about none.
            drop(place.mount(&[]));
            over.store(true, Ordering::Relaxed);
        });
        if place.is_mounted() {
            place.umount().succeeds();
        }
        place.await_daemon_gone();
        assert_eq!(limits(&place.path("")), before);
    }
    place.mount(&[]).succeeds();
    assert!(limits(&place.mnt()).starts_with("1\n1024\n"), "{}", limits(&place.mnt()));
}

#[test]
fn a_volume_is_unmounted_by_its_own_path_too() {
    let place = Place::mounted();
    oncefs(&["umount", place.volume_str()]).succeeds();
    assert!(!place.is_mounted());
}

#[test]
fn a_volume_is_mounted_once_and_the_message_says_where() {
    let place = Place::mounted();
    fs::create_dir(place.path("second")).unwrap();
    let run = oncefs(&["mount", place.volume_str(), &place.str("second")]);
    run.fails(32, &["already mounted on", place.mnt_str(), "oncefs umount"]);
    fs::write(place.file("file"), "works on").unwrap();
}

#[test]
fn after_kill_9_what_was_synced_is_there_and_mounting_again_needs_no_umount() {
    let place = Place::mounted();
    let data = content(3, 5_000_000);
    let mut file = File::create(place.file("synced")).unwrap();
    file.write_all(&data).unwrap();
    file.sync_all().unwrap();
    drop(file);
    File::open(place.mnt()).unwrap().sync_all().unwrap();
    place.kill_daemon();
    refused_by_the_dead(|| fs::metadata(place.file("never looked up")));

    let run = place.mount(&[]).succeeds();
    assert!(run.err.contains("had died"), "{run:?}");
    assert_eq!(fs::read(place.file("synced")).unwrap(), data);
    place.umount().succeeds();
    oncefs(&["fsck", "--data", place.volume_str()]).succeeds();
}

#[test]
fn after_kill_9_umount_takes_the_dead_mount_away_and_says_so() {
    let place = Place::mounted();
    place.kill_daemon();
    oncefs(&["stats", place.mnt_str()]).fails(1, &["has died", "oncefs revive", "oncefs mount"]);
    let run = place.umount().succeeds();
    assert!(run.err.contains("had died"), "{run:?}");
    assert!(!place.is_mounted());
    place.mount(&[]).succeeds();
}

#[test]
fn a_dead_mount_of_another_volume_is_left_alone() {
    let place = Place::mounted();
    place.kill_daemon();
    oncefs(&["mkfs", "--size", "64M", &place.str("other")]).succeeds();
    oncefs(&["mount", &place.str("other"), place.mnt_str()]).fails(32, &["has died", "oncefs umount"]);
}

#[test]
fn sigterm_unmounts_and_loses_nothing() {
    let place = Place::mounted();
    let data = content(4, 8_000_000);
    fs::write(place.file("file"), &data).unwrap();
    place.signal_daemon(libc::SIGTERM);
    place.await_daemon_gone();
    assert!(!place.is_mounted());
    place.mount(&[]).succeeds();
    assert_eq!(fs::read(place.file("file")).unwrap(), data);
}

#[test]
fn sigterm_with_open_files_ends_within_its_patience() {
    let place = Place::mounted();
    let mut file = File::create(place.file("file")).unwrap();
    file.write_all(b"held open").unwrap();
    place.signal_daemon(libc::SIGTERM);
    place.await_daemon_gone();
    drop(file);
    place.mount(&[]).succeeds();
    assert_eq!(fs::read(place.file("file")).unwrap(), b"held open");
}

#[test]
fn a_read_only_mount_reads_and_refuses_every_change() {
    let place = Place::mounted();
    fs::write(place.file("file"), "content").unwrap();
    place.umount().succeeds();
    place.mount(&["-o", "ro"]).succeeds();
    assert_eq!(fs::read(place.file("file")).unwrap(), b"content");
    for error in [fs::write(place.file("new"), "x").unwrap_err(), fs::remove_file(place.file("file")).unwrap_err()] {
        assert_eq!(error.raw_os_error(), Some(libc::EROFS));
    }
    oncefs(&["mount", "-o", "remount,rw", place.volume_str(), place.mnt_str()]).fails(32, &["opened read-only"]);
    for change in [&["grow", place.mnt_str(), "1T"][..], &["scrub", place.mnt_str(), "--start"]] {
        oncefs(change).fails(1, &["is mounted read-only: unmount it, and mount it without ro"]);
    }
    oncefs(&["policy", "set", place.mnt_str(), "off"]).fails(1, &["read-only", "no policy was changed"]);
    place.umount().succeeds();
}

#[test]
fn a_remount_makes_a_mount_read_only_and_writable_again() {
    let place = Place::mounted();
    let remount = |options: &str| oncefs(&["mount", "-o", options, place.volume_str(), place.mnt_str()]).succeeds();
    remount("remount,ro");
    assert_eq!(fs::write(place.file("file"), "x").unwrap_err().raw_os_error(), Some(libc::EROFS));
    remount("remount,rw");
    fs::write(place.file("file"), "x").unwrap();
}

#[test]
fn duplicates_are_stored_once_and_stats_tell_so_in_both_forms() {
    let place = Place::mounted();
    let data = content(5, 16 << 20);
    for name in ["one", "two"] {
        let mut file = File::create(place.file(name)).unwrap();
        file.write_all(&data).unwrap();
        file.sync_all().unwrap();
    }
    let report = stats(&place);
    let space = |name: &str| report["space"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"));
    assert_eq!(space("held_bytes"), 32 << 20);
    assert!(space("stored_bytes") < 18 << 20, "{report}");
    assert!(report["counters"]["blocks_shared"].as_u64().unwrap() >= 4096, "{report}");
    let text = oncefs(&["stats", place.mnt_str()]).succeeds().out;
    assert_eq!(text.lines().count(), 10, "{text}");
    for line in ["held        32.0 MiB", "saved       16.0 MiB    50.0 % of what is held", "ratio       2.00"] {
        assert!(text.lines().any(|other| other.starts_with(line)), "no line '{line}' in:\n{text}");
    }
    let details = oncefs(&["stats", "-v", place.mnt_str()]).succeeds().out;
    // The host's free space may change between the two commands.
    assert!(details.starts_with(text.split("\nmetadata").next().unwrap()), "{details}");
    let names = |text: &str| -> Vec<String> { text.lines().take(10).map(|line| line[..11].to_owned()).collect() };
    assert_eq!(names(&details), names(&text));
    for word in ["p99.5", "commit", "hit ratio", "blocks_shared", "read_slowdown_percent_max"] {
        assert!(details.contains(word), "no {word} in:\n{details}");
    }
}

#[test]
fn a_volume_grows_while_it_is_mounted_and_while_it_is_not() {
    let place = Place::mounted();
    let size = || {
        let text = Run::of(Command::new("stat").args(["-f", "-c", "%b %S", place.mnt_str()])).succeeds().out;
        let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
        numbers[0] * numbers[1]
    };
    assert_eq!(size(), 256 << 20);
    oncefs(&["grow", place.mnt_str(), "512M"]).succeeds();
    assert_eq!(size(), 512 << 20);
    let data = content(6, 300 << 20);
    fs::write(place.file("big"), &data).unwrap();
    place.umount().succeeds();
    oncefs(&["stats", place.volume_str()]).fails(1, &["is not mounted: mount it first"]);
    oncefs(&["grow", place.volume_str(), "+512M"]).succeeds();
    place.mount(&[]).succeeds();
    assert_eq!(size(), 1 << 30);
    assert!(fs::read(place.file("big")).unwrap() == data);
}

#[test]
fn sync_makes_what_the_kernel_holds_survive_kill_9() {
    let place = Place::mounted();
    let data = content(7, 4_000_000);
    fs::write(place.file("file"), &data).unwrap();
    oncefs(&["sync", place.mnt_str()]).succeeds();
    place.kill_daemon();
    place.mount(&[]).succeeds();
    assert!(fs::read(place.file("file")).unwrap() == data);
}

#[test]
fn umount_waits_for_no_bind_mount_but_says_where_it_is() {
    let place = Place::mounted();
    let bind = place.str("bind");
    fs::create_dir(&bind).unwrap();
    Run::of(Command::new("mount").args(["--bind", place.mnt_str(), &bind])).succeeds();
    let run = place.umount().succeeds();
    assert!(run.err.contains("is still mounted on") && run.err.contains(&bind), "{run:?}");
    assert!(place.daemon().is_some());
    oncefs(&["umount", &bind]).succeeds();
    assert_eq!(place.daemon(), None);
}

#[test]
fn ending_a_bind_mount_says_nothing_of_the_volume_which_stays_mounted() {
    let place = Place::mounted();
    let bind = place.str("bind");
    fs::create_dir(&bind).unwrap();
    Run::of(Command::new("mount").args(["--bind", place.mnt_str(), &bind])).succeeds();
    let run = oncefs(&["umount", &bind]).succeeds();
    assert_eq!((run.out.as_str(), run.err.as_str()), ("", ""), "umount(8) of a bind mount says nothing either");
    assert!(place.daemon().is_some());
    let run = place.umount().succeeds();
    assert_eq!((run.err.as_str(), place.daemon()), ("", None));
}

#[test]
fn a_remount_applies_settings_and_names_what_stays() {
    let place = Place::mounted();
    let remount = |options: &str| oncefs(&["mount", "-o", options, place.volume_str(), place.mnt_str()]);
    let in_use = |wanted: &str| {
        let shown = oncefs(&["tune", place.mnt_str()]).succeeds().out;
        assert!(shown.lines().any(|line| line.split_whitespace().take(2).eq(wanted.split(' '))), "{wanted}: {shown}");
    };
    let run = remount("remount,inline=off,verify=share").succeeds();
    assert_eq!(run.err, "");
    in_use("inline off");
    in_use("verify share");
    let run = remount("remount,inline=all,memory=512M,threads=3,max_write=1M,loglevel=debug").succeeds();
    for name in ["memory", "threads", "max_write", "loglevel"] {
        assert!(run.err.contains(name) && run.err.contains("keeps its"), "{name}: {run:?}");
    }
    in_use("inline all");
    let run = remount("remount,noatime,memory=64M").succeeds();
    assert_eq!(run.err, "", "it has that memory");
    remount("remount,noatime").succeeds();
    in_use("inline all");
}

#[test]
fn deep_paths_do_not_matter() {
    let place = Place::new();
    let mut volume = place.path("deep");
    for _ in 0..8 {
        volume.push("a-directory-name-of-forty-bytes-or-about");
    }
    fs::create_dir_all(&volume).unwrap();
    volume.push("volume with spaces, commas and \u{e9}");
    let volume = volume.to_str().unwrap();
    oncefs(&["mkfs", "--size", "64M", volume]).succeeds();
    oncefs(&["mount", volume, place.mnt_str()]).succeeds();
    oncefs(&["stats", place.mnt_str()]).succeeds();
    place.umount().succeeds();
    oncefs(&["mount", volume, place.mnt_str()]).succeeds();
    oncefs(&["umount", volume]).succeeds();
}

#[test]
fn in_the_foreground_it_logs_to_stderr_notifies_systemd_and_ends_on_sigint() {
    let place = Place::with_volume();
    let socket = UnixDatagram::bind(place.path("notify")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new(BINARY);
    command.args(["mount", "-f", place.volume_str(), place.mnt_str()]);
    let mut daemon = command.env("NOTIFY_SOCKET", place.path("notify")).stderr(Stdio::piped()).spawn().unwrap();
    let mut state = [0; 32];
    let len = socket.recv(&mut state).expect("systemd is told when the mount is there");
    assert_eq!(&state[..len], b"READY=1");
    fs::write(place.file("file"), "x").unwrap();

    // SAFETY: kill takes two integers; the process is this test's own.
    unsafe { libc::kill(daemon.id() as libc::pid_t, libc::SIGINT) };
    let status = daemon.wait().unwrap();
    let mut log = String::new();
    daemon.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(status.success(), "{status}: {log}");
    assert!(log.contains("mounted") && log.contains("SIGINT") && log.contains("unmounted"), "{log}");
    assert!(!place.is_mounted());
}

#[test]
fn a_log_file_tells_the_story_of_the_mount() {
    let place = Place::with_volume();
    let log = place.str("mount.log");
    place.mount(&["--log-file", &log]).succeeds();
    place.umount().succeeds();
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(": info: mounted ") && text.contains(": info: unmounted "), "{text}");
}

#[test]
fn the_kernel_is_tuned_for_the_mount_and_its_global_limit_is_restored() {
    // A process that has turned the knob holds this lock until it turns it back.
    let global = || {
        let lock =
            File::options().read(true).write(true).create(true).truncate(false).open("/run/oncefs-knobs.lock").unwrap();
        lock.lock_shared().unwrap();
        fs::read_to_string("/proc/sys/fs/fuse/max_pages_limit").unwrap()
    };
    let before = global();
    let place = Place::with_volume();
    place.mount(&["-o", "max_write=4M"]).succeeds();
    assert_eq!(global(), before);
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mountinfo.lines().find(|l| l.split(' ').nth(4) == Some(place.mnt_str())).unwrap();
    let knob = |name: &str| -> u64 {
        let path = format!("/sys/class/bdi/{}/{name}", line.split(' ').nth(2).unwrap());
        fs::read_to_string(path).unwrap().trim().parse().unwrap()
    };
    assert_eq!((knob("read_ahead_kb"), knob("strict_limit")), (1024, 1));
    // A volume of 256 MiB allows no more dirty data than it has space for.
    assert!((1 << 20..256 << 20).contains(&knob("max_bytes")), "{}", knob("max_bytes"));
    fs::write(place.file("file"), content(8, 9_000_000)).unwrap();
}

#[test]
fn mounting_and_unmounting_again_and_again_leaves_nothing_behind() {
    let place = Place::with_volume();
    for round in 0..10 {
        place.mount(&[]).succeeds();
        fs::write(place.file(&format!("file{round}")), content(round, 10_000)).unwrap();
        place.umount().succeeds();
    }
    place.mount(&[]).succeeds();
    assert_eq!(fs::read_dir(place.mnt()).unwrap().count(), 10);
}

#[test]
fn a_mount_leaves_two_points_of_history_and_one_that_changes_nothing_none() {
    let place = Place::with_volume();
    let history = place.path("volume/history");
    let bytes = || fs::read(&history).unwrap();
    for points in [2, 4] {
        place.mount(&[]).succeeds();
        fs::write(place.file("file"), content(points, 100_000)).unwrap();
        place.umount().succeeds();
        assert_eq!(bytes().len() as u64, points * 64);
    }
    assert_eq!(fs::metadata(&history).unwrap().mode() & 0o777, 0o600);
    let before = bytes();
    place.mount(&["-o", "ro"]).succeeds();
    place.umount().succeeds();
    assert_eq!(bytes(), before);
}

#[test]
fn no_history_is_no_reason_to_refuse_a_mount() {
    let place = Place::with_volume();
    let history = place.path("volume/history");
    for make in [|at: &Path| fs::create_dir(at).unwrap(), |at: &Path| fs::write(at, [0xA5; 1000]).unwrap()] {
        make(&history);
        place.mount(&[]).succeeds();
        fs::write(place.file("file"), "x").unwrap();
        place.umount().succeeds();
        assert!(oncefs(&["fsck", "--data", place.volume_str()]).succeeds().out.contains("clean"));
        fs::remove_dir(&history).or_else(|_| fs::remove_file(&history)).unwrap();
    }
}
