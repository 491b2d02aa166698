//! `oncefs stats --fragmentation`: the number of runs of a volume's files, their lengths and their shared part, as a
//! table, as JSON and as a picture.
//!
//! Reads all maps in portions. For a volume of any size it keeps only the frequency of each number of runs (k different
//! numbers mean at least k * k / 2 runs, so there are few), a class for each power of two, and ten files.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use oncefs_engine::{BLOCK_BYTES, FileLayout, LayoutCursor, LayoutPortion, Report, RunClass, Sizes};
use oncefs_plot::Bars;
use oncefs_toolbox::{Column, Table};
use serde_json::{Value, json};

use crate::control::answers::FileNames;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::{OrFail, Outcome, exit};
use crate::names::{json as json_text, shown};
use crate::progress::{Progress, Step};
use crate::size::Size;

/// Files shown by name: the most fragmented.
const FILES_SHOWN: usize = 10;
/// Percentiles of the number of runs of a file.
const PERCENTILES: [(&str, u64); 4] = [("p50", 50), ("p90", 90), ("p99", 99), ("max", 100)];

/// Reads all maps and prints the figures.
pub fn run(daemon: &Daemon, plot: Option<&Path>, as_json: bool) -> Outcome {
    let layout = Fragmentation::read(daemon)?;
    let maps = layout.worst.iter().map(|file| file.map).collect();
    let names = daemon.names(maps)?;
    if let Some(path) = plot {
        draw(path, &layout.picture())?;
        if layout.reads.count > 0 {
            draw(&beside(path), &reads_picture(&layout.reads))?;
        }
    }
    match as_json {
        true => say!("{}", json_text(&layout.json(&names))),
        false => put!("{}", layout.text(&names)),
    }
    Ok(())
}

fn draw(path: &Path, picture: &Bars) -> Outcome {
    std::fs::write(path, picture.svg()).or_fail_doing(exit::FAILED, format!("cannot write {}", shown(path)))
}

/// The picture of the reads: `runs-reads.svg` for `runs.svg`.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push("-reads.");
    name.push(path.extension().unwrap_or("svg".as_ref()));
    path.with_file_name(name)
}

/// Requests to the device for blocks of files since the mount, by size.
fn reads_text(reads: &Sizes) -> String {
    let mut text = String::new();
    if reads.count == 0 {
        return text;
    }
    let mean = Size((reads.mean() * BLOCK_BYTES as f64) as u64);
    line(&mut text, format_args!("\n{} reads from the device since the mount, mean {mean}", reads.count));
    let mut table = Table::of([16, 10, 7].map(Column::right)).with_head(&["read of blocks", "reads", ""]);
    read_rows(reads).into_iter().for_each(|row| table.row(row.to_vec()));
    text + &table.plain()
}

/// For each class of sizes: blocks of a read, reads, and their share.
pub fn read_rows(reads: &Sizes) -> Vec<[String; 3]> {
    let row = |(power, count): (usize, &u64)| {
        [sizes_of_class(power, reads.classes.len()), count.to_string(), percent(*count, reads.count)]
    };
    reads.classes.iter().enumerate().filter(|(_, count)| **count > 0).map(row).collect()
}

/// The sizes of a class of reads. The last class has all larger ones.
fn sizes_of_class(power: usize, classes: usize) -> String {
    let last = 1u64 << power;
    match power {
        0 => "1".to_owned(),
        _ if power + 1 == classes => format!("above {}", last / 2),
        1 => "2".to_owned(),
        _ => format!("{}-{last}", last / 2 + 1),
    }
}

pub fn reads_picture(reads: &Sizes) -> Bars {
    let group = |(power, count): (usize, &u64)| (short(power), vec![ratio(*count * 100, reads.count)]);
    Bars {
        title: format!("{} reads from the device, by blocks (at most)", reads.count),
        y_label: "%".to_owned(),
        names: vec!["of the reads".to_owned()],
        groups: reads.classes.iter().enumerate().map(group).collect(),
    }
}

/// The figures of the files seen so far.
#[derive(Debug, Default)]
pub struct Fragmentation {
    files: u64,
    runs: u64,
    blocks: u64,
    /// The number of files by their number of runs.
    files_by_runs: BTreeMap<u64, u64>,
    /// By the power of two in a run's length.
    classes: Vec<RunClass>,
    /// The most fragmented files, in descending order.
    worst: Vec<FileLayout>,
    /// The file that may continue in the next portion.
    open: Option<FileLayout>,
    /// The sizes of reads from the device.
    reads: Sizes,
}

impl Fragmentation {
    /// Reads the figures of all files.
    pub fn read(daemon: &Daemon) -> Outcome<Self> {
        let report: Report = daemon.ask(Request::Stats)?;
        let total = report.space.get("mapped_bytes").map_or(0, |bytes| bytes / BLOCK_BYTES as u64);
        let mut layout = Self { reads: report.device.read_sizes, ..Self::default() };
        let (mut next, mut progress) = (Some(LayoutCursor::default()), Progress::new());
        while let Some(from) = next {
            progress.show("reading the maps of all files", Step::blocks(layout.blocks, total));
            let portion: LayoutPortion = daemon.ask(Request::Layout { from })?;
            next = portion.next;
            layout.add(&portion);
        }
        drop(progress);
        layout.finish_file();
        Ok(layout)
    }

    fn add(&mut self, portion: &LayoutPortion) {
        for file in &portion.files {
            self.runs += file.runs;
            self.blocks += file.blocks;
            match &mut self.open {
                Some(open) if open.map == file.map => {
                    open.runs += file.runs;
                    open.blocks += file.blocks;
                }
                _ => {
                    self.finish_file();
                    self.open = Some(*file);
                }
            }
        }
        self.classes.resize(self.classes.len().max(portion.classes.len()), RunClass::default());
        for (sum, class) in self.classes.iter_mut().zip(&portion.classes) {
            sum.runs += class.runs;
            sum.blocks += class.blocks;
            sum.shared_blocks += class.shared_blocks;
        }
    }

    fn finish_file(&mut self) {
        let Some(file) = self.open.take() else { return };
        self.files += 1;
        *self.files_by_runs.entry(file.runs).or_default() += 1;
        let at = self.worst.partition_point(|worse| (Reverse(worse.runs), worse.map) <= (Reverse(file.runs), file.map));
        self.worst.insert(at, file);
        self.worst.truncate(FILES_SHOWN);
    }

    /// The number of runs that `percent` percent of the files do not exceed.
    fn runs_at_most(&self, percent: u64) -> u64 {
        let wanted = (self.files * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let reaches = |(_, files): &(&u64, &u64)| {
            seen += **files;
            seen >= wanted
        };
        self.files_by_runs.iter().find(reaches).map_or(0, |(runs, _)| *runs)
    }

    fn json(&self, names: &BTreeMap<u64, FileNames>) -> Value {
        let percentiles: BTreeMap<&str, u64> =
            PERCENTILES.iter().map(|(name, percent)| (*name, self.runs_at_most(*percent))).collect();
        let class = |(power, class): (usize, &RunClass)| {
            let RunClass { runs, blocks, shared_blocks } = class;
            json!({ "blocks_min": 1u64 << power, "runs": runs, "blocks": blocks, "shared_blocks": shared_blocks })
        };
        let file = |file: &FileLayout| {
            let FileNames { paths, more } = names.get(&file.map).cloned().unwrap_or_default();
            json!({ "paths": paths, "more_paths": more, "runs": file.runs, "blocks": file.blocks })
        };
        json!({
            "files": self.files,
            "runs": self.runs,
            "blocks": self.blocks,
            "runs_per_file": { "mean": ratio(self.runs, self.files), "at_most": percentiles },
            "run_lengths": self.classes.iter().enumerate().map(class).collect::<Vec<_>>(),
            "device_reads": self.reads,
            "most_fragmented": self.worst.iter().map(file).collect::<Vec<_>>(),
        })
    }

    fn text(&self, names: &BTreeMap<u64, FileNames>) -> String {
        let mut text = String::new();
        let (files, runs, data) = (self.files, self.runs, Size(self.blocks * BLOCK_BYTES as u64));
        line(&mut text, format_args!("{files} files with {data} of data in {runs} runs"));
        let at_most = PERCENTILES.map(|(name, percent)| format!("{name} {}", self.runs_at_most(percent))).join(", ");
        line(&mut text, format_args!("runs of a file: mean {:.2}, {at_most}\n", ratio(runs, files)));
        text + &self.classes_table().plain() + "\n" + &self.worst_table(names).plain() + &reads_text(&self.reads)
    }

    fn classes_table(&self) -> Table {
        let columns = [16, 10, 7, 10, 7, 7].map(Column::right);
        let mut table = Table::of(columns).with_head(&["run of blocks", "runs", "", "data", "", "shared"]);
        self.class_rows().into_iter().for_each(|row| table.row(row.to_vec()));
        table
    }

    /// For each class of lengths: blocks of a run, runs, their share, data, its share, and how much of it is shared.
    pub fn class_rows(&self) -> Vec<[String; 6]> {
        let row = |(power, class): (usize, &RunClass)| {
            [
                lengths(power),
                class.runs.to_string(),
                percent(class.runs, self.runs),
                Size(class.blocks * BLOCK_BYTES as u64).to_string(),
                percent(class.blocks, self.blocks),
                percent(class.shared_blocks, class.blocks),
            ]
        };
        self.classes.iter().enumerate().filter(|(_, class)| class.runs > 0).map(row).collect()
    }

    fn worst_table(&self, names: &BTreeMap<u64, FileNames>) -> Table {
        let columns = [Column::right(12), Column::right(10), Column::right(10), Column::left(0)];
        let mut table = Table::of(columns).with_head(&["runs", "data", "mean run", "most fragmented files"]);
        for file in &self.worst {
            let (data, mean) = (Size(file.blocks * BLOCK_BYTES as u64), mean_run(file));
            let path = names.get(&file.map).and_then(|names| names.paths.first());
            let name = path.map_or_else(|| "a file without a name".to_owned(), |path| shown(path).to_string());
            table.row(vec![file.runs.to_string(), data.to_string(), mean.to_string(), name]);
        }
        table
    }

    /// Shares of runs, of data, and of shared data, by length.
    pub fn picture(&self) -> Bars {
        let share = |part: u64, whole: u64| ratio(part * 100, whole);
        let group = |(power, class): (usize, &RunClass)| {
            let shares = [
                share(class.runs, self.runs),
                share(class.blocks, self.blocks),
                share(class.shared_blocks, class.blocks),
            ];
            (short(power), shares.to_vec())
        };
        Bars {
            title: format!("{} files in {} runs, by blocks of a run", self.files, self.runs),
            y_label: "%".to_owned(),
            names: ["of the runs", "of the data", "of it shared"].map(str::to_owned).to_vec(),
            groups: self.classes.iter().enumerate().map(group).collect(),
        }
    }
}

fn line(text: &mut String, line: std::fmt::Arguments) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", ratio(part, whole) * 100.0)
}

fn mean_run(file: &FileLayout) -> Size {
    Size(file.blocks * BLOCK_BYTES as u64 / file.runs.max(1))
}

/// The lengths of a class.
fn lengths(power: usize) -> String {
    let first = 1u64 << power;
    if power == 0 { "1".to_owned() } else { format!("{first}-{}", 2 * first - 1) }
}

/// The least length of a class, short enough to stand under a bar.
fn short(power: usize) -> String {
    let (value, unit) = (1u64 << (power % 10), ["", "K", "M", "G", "T", "P", "E"][power / 10]);
    format!("{value}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::Name;

    fn layout(files: &[(u64, u64, u64)], classes: &[(u64, u64, u64)]) -> Fragmentation {
        let mut layout = Fragmentation::default();
        let class = |&(runs, blocks, shared_blocks): &(u64, u64, u64)| RunClass { runs, blocks, shared_blocks };
        let files = files.iter().map(|&(map, runs, blocks)| FileLayout { map, runs, blocks }).collect();
        layout.add(&LayoutPortion { files, classes: classes.iter().map(class).collect(), next: None });
        layout.finish_file();
        layout
    }

    #[test]
    fn a_file_in_two_portions_is_one_file() {
        let mut layout = Fragmentation::default();
        let file = |map, runs, blocks| FileLayout { map, runs, blocks };
        for files in [vec![file(1, 1, 300), file(2, 5, 9)], vec![file(2, 3, 4)], vec![file(2, 0, 2), file(3, 1, 1)]] {
            layout.add(&LayoutPortion { files, ..LayoutPortion::default() });
        }
        layout.finish_file();
        assert_eq!((layout.files, layout.runs, layout.blocks), (3, 10, 316));
        assert_eq!(layout.worst, [file(2, 8, 15), file(1, 1, 300), file(3, 1, 1)]);
    }

    #[test]
    fn percentiles_are_of_files() {
        let files: Vec<(u64, u64, u64)> = (1..=100).map(|map| (map, if map <= 90 { 1 } else { map }, 200)).collect();
        let layout = layout(&files, &[]);
        assert_eq!([50, 90, 99, 100].map(|percent| layout.runs_at_most(percent)), [1, 1, 99, 100]);
        let worst: Vec<u64> = layout.worst.iter().map(|file| file.map).collect();
        assert_eq!(worst, (91..=100).rev().collect::<Vec<_>>());
        assert_eq!(Fragmentation::default().runs_at_most(50), 0);
    }

    fn names(paths: &[&str]) -> BTreeMap<u64, FileNames> {
        let paths = paths.iter().map(|path| Name::from(path.as_bytes())).collect();
        BTreeMap::from([(7, FileNames { paths, more: 0 })])
    }

    #[test]
    fn the_table_has_shares_of_runs_and_data_and_the_files_in_most_runs() {
        let layout = layout(&[(7, 3, 10), (9, 1, 2)], &[(2, 2, 1), (0, 0, 0), (2, 10, 5)]);
        let text = layout.text(&names(&["/a", "/b"]));
        for part in [
            "2 files with 48.0 KiB of data in 4 runs",
            "runs of a file: mean 2.00, p50 1, p90 3, p99 3, max 3",
            "               1           2   50.0 %    8.00 KiB   16.7 %   50.0 %",
            "             4-7           2   50.0 %    40.0 KiB   83.3 %   50.0 %",
            "           3    40.0 KiB    13.3 KiB  /a",
            "           1    8.00 KiB    8.00 KiB  a file without a name",
        ] {
            assert!(text.lines().any(|line| line == part), "no line '{part}' in\n{text}");
        }
        assert!(!text.contains("2-3"), "an empty class has no line:\n{text}");
        let tricky = layout.text(&names(&["/a\n\u{1b}[2J"]));
        assert_eq!(tricky.lines().count(), text.lines().count(), "a file is one line:\n{tricky}");
    }

    #[test]
    fn reads_of_the_device_are_told_by_size_if_they_are_counted() {
        let reads = Sizes { count: 10, blocks: 60, classes: vec![5, 0, 3, 0, 2] };
        let text = reads_text(&reads);
        for part in [
            "10 reads from the device since the mount, mean 24.0 KiB",
            "               1           5   50.0 %",
            "             3-4           3   30.0 %",
            "         above 8           2   20.0 %",
        ] {
            assert!(text.lines().any(|line| line == part), "no line '{part}' in\n{text}");
        }
        assert_eq!(reads_text(&Sizes::default()), "");
        assert!(reads_picture(&reads).svg().contains(">16<"));
        assert_eq!(beside(Path::new("/a/b.c.svg")), Path::new("/a/b.c-reads.svg"));
        assert_eq!(beside(Path::new("b")), Path::new("b-reads.svg"));
    }

    #[test]
    fn the_picture_has_a_group_for_each_length() {
        let svg = layout(&[(1, 4, 12)], &[(2, 2, 1), (0, 0, 0), (2, 10, 5)]).picture().svg();
        assert!(svg.contains(">1<") && svg.contains(">2<") && svg.contains(">4<") && svg.contains("of it shared"));
        assert_eq!([0, 9, 10, 12, 21].map(short), ["1", "512", "1K", "4K", "2M"]);
    }
}
