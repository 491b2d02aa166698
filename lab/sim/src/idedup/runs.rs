//! Which replays there are, and how they are run.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use oncefs_dedup::Eviction;

use super::experiment::{
    BUDGET, CACHE_PERCENTS, FilerResult, Filers, Idedup, IdedupOptions, IdedupRun, Index, Limit, MEMORY_MIB, Made,
    PHONE_THRESHOLDS, RunResult, SCANT_MEMORIES_MIB, THRESHOLDS,
};
use crate::comparison::bytes_for;
use crate::contents::contents_of;
use crate::design_choice::{DesignChoice, Settings};
use crate::designs::{Design, Threshold, with_skipped_buffer};
use crate::device::DEVICES;
use crate::generate::{CORPORATE, ENGINEERING, Filer, FilerTwin, PHONE};
use crate::optimum::{Limits, saved_within};
use crate::oracle::Truth;
use crate::replay::{Idle, replay};
use crate::served::{Served, read_cold};
use crate::trace::{Event, Place, Read, Recording, Source};
use crate::volume::Volume;

/// A complete index of the paper's takes 1 GB.
const COMPLETE_INDEX_MIB: u64 = 1_024;
/// Percentage of the blocks whose hints two levels have in memory.
const TWO_LEVELS_PERCENT: u64 = 25;
/// The volume is larger than all that is written, as the paper's 432 GB are: no freed block is used again.
const VOLUME_OF_WRITTEN: u64 = 2;
const BLOCK_BYTES: u64 = 4_096;
/// Out-of-line work is done after each hour.
const IDLE: Idle = Idle::Every(Duration::from_secs(3_600));

impl Idedup {
    /// Makes the twins and replays them; `tell` is called after each replay.
    pub fn run(options: IdedupOptions, tell: &(impl Fn(&str) + Sync)) -> Self {
        let filers = [CORPORATE, ENGINEERING].map(|twin| run_twin(twin, &filer_runs(), &options, tell));
        let larger = IdedupOptions { scale: options.phone_scale(), ..options };
        let phone = run_twin(PHONE, &phone_runs(), &larger, tell);
        Self { options, filers: Filers(filers.to_vec()), phone }
    }
}

impl FilerResult {
    /// Replays a corpus by its name, on a machine whose memory is to it what the paper's is to the Corporate trace.
    pub fn of(name: String, recording: &Recording, threads: usize, tell: &(impl Fn(&str) + Sync)) -> Self {
        let written_gb = (recording.blocks() * BLOCK_BYTES) as f64 / 1e9;
        let scale = ((CORPORATE.written_gb / written_gb) as u64).max(1);
        run_all(name, recording, &filer_runs(), scale, threads, tell)
    }
}

fn filer_runs() -> Vec<IdedupRun> {
    let run = |index, blocks, memory_mib| IdedupRun { index, limit: Limit::Blocks(blocks), memory_mib };
    let mut runs = vec![run(Index::None, 1, MEMORY_MIB)];
    for threshold in THRESHOLDS {
        runs.extend([Index::TwoLevels, Index::Extended].map(|index| run(index, threshold, MEMORY_MIB)));
        runs.extend(CACHE_PERCENTS.map(|percent| run(Index::Lru(percent), threshold, MEMORY_MIB)));
    }
    let budget = |device| IdedupRun { index: Index::Extended, limit: Limit::Budget(device), memory_mib: MEMORY_MIB };
    runs.extend((0..DEVICES.len()).map(budget));
    for memory in SCANT_MEMORIES_MIB {
        runs.push(run(Index::None, 1, memory));
        runs.extend(CACHE_PERCENTS.map(|percent| run(Index::Lru(percent), 4, memory)));
    }
    runs
}

fn phone_runs() -> Vec<IdedupRun> {
    let run = |index, blocks| IdedupRun { index, limit: Limit::Blocks(blocks), memory_mib: 0 };
    let mut runs = vec![run(Index::None, 1)];
    runs.extend(PHONE_THRESHOLDS.map(|threshold| run(Index::Extended, threshold)));
    runs
}

fn run_twin(
    twin: FilerTwin,
    runs: &[IdedupRun],
    options: &IdedupOptions,
    tell: &(impl Fn(&str) + Sync),
) -> FilerResult {
    let mut filer =
        Filer::new(twin.spec(options.scale, options.seed)).expect("a test checks the twins' specifications");
    let recording = Recording::of(&mut filer).expect("a made trace has no bad line");
    run_all(twin.name.to_owned(), &recording, runs, options.scale, options.threads, tell)
}

fn run_all(
    name: String,
    recording: &Recording,
    runs: &[IdedupRun],
    scale: u64,
    threads: usize,
    tell: &(impl Fn(&str) + Sync),
) -> FilerResult {
    let truth = Truth::of(recording);
    let (made, at_random) = (Made::of(recording), read_at_random(recording));
    tell(&format!("{name}: {} blocks written", truth.written));
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = replay_once(*run, recording, &at_random, scale);
            let found = truth.percent_of_written(result.outcome.found());
            let hits = result.reads.hit_percent();
            tell(&format!("{name}: {run}: {found:.2} % found, {hits:.2} % of reads cached"));
            results.lock().expect("no replay panics while it holds the lock").insert(*run, result);
        }
    };
    std::thread::scope(|scope| {
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let results = results.into_inner().expect("no replay panics while it holds the lock");
    let optima = optima(runs, recording, &at_random, threads);
    FilerResult { name, scale, truth, made, results, optima }
}

/// What the best choices save within the budgets of these runs, by device.
fn optima(runs: &[IdedupRun], recording: &Recording, at_random: &HashSet<u64>, threads: usize) -> BTreeMap<usize, u64> {
    let devices: Vec<usize> = runs.iter().filter_map(|run| run.limit.device()).collect();
    let files = contents_of(recording);
    let saved = |device: usize| {
        let cost = DEVICES[device].piece_cost();
        (device, saved_within(&files, &Limits { slowdown: BUDGET, cost, at_random }))
    };
    let mut optima = BTreeMap::new();
    for devices in devices.chunks(threads) {
        std::thread::scope(|scope| {
            let started: Vec<_> = devices.iter().map(|device| scope.spawn(|| saved(*device))).collect();
            optima.extend(started.into_iter().map(|thread| thread.join().expect("the reference does not panic")));
        });
    }
    optima
}

fn replay_once(run: IdedupRun, recording: &Recording, at_random: &HashSet<u64>, scale: u64) -> RunResult {
    let (choice, percent) = match run.index {
        Index::None => (DesignChoice::None, 0),
        Index::Lru(percent) => (DesignChoice::IDedup, percent),
        Index::TwoLevels | Index::Extended => (DesignChoice::Oncefs, TWO_LEVELS_PERCENT),
    };
    let bytes = bytes_for(choice.eviction(), recording.blocks() * percent / 100);
    let memory = if choice.eviction() == Eviction::Singles { bytes } else { with_skipped_buffer(bytes) };
    let threshold = match run.limit {
        Limit::Blocks(blocks) => Threshold::Fixed(blocks),
        Limit::Budget(device) => Threshold::Budget { slowdown: BUDGET, cost: DEVICES[device].piece_cost() },
    };
    let settings = Settings {
        memory,
        directory_beside: true,
        prefix_bits: None,
        threshold,
        extends: run.index == Index::Extended,
    };
    let volume = Volume::with_blocks(recording.blocks() * VOLUME_OF_WRITTEN);
    let index_mib = COMPLETE_INDEX_MIB * percent / 100;
    let cache_blocks = (run.memory_mib.saturating_sub(index_mib) << 20) / BLOCK_BYTES / scale;
    let mut served = Served::new(choice.build_on(volume, settings), cache_blocks);
    replay(&mut recording.replay(), &mut [&mut served], None, IDLE).expect("a recording has no bad line");
    served.check();
    let files = served.volume().files().into_iter().filter(|file| !at_random.contains(file));
    let cold = read_cold(served.volume(), files);
    RunResult { outcome: served.outcome(), reads: served.reads().clone(), cold }
}

/// Files most of whose reads begin neither where the last one ended nor at the beginning.
fn read_at_random(recording: &Recording) -> HashSet<u64> {
    // Per file: where its last read ended, and by how many the reads that jump outnumber the others.
    let mut files: HashMap<u64, (u64, i64)> = HashMap::new();
    let mut source = recording.replay();
    while let Some(event) = source.next().expect("a recording has no bad line") {
        if let Event::Read(Read { place: Place { file, lbn }, blocks, .. }) = event {
            let (end, jumps) = files.entry(file).or_default();
            *jumps += if lbn == 0 || lbn == *end { -1 } else { 1 };
            *end = lbn + blocks;
        }
    }
    files.into_iter().filter(|(_, (_, jumps))| *jumps > 0).map(|(file, _)| file).collect()
}

impl Made {
    fn of(recording: &Recording) -> Self {
        let mut made = Self::default();
        let mut source = recording.replay();
        while let Some(event) = source.next().expect("a recording has no bad line") {
            match event {
                Event::Write(_) => made.writes += 1,
                Event::Read(read) => {
                    made.reads += 1;
                    made.read_blocks += read.blocks;
                }
            }
        }
        made
    }
}
