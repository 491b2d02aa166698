//! Measures the read cache's hit ratio by memory for hints, in profile `idedup`: the paper's section 5.7.

use oncefs_toolbox::Table;
use serde::Serialize;

use super::plan::{FILE_BLOCKS, Mix, Replay, ReplayArgs};
use super::replay::{Io, play, prepare, verify_all};
use crate::failure::{Result, tell};
use crate::mount::{Mount, rotated};
use crate::report::as_markdown;
use crate::shared_args::Rounds;
use crate::side::{Bench, Side};
use crate::spread::Spread;

/// Shares of the blocks written that hints have room for, in percent.
const COVERED: [u64; 3] = [100, 50, 25];
/// Thresholds compared.
const THRESHOLDS: [&str; 2] = ["1", "4"];
/// Bytes that a block takes of full `hint_memory`.
const HINT_BYTES: u64 = 28;
/// The daemon's memory over that of hints for all blocks: the paper's 8 GB over its 1 GB.
const MEMORY_PER_HINTS: u64 = 8;
/// The least memory of a daemon.
const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// What one mount showed in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    mount: String,
    repetition: usize,
    /// Blocks found and not found in the read cache.
    lookups: [u64; 2],
    /// Bytes that the read cache may have.
    read_cache_bytes: u64,
    /// Duplicates among the blocks written, and blocks that became references as they were written.
    duplicates: [u64; 2],
}

/// Plays the replay on every mount and prints the table.
pub fn run(args: &ReplayArgs, rounds: Rounds, bench: &Bench) -> Result<Vec<Reading>> {
    let mut readings = Vec::new();
    let mut names = Vec::new();
    for (repetition, seed) in rounds.iter() {
        let replay = args.replay(Mix::Corporate, seed);
        let mounts = mounts((replay.files_before * FILE_BLOCKS + replay.blocks(true)) as u64);
        for (_, mount) in rotated(&mounts, repetition) {
            tell(&format!("cache, repetition {}: {}", repetition + 1, mount.name));
            readings.push(measure(bench, mount, repetition, &replay)?);
        }
        names = mounts.into_iter().map(|mount| mount.name).collect();
    }
    println!(
        "\nRead cache by memory for hints, profile idedup, {}\n{}",
        Mix::Corporate.describe(),
        table(&names, &readings)
    );
    Ok(readings)
}

fn mounts(blocks: u64) -> Vec<Mount> {
    let memory = (blocks * HINT_BYTES * MEMORY_PER_HINTS).max(MEMORY_BYTES_MIN);
    let mount = |threshold: &str, percent: u64| Mount {
        name: format!("{threshold}, hints for {percent} %"),
        options: format!(
            "profile=idedup,run_blocks_min={threshold},memory={memory},hint_memory={}",
            blocks * HINT_BYTES * percent / 100
        ),
    };
    THRESHOLDS.iter().flat_map(|threshold| COVERED.map(|percent| mount(threshold, percent))).collect()
}

fn measure(bench: &Bench, mount: &Mount, repetition: usize, replay: &Replay) -> Result<Reading> {
    let mut side = mount.begin(bench)?;
    prepare(&side, replay)?;
    let before = counts(&side)?;
    play(&side, replay, Io::Direct)?;
    let after = counts(&side)?;
    let read_cache_bytes = side.stats()?.number_at(&["caches", "read", "bytes_max"])?;
    side.remount_cold()?;
    verify_all(&side, replay)?;
    side.unmount()?;
    let [hits, misses, shared] = [0, 1, 2].map(|count| after[count] - before[count]);
    let duplicates = [replay.duplicate_blocks() as u64, shared];
    Ok(Reading { mount: mount.name.clone(), repetition, lookups: [hits, misses], read_cache_bytes, duplicates })
}

fn counts(side: &Side) -> Result<[u64; 3]> {
    let figures = side.stats()?;
    let cache = |name| figures.number_at(&["caches", "read", name]);
    Ok([cache("hits")?, cache("misses")?, figures.number("counters", "blocks_shared")?])
}

fn table(mounts: &[String], readings: &[Reading]) -> String {
    let headings = ["run_blocks_min", "read cache MB", "hits %", "shared % of duplicates"];
    let mut table = Table::new(&headings);
    for mount in mounts {
        let spread = |value: &dyn Fn(&Reading) -> f64| {
            let of = readings.iter().filter(|reading| reading.mount == *mount);
            Spread::of(of.map(value)).map_or("-".to_owned(), |spread| format!("{spread:.1}"))
        };
        let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        table.row(vec![
            mount.clone(),
            spread(&|reading| reading.read_cache_bytes as f64 / 1e6),
            spread(&|reading| percent(reading.lookups[0], reading.lookups[0] + reading.lookups[1])),
            spread(&|reading| percent(reading.duplicates[1], reading.duplicates[0])),
        ]);
    }
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_get_their_share_and_the_daemon_eight_times_as_much_as_all_of_them() {
        let mounts = mounts(1_000_000);
        assert_eq!(mounts.len(), COVERED.len() * THRESHOLDS.len());
        assert!(mounts[1].options.ends_with("run_blocks_min=1,memory=224000000,hint_memory=14000000"), "{mounts:?}");
    }

    #[test]
    fn hits_are_told_in_percent_of_all_look_ups() {
        let mount = "4, hints for 50 %".to_owned();
        let reading = Reading {
            mount: mount.clone(),
            repetition: 0,
            lookups: [30, 10],
            read_cache_bytes: 1_000_000,
            duplicates: [200, 100],
        };
        let text = table(&[mount], &[reading]);
        assert!(text.contains("75.0 (75.0-75.0)") && text.contains("50.0 (50.0-50.0)"), "{text}");
    }
}
