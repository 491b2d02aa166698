//! Power cuts between and within all steps, and threads that rewrite and free blocks during the scrub.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use oncefs_toolbox::counts::{gate_or_drill, seed};

use super::*;
use crate::fsck::parts::checker;
use crate::volume::assembly::Volume;

const FILES: u64 = 4;
const FILE_BLOCKS: u64 = 24;
/// Rounds of the scrub beside writers, and how many more there may be until it meets damage.
const ROUNDS_MIN: u64 = 400;
const ROUNDS_MAX: u64 = 100_000;

/// Files over a few contents, some of them damaged now and then.
struct Work {
    random: Random,
    devices: Devices,
    volume: Volume,
    /// The content of each block of each file, by number; 0: a hole.
    model: Vec<Vec<u64>>,
    committed: Vec<Vec<u64>>,
    lost: u64,
    right: u64,
}

impl Work {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let inline = if random.below(2) == 0 { Inline::All } else { Inline::Off };
        let fingerprints = if random.below(2) == 0 { FingerprintMode::Eager } else { FingerprintMode::Lazy };
        let verify = [Verify::Off, Verify::Read, Verify::Share][random.below(3) as usize];
        let (devices, volume) =
            volume(Settings { inline, fingerprints, verify, replicate_refs_above: 3, ..one_level() });
        let model = vec![vec![0; FILE_BLOCKS as usize]; FILES as usize];
        Self { random, devices, volume, committed: model.clone(), model, lost: 0, right: 0 }
    }

    fn step(&mut self) {
        let (file, first) = (self.random.below(FILES), self.random.below(FILE_BLOCKS));
        let blocks = 1 + self.random.below(FILE_BLOCKS - first);
        let range = first as usize..(first + blocks) as usize;
        match self.random.below(12) {
            0..3 => {
                let contents: Vec<u64> = range.clone().map(|_| 1 + self.random.below(12)).collect();
                let data: Vec<u8> = contents.iter().flat_map(|content| unique(1, *content)).collect();
                write(&self.volume, file + 1, first, &data);
                self.model[file as usize][range].copy_from_slice(&contents);
            }
            3 => {
                self.volume
                    .range_changes
                    .zero(MapId(file + 1), first * BLOCK, blocks * BLOCK, false, |_, _| ())
                    .unwrap();
                self.model[file as usize][range].fill(0);
            }
            4 => self.damage(file, first),
            5 => self.commit(),
            6 => settle(&self.volume),
            7 => self.volume.repairs.repair_noticed().unwrap(),
            8 => self.volume.groups.release_waiting(),
            9 => drop(self.volume.scrubber.command_scrub(ScrubCommand::Start { rate: None })),
            _ => drop(self.volume.scrubber.scrub_some(1 + self.random.below(256)).unwrap()),
        }
    }

    /// Does nothing if the block is only in memory or in the log.
    fn damage(&mut self, file: u64, lbn: u64) {
        if self.model[file as usize][lbn as usize] > 0 {
            let at = pbn(&self.volume, file + 1, lbn);
            if self.volume.base.staging.get(at).is_none() {
                rot_sectors(&self.devices, at, 1 + self.random.below(8) as usize);
            }
        }
    }

    fn commit(&mut self) {
        self.volume.commits.commit().unwrap();
        self.committed = self.model.clone();
    }

    /// A read returns what was written, or an error. Without verification, rot that no scrub found yet may be read.
    fn compare(&mut self) {
        let verifies = self.volume.base.tuning.verifies_reads();
        for (file, contents) in self.model.iter().enumerate() {
            for (lbn, content) in contents.iter().enumerate() {
                let expected = if *content == 0 { vec![0; BLOCK_BYTES] } else { unique(1, *content) };
                match read(&self.volume, file as u64 + 1, lbn as u64, 1) {
                    Ok(bytes) if bytes == expected => self.right += 1,
                    Ok(_) => assert!(!verifies, "block {lbn} of file {file} is read as something else"),
                    Err(_) => self.lost += 1,
                }
            }
        }
    }

    fn check(&self) {
        // Without the data, because this test is about damage that was not found yet.
        let report = checker(&self.volume).check(false, &mut |_, _| ()).unwrap();
        assert!(report.is_clean(), "{:#?}", report.problems);
    }

    fn power_cut(&mut self) {
        self.devices = self.devices.after_power_cut(&mut self.random);
        self.volume = self.devices.open();
        // A later group than the last acknowledged one may have survived only if the committer ran, which is this test.
        self.model = self.committed.clone();
        self.check();
        self.compare();
    }
}

#[test]
fn power_cuts_anywhere_leave_counts_right_and_no_wrong_bytes() {
    let (first, seeds) = (seed().saturating_sub(1), gate_or_drill(60, 600));
    let mut happened = std::collections::BTreeMap::<String, u64>::new();
    for seed in first..first + seeds {
        println!("seed {seed}");
        let mut work = Work::new(seed);
        for _ in 0..150 {
            work.step();
            if work.random.below(20) == 0 {
                let counters = work.volume.base.stats.counters.snapshot();
                counters.into_iter().for_each(|(name, count)| *happened.entry(name).or_default() += count);
                // Commits made by checkpoint and scrub count as well.
                work.commit();
                (0..work.random.below(6)).for_each(|_| work.quiet_step());
                work.power_cut();
            }
        }
        work.compare();
        scrub(&work.volume);
        scrub(&work.volume);
        work.check();
        work.compare();
        assert_clean(&work.volume);
        *happened.entry("lost".to_owned()).or_default() += work.lost;
        *happened.entry("right".to_owned()).or_default() += work.right;
    }
    for name in
        ["blocks_bad", "blocks_repaired", "blocks_restored", "replicas_made", "replicas_dropped", "lost", "right"]
    {
        println!("{name}: {}", happened[name]);
        assert!(happened[name] > 10, "{name}: the test has to come there");
    }
}

impl Work {
    /// A step that changes no file and that a crash may undo or keep.
    fn quiet_step(&mut self) {
        match self.random.below(4) {
            0 => self.volume.repairs.repair_noticed().unwrap(),
            1 => drop(self.volume.scrubber.command_scrub(ScrubCommand::Start { rate: None })),
            _ => drop(self.volume.scrubber.scrub_some(1 + self.random.below(256)).unwrap()),
        }
    }
}

#[test]
fn a_block_that_was_freed_or_rewritten_before_it_is_marked_is_none_of_the_scrub_s() {
    let (devices, volume) = volume(eager());
    write(&volume, 1, 0, &unique(4, 1));
    settle(&volume);
    let bad = pbn(&volume, 1, 2);
    rot(&devices, bad);
    let _pin = volume.base.pins.pin();
    write(&volume, 1, 2, &unique(1, 7));
    assert!(!volume.repairs.look_at_suspect(bad).unwrap());
    volume.commits.commit().unwrap();
    assert!(!volume.repairs.look_at_suspect(bad).unwrap());
    assert_eq!(volume.affected_files.bad_blocks(), []);
    assert_clean(&volume);
}

/// Writers rewrite and free, readers read, the scrub marks, repairs and copies: no read is wrong and all counts are
/// right.
#[test]
fn files_change_while_the_scrub_looks_at_them() {
    let (devices, volume) = volume(Settings { verify: Verify::Read, replicate_refs_above: 3, ..eager() });
    let stop = AtomicBool::new(false);
    let wrong = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for writer in 1..=2u64 {
            let (volume, stop, wrong) = (&volume, &stop, &wrong);
            scope.spawn(move || {
                let mut random = Random::new(writer);
                let mut held = [0u64; 16];
                while !stop.load(Relaxed) {
                    let at = random.below(16);
                    match random.below(4) {
                        0 => {
                            volume.range_changes.zero(MapId(writer), at * BLOCK, BLOCK, false, |_, _| ()).unwrap();
                            held[at as usize] = 0;
                        }
                        1 => {
                            let expected = if held[at as usize] == 0 {
                                vec![0; BLOCK_BYTES]
                            } else {
                                unique(1, held[at as usize])
                            };
                            match read(volume, writer, at, 1) {
                                Ok(bytes) => drop(wrong.fetch_add(u64::from(bytes != expected), Relaxed)),
                                Err(error) => assert!(matches!(error, Error::Corrupt { .. }), "{error}"),
                            }
                        }
                        _ => {
                            held[at as usize] = 1 + random.below(5);
                            write(volume, writer, at, &unique(1, held[at as usize]));
                        }
                    }
                }
            });
        }
        let mut random = Random::new(99);
        for round in 0..ROUNDS_MAX {
            if round >= ROUNDS_MIN && count(&volume, "blocks_bad") > 0 {
                break;
            }
            volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
            volume.scrubber.scrub_some(256).unwrap();
            volume.repairs.repair_noticed().unwrap();
            volume.commits.commit().unwrap();
            if round % 7 == 0 {
                settle(&volume);
                // Damages a block at rest: one that is live now and not in memory.
                let live: Vec<Pbn> =
                    (1..200).map(Pbn).filter(|pbn| volume.metadata.known_entry(*pbn).unwrap().count > 0).collect();
                let at_rest: Vec<Pbn> =
                    live.into_iter().filter(|pbn| volume.base.staging.get(*pbn).is_none()).collect();
                if let Some(pbn) = at_rest.get(random.below(at_rest.len().max(1) as u64) as usize) {
                    rot(&devices, *pbn);
                }
            }
        }
        stop.store(true, Relaxed);
    });
    assert_eq!(wrong.into_inner(), 0, "reads that gave other bytes than were written");
    assert!(count(&volume, "blocks_bad") > 0);
    volume.commits.commit().unwrap();
    let report = checker(&volume).check(false, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    scrub(&volume);
    scrub(&volume);
    assert_clean(&volume);
}
