//! `kill -9` of the daemon while programs write: everything that was acknowledged as durable is there afterwards,
//! byte by byte, and `fsck` finds nothing. What lies between is the last write of each program, old or new.
//!
//! A killed daemon leaves the host's page cache alone, so this shows the order of oncefs's commits, not of its
//! flushes; lost power is the crash explorer's part.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use oncefs_system_tests::{
    InPlace, Lost, Mount, Names, Random, Replaced, Witness, bytes, elapsed, fill, gate_or_drill, seed,
};
use serde_json::json;

/// Rounds in the gate and in the drill; `ONCEFS_KILL_ROUNDS` asks for another number (`scripts/kill-rounds`).
const ROUNDS: (u64, u64) = (3, 200);
/// So small that its log of 8 MiB asks for checkpoints all the time, and freed blocks are soon used again.
const VOLUME: &str = "128M";
/// How many barriers the daemon answers under load, at most, before it is killed: on a slow machine as many as on a fast
/// one.
const BARRIERS_MAX: u64 = 200;
/// How soon a new daemon is killed again, in half of the rounds.
const RECOVERY_MS: u64 = 50;
/// How blocks are shared, round by round: as by default, all in-line, all by the worker, both with few hints, with
/// hints on a sample, in long runs only, by ranks that files get at once.
const SETTINGS: [&str; 7] = [
    "profile=desktop",
    "inline=all",
    "inline=off,worker=always,skipped_checkpoint_seconds=1",
    "worker=always,hint_memory=64K,skipped_checkpoint_seconds=1",
    "profile=server,worker=always,hint_memory=16K,skipped_checkpoint_seconds=1",
    "profile=idedup",
    "worker=always,ranks=on,rank_evaluation_seconds_min=0,rank_evaluation_reads_min=1,rank_hot_seconds_max=1",
];
/// What the daemon counted before it was killed, told to show that there was something to interrupt.
const TOLD: [&str; 5] = ["checkpoints", "blocks_shared", "blocks_remapped", "blocks_cloned", "blocks_freed"];

/// What the rounds did.
#[derive(Default)]
struct Tally {
    kills: u64,
    kills_while_mounting: u64,
    bytes_compared: u64,
    counted: [u64; TOLD.len()],
}

impl Tally {
    fn count(&mut self, mount: &Mount) {
        let stats = mount.stats();
        for (sum, name) in self.counted.iter_mut().zip(TOLD) {
            *sum += stats["counters"][name].as_u64().unwrap_or_else(|| panic!("stats has no {name}"));
        }
    }

    /// The figures, as text and as JSON.
    fn print(&self, rounds: u64, barriers: u64, time: Duration) {
        let Tally { kills, kills_while_mounting, bytes_compared, counted } = self;
        println!(
            "{rounds} rounds: {kills} kills under load, {kills_while_mounting} while mounting; {barriers} fsyncs \
             acknowledged, {bytes_compared} bytes compared, nothing lost"
        );
        let counted: BTreeMap<_, _> = TOLD.iter().zip(counted).collect();
        println!("the killed daemons counted: {counted:?}");
        let figures = json!({
            "passed": true, "rounds": rounds, "kills": kills, "kills_while_mounting": kills_while_mounting,
            "fsyncs_acknowledged": barriers, "bytes_compared": bytes_compared, "seconds": time.as_secs()
        });
        println!("{figures}");
    }
}

fn rounds() -> u64 {
    let asked_for = std::env::var("ONCEFS_KILL_ROUNDS").ok();
    let number = |text: &String| text.parse().unwrap_or_else(|_| panic!("ONCEFS_KILL_ROUNDS={text} is not a number"));
    asked_for.as_ref().map_or_else(|| gate_or_drill(ROUNDS.0, ROUNDS.1), number)
}

fn witnesses(mount: &Mount) -> Vec<Box<dyn Witness>> {
    let in_place = |name, flags| Box::new(InPlace::new(mount.join(name), flags).unwrap()) as Box<dyn Witness>;
    let names = |name| Box::new(Names::new(mount.join(name)).unwrap()) as Box<dyn Witness>;
    let replaced = Box::new(Replaced::new(mount.join("replaced")));
    vec![in_place("a", 0), in_place("b", 0), in_place("sync", libc::O_SYNC), names("c"), names("d"), replaced]
}

fn barriers(witnesses: &[Box<dyn Witness>]) -> u64 {
    witnesses.iter().map(|witness| witness.barriers()).sum()
}

/// An error before the kill would be one that a living daemon gave.
fn work_until_killed(witness: &mut dyn Witness, random: &mut Random, is_killed: &AtomicBool) {
    let error = witness.work(random);
    assert!(is_killed.load(Ordering::SeqCst), "a program met an error before the daemon was killed: {error}");
}

/// Waits until the daemon, which counts from its mount on, has answered so many barriers.
fn await_barriers(mount: &Mount, barriers: u64) {
    mount.wait_for("counters", "barriers", |answered| answered >= barriers);
}

fn run_and_kill(mount: &mut Mount, seed: u64, witnesses: &mut [Box<dyn Witness>], tally: &mut Tally) {
    let mut random = Random::new(seed);
    let is_killed = AtomicBool::new(false);
    thread::scope(|scope| {
        for (number, witness) in witnesses.iter_mut().enumerate() {
            let (mut random, is_killed) = (Random::new(seed + 1 + number as u64), &is_killed);
            scope.spawn(move || work_until_killed(witness.as_mut(), &mut random, is_killed));
        }
        await_barriers(mount, 1 + random.below(BARRIERS_MAX));
        tally.count(mount);
        thread::sleep(Duration::from_micros(random.below(5000)));
        is_killed.store(true, Ordering::SeqCst);
        mount.kill();
        tally.kills += 1;
    });
}

/// In half of the rounds kills again, at most three times, each in the recovery from the one before.
fn kill_in_recovery(mount: &mut Mount, random: &mut Random, tally: &mut Tally) {
    for _ in 0..random.below(2) * (1 + random.below(3)) {
        mount.kill_while_mounting(Duration::from_micros(random.below(1000 * RECOVERY_MS)));
        tally.kills_while_mounting += 1;
    }
}

#[test]
fn what_was_acknowledged_survives_killing_the_daemon() {
    let (seed, rounds, start) = (seed(), rounds(), Instant::now());
    let mut mount = Mount::new(VOLUME);
    let mut witnesses = witnesses(&mount);
    let mut tally = Tally::default();
    for round in 0..rounds {
        let seed_of_round = seed + 100 * round;
        run_and_kill(&mut mount, seed_of_round, &mut witnesses, &mut tally);
        mount.assert_clean();
        mount.set_options(&[SETTINGS[(round + 1) as usize % SETTINGS.len()]]);
        kill_in_recovery(&mut mount, &mut Random::new(seed_of_round + 99), &mut tally);
        mount.mount();
        for witness in &mut witnesses {
            match witness.verify() {
                Ok(bytes) => tally.bytes_compared += bytes,
                Err(Lost(what)) => panic!("round {round} lost what was acknowledged: {what}"),
            }
        }
        println!("round {round}: {} fsyncs acknowledged so far", barriers(&witnesses));
    }
    tally.print(rounds, barriers(&witnesses), start.elapsed());
    assert!(barriers(&witnesses) >= rounds, "the programs must have got something done");
    mount.check();
}

#[test]
fn a_file_open_and_unlinked_when_the_daemon_dies_gives_its_space_back() {
    let mut mount = Mount::new("1G");
    let used = mount.figure("space", "stored_bytes");
    let mut file = File::create(mount.join("gone")).unwrap();
    file.write_all(&bytes(5, 64 << 20)).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(mount.join("gone")).unwrap();
    File::open(mount.dir()).unwrap().sync_all().unwrap();
    assert!(mount.figure("space", "stored_bytes") >= used + (64 << 20), "an open file keeps its space");
    mount.kill();
    drop(file);
    mount.mount();
    mount.wait_for("space", "stored_bytes", |now| now <= used + (1 << 20));
    mount.check();
}

/// Bytes that a process has read by now, from page cache or disk.
fn bytes_read(pid: i32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// What the volume holds beside the last unsynced writes.
const FILE_MIB: u64 = 64;
/// A mount reads the log and what it changes: the block table of such a volume has tens of gigabytes.
const READ_TO_MOUNT_MAX: u64 = 1 << 30;

#[test]
fn a_volume_of_ten_terabytes_is_mounted_after_a_crash_without_reading_it() {
    let mut mount = Mount::new("10T");
    let mut file = File::create(mount.join("file")).unwrap();
    let mut buffer = vec![0; 1 << 20];
    for at in 0..FILE_MIB {
        fill(1, at << 20, &mut buffer);
        file.write_all(&buffer).unwrap();
    }
    file.sync_all().unwrap();
    write_unsynced(&mount.join("unsynced"));
    mount.kill();
    elapsed("mount of 10 TB after kill -9", || mount.mount());
    let read = bytes_read(mount.pid());
    println!("{read} bytes were read to mount it");
    assert!(read < READ_TO_MOUNT_MAX, "{read} bytes were read to mount a crashed volume");
    assert_eq!(fs::metadata(mount.join("file")).unwrap().len(), FILE_MIB << 20);
}

fn write_unsynced(path: &Path) {
    fs::write(path, bytes(2, 16 << 20)).unwrap();
}
