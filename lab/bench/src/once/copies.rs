//! What a second copy of everything adds at once: `cp -a` twice, and the space in use after each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use oncefs_toolbox::Table;
use serde::Serialize;

use super::profiles::profiles;
use crate::aligned::BLOCK_BYTES;
use crate::command;
use crate::content::Content;
use crate::failure::{During, Result, tell};
use crate::files::{self, open};
use crate::measure::Latencies;
use crate::mount::rotated;
use crate::report::{as_markdown, verdict};
use crate::shared_args::Rounds;
use crate::side::{Bench, Side};
use crate::spread::Spread;
use crate::tree::Tree;

/// Bytes of the made tree's small files on average.
const FILE_BYTES_MEAN: u64 = 9 << 10;
/// What a second copy may add to the data area, percent of the first.
const ADDED_PERCENT_MAX: f64 = 2.0;

/// One mount in one repetition.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reading {
    mount: String,
    repetition: usize,
    /// Bytes that files hold after the first copy.
    copied_bytes: u64,
    /// What each copy added to the data area, bytes.
    data_bytes: [u64; 2],
    /// The same, with metadata.
    all_bytes: [u64; 2],
}

impl Reading {
    fn data_percent(&self) -> f64 {
        self.data_bytes[1] as f64 * 100.0 / self.data_bytes[0].max(1) as f64
    }

    fn all_percent(&self) -> f64 {
        self.all_bytes[1] as f64 * 100.0 / self.all_bytes[0].max(1) as f64
    }
}

/// Copies the trees twice on every mount, or as many bytes of a made one.
pub(super) fn run(trees: &[PathBuf], bytes: u64, rounds: Rounds, bench: &Bench) -> Result<Vec<Reading>> {
    let made = bench.directory.join("made-tree");
    let trees = if trees.is_empty() { vec![make(&made, bytes)?] } else { trees.to_vec() };
    let mut readings = Vec::new();
    for (repetition, _) in rounds.iter() {
        for (_, mount) in rotated(&profiles(), repetition) {
            tell(&format!("copies, repetition {}: {}", repetition + 1, mount.name));
            readings.push(measure(&mut mount.begin(bench)?, &mount.name, repetition, &trees)?);
        }
    }
    println!("\n{}", table(&readings));
    println!("{}", verdicts(&readings));
    Ok(readings)
}

/// Half of the bytes in small files, half in a large one.
fn make(root: &Path, bytes: u64) -> Result<PathBuf> {
    fs::create_dir(root).during(|| format!("cannot create {}", root.display()))?;
    let files = (bytes / 2 / FILE_BYTES_MEAN) as usize;
    Tree::generate(1, files).copy_to(root, &mut Latencies::with_capacity(files))?;
    let content = Content::new(2, (bytes / 2) as usize / BLOCK_BYTES, 0, 0)?;
    let file = open(&root.join("large"), true)?;
    files::write_all(&file, &content, &mut Latencies::with_capacity(content.blocks()))?;
    Ok(root.to_owned())
}

fn measure(side: &mut Side, mount: &str, repetition: usize, trees: &[PathBuf]) -> Result<Reading> {
    let mut used = vec![used_bytes(side)?];
    for copy in ["first", "second"] {
        let target = side.root().join(copy);
        fs::create_dir(&target).during(|| format!("cannot create {}", target.display()))?;
        command::run(Command::new("cp").args(["-a", "--reflink=never"]).args(trees).arg(&target))?;
        command::run(Command::new("sync").arg("-f").arg(&target))?;
        used.push(used_bytes(side)?);
    }
    let copied_bytes = side.stats()?.number("space", "held_bytes")? / 2;
    let added = |of: fn(&[u64; 2]) -> u64| [1, 2].map(|copy| of(&used[copy]).saturating_sub(of(&used[copy - 1])));
    let (data_bytes, all_bytes) = (added(|used| used[0]), added(|used| used[1]));
    side.unmount()?;
    Ok(Reading { mount: mount.to_owned(), repetition, copied_bytes, data_bytes, all_bytes })
}

/// In the data area, and with metadata.
fn used_bytes(side: &Side) -> Result<[u64; 2]> {
    Ok([side.stats()?.number("space", "stored_bytes")?, side.used_bytes()?])
}

fn spread(readings: &[Reading], mount: &str, value: &dyn Fn(&Reading) -> f64) -> Option<Spread> {
    Spread::of(readings.iter().filter(|reading| reading.mount == mount).map(value))
}

fn table(readings: &[Reading]) -> String {
    let mut table = Table::new(&["mount", "copied MB", "first adds MB", "second adds MB", "%", "with metadata %"]);
    for mount in profiles() {
        let cell = |digits: usize, value: &dyn Fn(&Reading) -> f64| {
            spread(readings, &mount.name, value).map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
        };
        table.row(vec![
            mount.name.clone(),
            cell(0, &|reading| reading.copied_bytes as f64 / 1e6),
            cell(0, &|reading| reading.data_bytes[0] as f64 / 1e6),
            cell(1, &|reading| reading.data_bytes[1] as f64 / 1e6),
            cell(2, &Reading::data_percent),
            cell(2, &Reading::all_percent),
        ]);
    }
    as_markdown(table)
}

fn verdicts(readings: &[Reading]) -> String {
    let line = |mount: crate::mount::Mount| {
        let percent = spread(readings, &mount.name, &Reading::data_percent)?.median;
        let name = format!("{}: the second copy adds to the data area", mount.name);
        Some(verdict(&name, percent, percent <= ADDED_PERCENT_MAX, "at most 2 %"))
    };
    profiles().into_iter().filter_map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_copy_is_held_against_the_first() {
        let reading = |mount: &str, second| Reading {
            mount: mount.to_owned(),
            repetition: 0,
            copied_bytes: 1_000_000,
            data_bytes: [500_000, second],
            all_bytes: [1_000_000, second + 30_000],
        };
        let readings = [reading("desktop", 5_000), reading("edge", 20_000)];
        let lines = verdicts(&readings);
        assert!(lines.contains("desktop: the second copy adds to the data area: 1.00 % (aim: at most 2 %): met"));
        assert!(lines.contains("edge: the second copy adds to the data area: 4.00 % (aim: at most 2 %): MISSED"));
        assert!(table(&readings).contains("3.50 (3.50-3.50)"), "{}", table(&readings));
    }
}
