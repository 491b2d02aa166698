//! The page: a table for each corpus, and one of all for the README.

use clap::ValueEnum;
use oncefs_toolbox::Table;

use super::measure::Reading;
use super::system::System;
use crate::report::as_markdown;
use crate::spread::Spread;

const MIB: f64 = (1u64 << 20) as f64;

/// All tables as Markdown, with what their columns mean.
pub fn tables(readings: &[Reading]) -> String {
    let mut page = format!("## All corpora\n\n{LEGEND_ALL}\n\n{}\n", summary(readings));
    for corpus in corpora(readings) {
        let of: Vec<&Reading> = readings.iter().filter(|reading| reading.corpus == corpus).collect();
        let held = of[0];
        let (held_mib, written_mib) = (held.bytes as f64 / MIB, held.written_bytes as f64 / MIB);
        page += &format!("\n## {corpus}\n\n{held_mib:.0} MiB, {written_mib:.0} of them no holes.\n\n{}\n", table(&of));
    }
    page + "\n" + LEGEND + "\n"
}

const LEGEND_ALL: &str = "Saved: percent of what ext4 takes for the same corpus. The other columns are medians over the \
corpora: times and device writes beside ext4's, and the largest memory of the daemon, of duperemove or of mksquashfs.";

const LEGEND: &str = "Stored is what the file system has in use beyond an empty one, its metadata included; for oncefs \
by its own counters, for squashfs the image. Saved is held against ext4, and *while copying* is what is saved before \
duperemove or oncefs's worker runs, whose time is *later*. Copying ends when the data is durable. Reading is cold: after \
an unmount, with all caches dropped. Memory is the peak of the daemon, of duperemove or of mksquashfs; the kernel's file \
systems have none that can be told apart. Written is what reached the device until it was unmounted, per byte of the \
corpus that is no hole. For squashfs, copying is packing a copy that lies on an ext4.";

fn corpora(readings: &[Reading]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for reading in readings {
        if !names.contains(&reading.corpus.as_str()) {
            names.push(&reading.corpus);
        }
    }
    names
}

/// The systems that were measured, in their order.
fn systems(readings: &[Reading]) -> impl Iterator<Item = System> {
    System::value_variants().iter().copied().filter(|system| readings.iter().any(|reading| reading.system == *system))
}

/// A figure of one system on one corpus: the median of its repetitions.
fn median<'a>(
    readings: impl IntoIterator<Item = &'a Reading>,
    system: System,
    figure: &dyn Fn(&Reading) -> Option<f64>,
) -> Option<f64> {
    let of = readings.into_iter().filter(|reading| reading.system == system);
    Spread::of(of.filter_map(figure)).map(|spread| spread.median)
}

fn cell(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
}

fn table(of: &[&Reading]) -> String {
    let head = ["", "stored MiB", "saved %", "while copying %", "copy s", "later s", "read s", "memory MiB", "written"];
    let mut table = Table::new(&head);
    let of_ext4 = median(of.iter().copied(), System::Ext4, &|reading| Some(reading.stored_bytes as f64));
    let saved = |stored: u64| of_ext4.map(|of_ext4| 100.0 * (1.0 - stored as f64 / of_ext4));
    let owned: Vec<Reading> = of.iter().map(|reading| (*reading).clone()).collect();
    for system in systems(&owned) {
        let figure = |figure: &dyn Fn(&Reading) -> Option<f64>| median(of.iter().copied(), system, figure);
        let works_later = figure(&|reading| reading.later_s).is_some();
        table.row(vec![
            system.name().to_owned(),
            cell(figure(&|reading| Some(reading.stored_bytes as f64 / MIB)), 1),
            cell(figure(&|reading| saved(reading.stored_bytes)), 1),
            cell(figure(&|reading| works_later.then(|| saved(reading.copied_bytes)).flatten()), 1),
            cell(figure(&|reading| Some(reading.copy_s)), 2),
            cell(figure(&|reading| reading.later_s), 2),
            cell(figure(&|reading| Some(reading.read_s)), 2),
            cell(figure(&|reading| reading.memory_bytes.map(|bytes| bytes as f64 / MIB)), 0),
            cell(figure(&|reading| Some(reading.device_bytes as f64 / reading.written_bytes as f64)), 2),
        ]);
    }
    as_markdown(table)
}

/// A row a system: what it saves of each corpus, and the medians of the rest over the corpora.
fn summary(readings: &[Reading]) -> String {
    let corpora = corpora(readings);
    let saved = corpora.iter().map(|corpus| format!("{corpus}, saved %"));
    let head: Vec<String> = std::iter::once(String::new())
        .chain(saved)
        .chain(["copy", "later, of ext4's copy", "cold read", "memory MiB", "device writes"].map(str::to_owned))
        .collect();
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for system in systems(readings) {
        let on = |corpus: &str, system, figure: &dyn Fn(&Reading) -> Option<f64>| {
            median(readings.iter().filter(|reading| reading.corpus == corpus), system, figure)
        };
        let to_ext4 = |figure: &dyn Fn(&Reading) -> Option<f64>, base: &dyn Fn(&Reading) -> Option<f64>| {
            let ratio = |corpus: &&str| Some(on(corpus, system, figure)? / on(corpus, System::Ext4, base)?);
            Spread::of(corpora.iter().filter_map(ratio)).map(|spread| spread.median)
        };
        let stored = |reading: &Reading| Some(reading.stored_bytes as f64);
        let copy = |reading: &Reading| Some(reading.copy_s);
        let memory =
            readings.iter().filter(|reading| reading.system == system).filter_map(|reading| reading.memory_bytes);
        let mut row = vec![system.name().to_owned()];
        row.extend(corpora.iter().map(|corpus| {
            let share = on(corpus, system, &stored).zip(on(corpus, System::Ext4, &stored));
            cell(share.map(|(stored, of_ext4)| 100.0 * (1.0 - stored / of_ext4)), 1)
        }));
        row.push(cell(to_ext4(&copy, &copy), 2));
        row.push(cell(to_ext4(&|reading| reading.later_s, &copy), 2));
        row.push(cell(to_ext4(&|reading| Some(reading.read_s), &|reading| Some(reading.read_s)), 2));
        row.push(cell(memory.max().map(|bytes| bytes as f64 / MIB), 0));
        let written = |reading: &Reading| Some(reading.device_bytes as f64);
        row.push(cell(to_ext4(&written, &written), 2));
        table.row(row);
    }
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(corpus: &str, system: System, stored_bytes: u64, copy_s: f64) -> Reading {
        let later_s = (system == System::OncefsDefault).then_some(2.0);
        Reading {
            corpus: corpus.to_owned(),
            system,
            repetition: 0,
            bytes: 100 << 20,
            written_bytes: 80 << 20,
            copied_bytes: stored_bytes * 3 / 2,
            stored_bytes,
            copy_s,
            later_s,
            read_s: 1.0,
            memory_bytes: later_s.map(|_| 64 << 20),
            device_bytes: stored_bytes,
        }
    }

    fn cells(page: &str, row: &str) -> Vec<Vec<String>> {
        let lines = page.lines().filter(|line| line.starts_with(&format!("| {row} ")));
        lines.map(|line| line.split('|').map(|cell| cell.trim().to_owned()).skip(2).collect()).collect()
    }

    #[test]
    fn savings_are_held_against_ext4_on_the_same_corpus() {
        let readings = [
            reading("npm", System::Ext4, 80 << 20, 1.0),
            reading("npm", System::OncefsDefault, 20 << 20, 2.0),
            reading("vm", System::Ext4, 40 << 20, 1.0),
            reading("vm", System::OncefsDefault, 30 << 20, 4.0),
        ];
        let page = tables(&readings);
        let rows = cells(&page, "oncefs, default");
        assert_eq!(rows[0][..7], ["75.0", "25.0", "3.00", "2.00", "1.00", "64", "0.50"]);
        assert_eq!(rows[1][..8], ["20.0", "75.0", "62.5", "2.00", "2.00", "1.00", "64", "0.25"]);
        assert!(page.contains("\n## vm\n\n100 MiB, 80 of them no holes.\n"), "{page}");
        assert_eq!(cells(&page, "ext4")[1][..4], ["80.0", "0.0", "-", "1.00"]);
    }

    #[test]
    fn without_ext4_nothing_is_held_against_it() {
        let page = tables(&[reading("npm", System::OncefsDefault, 20 << 20, 2.0)]);
        assert_eq!(cells(&page, "oncefs, default")[1][0], "20.0");
        assert!(!page.contains("NaN"), "{page}");
    }
}
