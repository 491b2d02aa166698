//! Sequential writes with scattered duplicates on ext4 and on oncefs in its profiles, in alternation.
//!
//! Duplicates have their sources in the file itself or in another one; the daemon's memory covers everything that is
//! written, or a small part of it.

use oncefs_sim::most_saved;

use super::write_reading::{DESKTOP, EDGE, EXT4, Memory, OFF, Reading, Setting};
use super::writes_table;
use crate::aligned::BLOCK_BYTES;
use crate::failure::{Failure, Result};
use crate::machine;
use crate::measure::Row;
use crate::progress::Progress;
use crate::run::run_once;
use crate::scenario::{Scenario, Source};
use crate::shared_args::Rounds;
use crate::side::{Bench, Side, SideSpec};
use crate::volume::Volume;

/// The sides by their names, with their options.
const SIDES: [(&str, &str); 4] =
    [(EXT4, ""), (DESKTOP, "profile=desktop"), (EDGE, "profile=edge"), (OFF, "profile=desktop,inline=off,worker=off")];
/// The budget of `desktop`.
const DESKTOP_SLOWDOWN_PERCENT: u32 = 100;

/// What is written, on what.
#[derive(Clone, Debug)]
pub(super) struct WriteArgs {
    pub file_bytes: u64,
    pub percents: Vec<usize>,
    /// Whether the device is slow.
    pub throttled: bool,
}

impl WriteArgs {
    fn settings(&self, memory: Memory) -> impl Iterator<Item = Setting> {
        let sources = |percent: usize| if percent == 0 { 1 } else { 2 };
        let of_percent = move |duplicate_percent| {
            let sources = [Source::SameFile, Source::OtherFile].into_iter().take(sources(duplicate_percent));
            sources.map(move |source| Setting { memory, source, duplicate_percent })
        };
        self.percents.iter().copied().flat_map(of_percent)
    }

    fn volume(&self) -> Result<Volume> {
        // A file and its source are prepared before the clock starts if there is room.
        let memory_max = machine::memory_available_bytes()? / 4;
        let file_bytes = self.file_bytes;
        Ok(Volume {
            file_bytes,
            random_bytes: 0,
            synced_writes: 0,
            random_reads: 0,
            tree_files: 0,
            shrinks_to_percent: 100,
            memory_max,
        })
    }
}

/// Measures every setting on every side in every repetition, and prints the tables.
pub(super) fn run(args: &WriteArgs, rounds: Rounds, bench: &Bench) -> Result<Vec<Reading>> {
    let volume = args.volume()?;
    let mut readings = Vec::new();
    for memory in [Memory::Within, Memory::Beyond] {
        let mut sides = create_sides(bench, memory.bytes(args.file_bytes))?;
        let settings: Vec<Setting> = args.settings(memory).collect();
        let progress = Progress::new(settings.len() * rounds.iter().count() * sides.len());
        for setting in settings {
            for (repetition, seed) in rounds.iter() {
                readings.extend(repeat(args, &mut sides, (setting, repetition, seed), &volume, &progress)?);
            }
        }
    }
    println!("\n{}", writes_table::table(args.throttled, &readings));
    println!("{}", writes_table::verdicts(args.throttled, &readings));
    Ok(readings)
}

fn create_sides(bench: &Bench, memory_bytes: u64) -> Result<Vec<Side>> {
    let create = |(index, (label, options)): (usize, &(&str, &str))| {
        let spec =
            if options.is_empty() { EXT4.to_owned() } else { format!("oncefs=-o {options},memory={memory_bytes}") };
        let spec: SideSpec = spec.parse().map_err(Failure::new)?;
        Side::create(bench, &spec, label, index)
    };
    SIDES.iter().enumerate().map(create).collect()
}

/// One repetition: all sides, beginning with another one each time. What shares nothing has no use for duplicates.
fn repeat(
    args: &WriteArgs,
    sides: &mut [Side],
    (setting, repetition, seed): (Setting, usize, u64),
    volume: &Volume,
    progress: &Progress,
) -> Result<Vec<Reading>> {
    let Setting { source, duplicate_percent, .. } = setting;
    progress.say("preparing content".to_owned());
    let body = Scenario::ScatteredWrite { duplicate_percent, source }.prepare(volume, seed)?;
    let mut readings = Vec::new();
    for turn in 0..sides.len() {
        let side = &mut sides[(turn + repetition) % SIDES.len()];
        if side.label() == OFF && duplicate_percent > 0 {
            progress.step();
            continue;
        }
        for row in run_once(side, &body, repetition, args.throttled, progress)? {
            readings.push(judged(setting, row, volume, seed)?);
        }
    }
    Ok(readings)
}

/// Adds what the side could store at best.
fn judged(setting: Setting, row: Row, volume: &Volume, seed: u64) -> Result<Reading> {
    let numbers_only = Volume { memory_max: 0, ..volume.clone() };
    let [before, content] = setting.source.contents(&numbers_only, seed, setting.duplicate_percent)?;
    let exact_bytes = content.unique_bytes();
    let budget = row.piece_cost.filter(|_| row.side == DESKTOP);
    let best_bytes = budget.map_or(exact_bytes, |piece_cost| {
        let files = [before, content].map(|content| content.numbers().iter().copied().map(u64::from).collect());
        row.bytes - most_saved(&files, DESKTOP_SLOWDOWN_PERCENT, piece_cost.blocks) * BLOCK_BYTES as u64
    });
    Ok(Reading { setting, row, exact_bytes, best_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_duplicates_there_is_one_source_and_with_them_two() {
        let args = WriteArgs { file_bytes: 32 << 20, percents: vec![0, 25], throttled: false };
        let settings: Vec<_> =
            args.settings(Memory::Beyond).map(|setting| (setting.duplicate_percent, setting.source)).collect();
        assert_eq!(settings, [(0, Source::SameFile), (25, Source::SameFile), (25, Source::OtherFile)]);
    }
}
