//! Lost power under a file system on a disk. The volume lies on an ext4 of its own. That is shut down at once: from then
//! on nothing reaches the device, and what the host had not flushed is lost. After the power is back the file system on
//! the disk is clean once its journal is replayed, and what it had synced is there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use oncefs_system_tests::{HostDisk, Mount, Random, bytes, eventually, gate_or_drill, oncefs, run, seed, sys};

/// Power cuts in the gate and in the drill.
const ROUNDS: (u64, u64) = (2, 25);
/// After at most so many acknowledged files.
const FILES_MAX: u64 = 20;

fn disk(mount: &Mount, what: &str, more: &[&str]) -> Command {
    let mut command = Command::new(oncefs());
    command.args(["disk", what]).arg(mount.dir()).args(more);
    command
}

fn attach(mount: &Mount) -> PathBuf {
    PathBuf::from(run(&mut disk(mount, "attach", &["home"])).trim())
}

fn content(number: u64) -> Vec<u8> {
    bytes((number + 1) << 32, 1000 + (number * 7919 % 150_000) as usize)
}

/// Replaces a file as careful programs do.
fn replace(dir: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let new = dir.join("new");
    let mut file = File::create(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}

/// Makes files and replaces one, until an error. Counts each that was acknowledged.
fn work(dir: &Path, first: u64, acknowledged: &AtomicU64) {
    for number in first.. {
        let done = replace(dir, &format!("file{number}"), &content(number)).and_then(|()| {
            // Not synced: there may be something to lose.
            let _ = fs::write(dir.join("unsynced"), content(number + 1));
            replace(dir, "last", &number.to_ne_bytes())
        });
        if done.is_err() {
            return;
        }
        acknowledged.store(number + 1, Ordering::SeqCst);
    }
}

/// Replays the journal of the file system on a device, and checks it without repairing anything.
fn check(kind: &str, device: &Path, place: &Path) {
    match kind {
        "ext4" => {
            let replayed = Command::new("e2fsck").args(["-y", "-E", "journal_only"]).arg(device).output().unwrap();
            // 1: something was done.
            assert!(matches!(replayed.status.code(), Some(0 | 1)), "{replayed:?}");
            run(Command::new("fsck.ext4").arg("-fn").arg(device));
        }
        _ => {
            run(Command::new("mount").arg(device).arg(place));
            run(Command::new("umount").arg(place));
            run(Command::new("xfs_repair").arg("-n").arg(device));
        }
    }
}

/// What a failed test leaves.
struct Leftovers<'a>(&'a Path);

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        if sys::is_mounted(self.0) {
            let _ = Command::new("umount").arg("--lazy").arg(self.0).status();
        }
    }
}

fn survives(kind: &str) {
    let host = HostDisk::new(2 << 30);
    let mut mount = Mount::on(&host.path(), "640M", &[]);
    run(&mut disk(&mount, "create", &["home", "320M"]));
    let mut device = attach(&mount);
    run(Command::new(format!("mkfs.{kind}")).arg("-q").arg(&device));
    let place = tempfile::tempdir().unwrap();
    let _leftovers = Leftovers(place.path());
    let (mut random, acknowledged) = (Random::new(seed()), AtomicU64::new(0));
    sys::sync_file_system(&host.path()).unwrap();
    for round in 0..gate_or_drill(ROUNDS.0, ROUNDS.1) {
        run(Command::new("mount").arg(&device).arg(place.path()));
        let first = acknowledged.load(Ordering::SeqCst);
        let until = first + 1 + random.below(FILES_MAX);
        thread::scope(|scope| {
            scope.spawn(|| work(place.path(), first, &acknowledged));
            eventually("files are acknowledged", || acknowledged.load(Ordering::SeqCst) >= until);
            host.lose_power();
        });
        mount.kill();
        run(Command::new("umount").arg(place.path()));
        run(Command::new("losetup").arg("--detach").arg(&device));
        eventually("nothing is mounted on the host", || {
            !sys::is_mounted(&mount.dir()) || {
                let _ = Command::new("umount").arg("-l").arg(mount.dir()).status();
                false
            }
        });
        host.power_is_back();

        mount.mount();
        device = attach(&mount);
        check(kind, &device, place.path());
        run(Command::new("mount").arg(&device).arg(place.path()));
        let kept = acknowledged.load(Ordering::SeqCst);
        for number in 0..kept {
            let found = fs::read(place.path().join(format!("file{number}"))).unwrap();
            assert!(found == content(number), "round {round}: file{number} of {kept}");
        }
        let last = fs::read(place.path().join("last")).unwrap();
        let last = u64::from_ne_bytes(last.try_into().unwrap());
        assert!((kept - 1..=kept).contains(&last), "round {round}: {last} of {kept}");
        run(Command::new("umount").arg(place.path()));
    }
    run(&mut disk(&mount, "detach", &["home"]));
    mount.check();
}

#[test]
fn an_ext4_on_a_disk_is_clean_after_lost_power_and_has_what_it_synced() {
    survives("ext4");
}

#[test]
fn an_xfs_on_a_disk_is_clean_after_lost_power_and_has_what_it_synced() {
    survives("xfs");
}
