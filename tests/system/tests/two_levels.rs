//! The files `hints` and `skipped` of a volume are advice: they are deleted, cut and overwritten while programs write
//! and between mounts, with `kill -9` in between. Nothing fails, nothing is lost, and the savings come back.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use oncefs_system_tests::{Mount, Random, bytes, eventually, gate_or_drill, oncefs, run, seed};

/// Rounds in the gate and in the drill.
const ROUNDS: (u64, u64) = (4, 12);
const WRITERS: u64 = 3;
const BLOCK: usize = 4096;
/// Contents of blocks: far more than 64 KiB of hints can name.
const CONTENTS: u64 = 20_000;
/// Little memory, so that most hints live on disk, and a worker that never rests.
const OPTIONS: [&str; 1] =
    ["profile=smartdedup,hint_prefix_bits=0,hint_memory=64K,skipped_memory=16K,skipped_checkpoint_seconds=1"];

/// A file that was written and synced, and the content of each of its blocks.
struct Written {
    path: PathBuf,
    contents: Vec<u64>,
}

impl Written {
    /// Writes a file whose blocks other files have too; None: the daemon was killed.
    fn new(path: PathBuf, random: &mut Random) -> Option<Self> {
        let first = random.below(CONTENTS);
        let is_run = random.one_in(2);
        let blocks = 1 + random.below(600);
        let contents: Vec<u64> =
            (0..blocks).map(|n| if is_run { (first + n) % CONTENTS } else { random.below(CONTENTS) }).collect();
        let data: Vec<u8> = contents.iter().flat_map(|content| bytes(*content, BLOCK)).collect();
        let mut file = File::create(&path).ok()?;
        file.write_all(&data).and_then(|()| file.sync_all()).ok()?;
        Some(Self { path, contents })
    }

    fn verify(&self) {
        let found = fs::read(&self.path).unwrap();
        assert_eq!(found.len(), self.contents.len() * BLOCK, "{}", self.path.display());
        for (number, (block, content)) in found.chunks_exact(BLOCK).zip(&self.contents).enumerate() {
            assert!(block == bytes(*content, BLOCK), "{} differs in block {number}", self.path.display());
        }
    }
}

/// Deletes, cuts, or overwrites a file of advice.
fn damage(path: &Path, random: &mut Random) {
    let Ok(file) = OpenOptions::new().write(true).open(path) else { return };
    let len = file.metadata().unwrap().len();
    match random.below(4) {
        0 => fs::remove_file(path).unwrap(),
        1 => file.set_len(random.below(len + 1)).unwrap(),
        2 => file.write_all_at(&bytes(7, 64 << 10), random.below(len + 1) / 4096 * 4096).unwrap(),
        _ => file.write_all_at(&bytes(8, BLOCK), 0).unwrap(),
    }
}

/// Waits until programs have written so many files: as many on a slow machine as on a fast one.
fn await_written(files: &AtomicU64, enough: u64) {
    eventually("programs write on", || files.load(Relaxed) >= enough);
}

/// Lets programs write and damages the advice under them; in every second round the daemon is killed at the end.
fn round(mount: &mut Mount, number: u64, seed: u64) -> Vec<Written> {
    let (stop, written_by_now) = (AtomicBool::new(false), AtomicU64::new(0));
    let (dir, volume) = (mount.dir(), mount.volume());
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (dir, stop, written_by_now) = (&dir, &stop, &written_by_now);
                let mut random = Random::new(seed + writer);
                scope.spawn(move || {
                    let mut written = Vec::new();
                    while !stop.load(Relaxed) {
                        let path = dir.join(format!("{number}-{writer}-{}", written.len()));
                        let Some(file) = Written::new(path, &mut random) else { break };
                        written_by_now.fetch_add(1, Relaxed);
                        written.push(file);
                    }
                    written
                })
            })
            .collect();
        let mut random = Random::new(seed + WRITERS);
        for _ in 0..4 {
            await_written(&written_by_now, written_by_now.load(Relaxed) + 1 + random.below(20));
            damage(&volume.join(if random.one_in(3) { "skipped" } else { "hints" }), &mut random);
        }
        if number % 2 == 1 {
            mount.kill();
        }
        stop.store(true, Relaxed);
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
    })
}

#[test]
fn damaging_the_hints_and_the_skipped_buffer_costs_nothing_but_time() {
    let (seed, rounds) = (seed(), gate_or_drill(ROUNDS.0, ROUNDS.1));
    let mut mount = Mount::on(&oncefs_system_tests::test_dir(), "4G", &OPTIONS);
    let mut written: Vec<Written> = Vec::new();
    for number in 0..rounds {
        written.extend(round(&mut mount, number, seed + 100 * number));
        let mut random = Random::new(seed + 100 * number + 50);
        if number % 2 == 1 {
            if random.one_in(2) {
                ["hints", "skipped"].iter().for_each(|name| damage(&mount.volume().join(name), &mut random));
            }
            mount.mount();
        } else {
            mount.remount();
        }
        written.iter().for_each(Written::verify);
    }
    assert!(written.len() as u64 > 4 * rounds, "only {} files were written", written.len());
    assert!(mount.figure("counters", "hints_demoted") > 0, "the disk level must have been in use");
    assert_saved(&mut mount, &mut written);
}

/// A block of a deleted file that is freed while the pass would share it leaves its twins to the next pass. Waits until
/// only the files that are known refer to blocks, and until what others released is free.
fn wait_until_nothing_is_freed(mount: &Mount, written: &[Written]) {
    let blocks: usize = written.iter().map(|file| file.contents.len()).sum();
    mount.wait_for("space", "held_bytes", |mapped| mapped == (blocks * BLOCK) as u64);
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
}

/// Files that a kill left half written are removed; then one pass leaves each content once.
fn assert_saved(mount: &mut Mount, written: &mut [Written]) {
    let known: BTreeSet<&Path> = written.iter().map(|file| file.path.as_path()).collect();
    for entry in fs::read_dir(mount.dir()).unwrap() {
        let path = entry.unwrap().path();
        if !known.contains(path.as_path()) {
            fs::remove_file(path).unwrap();
        }
    }
    wait_until_nothing_is_freed(mount, written);
    run(Command::new(oncefs()).arg("dedup").arg(mount.dir()).args(["--now", "--full"]));
    let unique: BTreeSet<u64> = written.iter().flat_map(|file| file.contents.iter().copied()).collect();
    let label = 1;
    let stored = mount.figure("space", "stored_bytes") / BLOCK as u64;
    let all: usize = written.iter().map(|file| file.contents.len()).sum();
    println!("{all} blocks of {} contents in {} files take {stored} blocks", unique.len(), written.len());
    // The root directory and names are records: no block is anybody's but the files'.
    assert_eq!(stored, unique.len() as u64 + label, "one pass saves all there is to save");
    written.iter().for_each(Written::verify);
    mount.check();
}
