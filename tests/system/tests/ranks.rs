//! Ranks on a mounted volume: files are read by programs, days pass by the clock of ranks, and `oncefs dedup --now` gives
//! them their ranks; over a remount, `kill -9` while it ranks, and clocks that jump.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use oncefs_system_tests::{BLOCK, Mount, Random, bytes, oncefs, run, sys, test_dir};

const DAY: i64 = 86_400;
const FILE_BYTES: usize = 128 * BLOCK as usize;
/// Files of each kind: read in sequence, read at random, not read.
const FILES: u64 = 20;
const KINDS: [&str; 3] = ["sequential", "random", "unread"];

fn path(mount: &Mount, kind: usize, n: u64) -> std::path::PathBuf {
    mount.join(format!("{} {n}", KINDS[kind]))
}

/// Half of each file is in all files of its kind.
fn content(kind: usize, n: u64) -> Vec<u8> {
    [bytes(kind as u64, FILE_BYTES / 2), bytes(1_000 + 100 * kind as u64 + n, FILE_BYTES / 2)].concat()
}

fn each_file(mut work: impl FnMut(usize, u64)) {
    (0..KINDS.len()).for_each(|kind| (0..FILES).for_each(|n| work(kind, n)));
}

/// The clock of ranks is so many days ahead.
fn days(mount: &Mount, days: i64) {
    let offset = format!("rank_clock_offset_seconds={}", days * DAY);
    run(Command::new(oncefs()).arg("tune").arg(mount.dir()).arg(offset));
}

fn rank(mount: &Mount) {
    run(Command::new(oncefs()).arg("dedup").arg(mount.dir()).arg("--now"));
}

/// Files by rank.
fn ranks(mount: &Mount) -> Vec<u64> {
    let stats = mount.stats();
    let ranks = stats["ranks"].as_object().unwrap();
    ranks.values().map(|rank| rank["files"].as_u64().unwrap()).collect()
}

fn read_in_sequence(path: &Path) {
    fs::read(path).unwrap();
}

fn read_at_random(path: &Path) {
    let file = File::open(path).unwrap();
    sys::advise_random(&file).unwrap();
    let mut block = [0; BLOCK as usize];
    // No two neighbours after each other.
    (0..3).flat_map(|first| (first..128).step_by(3)).for_each(|at| file.read_exact_at(&mut block, at * BLOCK).unwrap());
}

fn verify(mount: &Mount) {
    each_file(|kind, n| assert!(fs::read(path(mount, kind, n)).unwrap() == content(kind, n), "{} {n}", KINDS[kind]));
}

#[test]
fn files_get_ranks_by_their_reads_and_keep_them_over_remounts_kills_and_jumps_of_the_clock() {
    let mut mount = Mount::on(&test_dir(), "256M", &["ranks=on", "run_blocks_min=256"]);
    each_file(|kind, n| fs::write(path(&mount, kind, n), content(kind, n)).unwrap());
    rank(&mount);
    assert_eq!(ranks(&mount), [3 * FILES, 0, 0, 0]);
    let before = mount.figure("space", "stored_bytes");
    // Nothing of them is in the kernel's cache.
    mount.remount();
    each_file(|kind, n| match kind {
        0 => read_in_sequence(&path(&mount, kind, n)),
        1 => read_at_random(&path(&mount, kind, n)),
        _ => {}
    });
    days(&mount, 3);
    rank(&mount);
    assert_eq!(ranks(&mount), [FILES, FILES, FILES, 0]);
    let saved = before - mount.figure("space", "stored_bytes");
    let shared = 2 * (FILES - 1) * FILE_BYTES as u64 / 2;
    assert!(saved >= shared * 9 / 10, "{saved} bytes of {shared}: the common halves are runs of 64 blocks");
    verify(&mount);
    mount.remount();
    days(&mount, 3);
    rank(&mount);
    assert_eq!(ranks(&mount), [FILES, FILES, FILES, 0]);

    days(&mount, -4_000);
    rank(&mount);
    fs::write(mount.join("written in the past"), bytes(9, 5_000)).unwrap();
    rank(&mount);
    assert_eq!(ranks(&mount), [FILES + 1, FILES, FILES, 0]);
    days(&mount, 30);
    run(Command::new(oncefs()).arg("dedup").arg(mount.dir()).args(["--now", "--background"]));
    thread::sleep(Duration::from_millis(Random::new(1).below(20)));
    mount.crash();
    days(&mount, 30);
    rank(&mount);
    assert_eq!(ranks(&mount)[3], 3 * FILES + 1, "all are cold");
    verify(&mount);
    mount.check();
}
