//! Prints the measurements as tables, beside the paper's figures where its text has them.

use oncefs_toolbox::Table;

use super::args::SelectiveArgs;
use super::cases::{Case, Saved};
use super::counter::SIZES_KIB;
use super::reading::{Distribution, TIMES_MS};
use super::user::User;
use super::workload::Duplicates;
use super::{counter, real, synthetic};
use crate::report::{as_markdown, verdict};
use crate::spread::Spread;

/// Aims, which are what the paper reaches with 10 % of the files read sequentially: of the speed of files that are not
/// deduplicated, and of what small chunks save.
const SPEED_PERCENT_MIN: f64 = 97.0;
const SAVED_PERCENT_MIN: f64 = 86.0;
const AIMED_SEQUENTIAL_PERCENT: usize = 10;

/// The tables of figures 8, 9 or 10, and 11.
pub fn synthetic(duplicates: Duplicates, args: &SelectiveArgs, results: &synthetic::Results) -> String {
    let readings: Vec<&synthetic::Reading> =
        results.readings.iter().filter(|reading| reading.workload == duplicates).collect();
    let counted: Vec<&counter::Counted> = results
        .counted
        .iter()
        .filter(|(workload, _, _)| *workload == duplicates)
        .map(|(_, _, counted)| counted)
        .collect();
    let figure = duplicates.figure();
    let mut text =
        format!("\nSynthetic workload, {}\n{}", duplicates.describe(), shares(duplicates, &counted, &readings));
    text += &format!("\nFiles up to so many KiB, % (figure 8)\n{}", sizes(&counted));
    for percent in args.sequential.iter().copied() {
        let heading =
            format!("{percent} % of the files read sequentially (figure {figure}): % of files within so many ms");
        let [all, sequential] = WHICH_FILES.map(|(_, of)| {
            times(args, &|case, time| {
                median(&at(&readings, case, percent), &|reading| of(reading).percent_within[time])
            })
        });
        text += &format!("\n{heading}\nAll files\n{all}\nFiles read sequentially\n{sequential}");
    }
    text += &format!("\nSpeed and savings (figure 11)\n{}", speeds(args, &readings));
    text += &format!("\nRanks after use\n{}", ranks(args, &readings));
    text + &verdicts(args, &readings)
}

/// Response times of one set of files.
pub type Of<R> = fn(&R) -> &Distribution;

/// Sets of files whose response times are told, by name.
pub const WHICH_FILES: [(&str, Of<synthetic::Reading>); 2] =
    [("all", |reading| &reading.all), ("sequential", |reading| &reading.sequential)];

/// The readings of one mount with one share.
pub fn at<'a>(
    readings: &[&'a synthetic::Reading],
    case: Case,
    sequential_percent: usize,
) -> Vec<&'a synthetic::Reading> {
    let is_this =
        |reading: &&&synthetic::Reading| reading.case == case && reading.sequential_percent == sequential_percent;
    readings.iter().filter(is_this).copied().collect()
}

/// The median of a value over repetitions.
pub fn median<T>(readings: &[&T], value: &dyn Fn(&T) -> f64) -> Option<f64> {
    Spread::of(readings.iter().map(|reading| value(reading))).map(|spread| spread.median)
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn spread(values: impl Iterator<Item = f64>, digits: usize) -> String {
    Spread::of(values).map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
}

/// Table 4, and what was saved of it.
fn shares(duplicates: Duplicates, counted: &[&counter::Counted], readings: &[&synthetic::Reading]) -> String {
    let mut table = Table::new(&["duplicates, % of all bytes", "small chunks", "big chunks"]);
    let paper = duplicates.percents().map(|percent| format!("{percent:.1}"));
    table.row([vec!["the paper's (table 4)".to_owned()], paper.to_vec()].concat());
    let count = |chunks: usize| spread(counted.iter().map(|counted| counted.percents()[chunks]), 2);
    table.row(vec!["counted in our files".to_owned(), count(0), count(1)]);
    let saved = |case| {
        let of = readings.iter().filter(|reading| reading.case == case);
        spread(of.map(|reading| reading.saved.percent()), 2)
    };
    table.row(vec!["saved".to_owned(), saved(Case::Small), saved(Case::Big)]);
    as_markdown(table)
}

fn sizes(counted: &[&counter::Counted]) -> String {
    let headings: Vec<String> =
        SIZES_KIB.iter().map(u64::to_string).chain(["files", "MB"].map(str::to_owned)).collect();
    let mut table = Table::new(&[vec!["KiB"], headings.iter().map(String::as_str).collect()].concat());
    if let Some(counted) = counted.first() {
        let shares = (0..SIZES_KIB.len()).map(|size| format!("{:.1}", counted.percent_up_to(size)));
        let sums = [counted.files.to_string(), format!("{:.0}", counted.bytes as f64 / 1e6)];
        table.row(["%".to_owned()].into_iter().chain(shares).chain(sums).collect());
    }
    as_markdown(table)
}

fn times(args: &SelectiveArgs, value: &dyn Fn(Case, usize) -> Option<f64>) -> String {
    let headings: Vec<String> = TIMES_MS.iter().map(f64::to_string).collect();
    let mut table = Table::new(&[vec!["mount"], headings.iter().map(String::as_str).collect()].concat());
    for case in args.cases.iter().copied() {
        let cells = (0..TIMES_MS.len()).map(|time| cell(value(case, time), 1));
        table.row([case.describe().to_owned()].into_iter().chain(cells).collect());
    }
    as_markdown(table)
}

/// A value over that of the mount that is not deduplicated, or another, in the same repetition.
fn against(
    readings: &[&synthetic::Reading],
    (case, baseline): (Case, Case),
    sequential_percent: usize,
    value: &dyn Fn(&synthetic::Reading) -> f64,
) -> Option<Spread> {
    let base = at(readings, baseline, sequential_percent);
    Spread::of(at(readings, case, sequential_percent).into_iter().filter_map(|reading| {
        let base = base.iter().find(|base| base.repetition == reading.repetition)?;
        Some(value(reading) * 100.0 / value(base))
    }))
}

fn speed_of_sequential(reading: &synthetic::Reading) -> f64 {
    reading.sequential.speed()
}

fn speeds(args: &SelectiveArgs, readings: &[&synthetic::Reading]) -> String {
    let headings = [
        "sequential : random",
        "mount",
        "MB/s, all files",
        "MB/s, sequential ones",
        "% of not deduplicated",
        "saved %",
        "% of small chunks",
    ];
    let mut table = Table::new(&headings);
    for percent in args.sequential.iter().copied() {
        for case in args.cases.iter().copied() {
            let of = at(readings, case, percent);
            let ratio = |baseline, value: &dyn Fn(&synthetic::Reading) -> f64| {
                against(readings, (case, baseline), percent, value)
            };
            let shown = |spread: Option<Spread>| spread.map_or("-".to_owned(), |spread| format!("{spread:.1}"));
            table.row(vec![
                format!("{percent} : {}", 100 - percent),
                case.describe().to_owned(),
                spread(of.iter().map(|reading| reading.all.speed()), 1),
                spread(of.iter().map(|reading| reading.sequential.speed()), 1),
                shown(ratio(Case::None, &speed_of_sequential)),
                spread(of.iter().map(|reading| reading.saved.percent()), 1),
                shown(ratio(Case::Small, &|reading| reading.saved.percent())),
            ]);
        }
    }
    as_markdown(table)
}

/// How well the ranks tell what was read sequentially.
fn ranks(args: &SelectiveArgs, readings: &[&synthetic::Reading]) -> String {
    let headings = ["sequential : random", "read sequentially", "% of bytes", "rank 0", "rank 1", "rank 2", "rank 3"];
    let mut table = Table::new(&headings);
    for percent in args.sequential.iter().copied() {
        let Some(reading) = at(readings, Case::Selective, percent).first().copied() else { continue };
        let cells = rank_cells(&reading.saved);
        let bytes = reading.sequential.bytes as f64 * 100.0 / reading.saved.mapped_bytes.max(1) as f64;
        let sequential = [reading.sequential.files.to_string(), format!("{bytes:.1}")];
        let head = [vec![format!("{percent} : {}", 100 - percent)], sequential.to_vec()].concat();
        table.row(head.into_iter().chain(cells).collect());
    }
    as_markdown(table)
}

fn rank_cells(saved: &Saved) -> [String; 4] {
    saved.ranks.map_or(["-"; 4].map(str::to_owned), |ranks| ranks.map(|files| files.to_string()))
}

fn verdicts(args: &SelectiveArgs, readings: &[&synthetic::Reading]) -> String {
    let mut lines = Vec::new();
    for percent in args.sequential.iter().copied() {
        let speed = against(readings, (Case::Selective, Case::None), percent, &speed_of_sequential);
        if let Some(speed) = speed {
            let name =
                format!("{percent} % sequential: speed of files read sequentially, selective over not deduplicated");
            let aim = format!("at least {SPEED_PERCENT_MIN} %");
            lines.push(verdict(&name, speed.median, speed.median >= SPEED_PERCENT_MIN, &aim));
        }
    }
    let saved = |reading: &synthetic::Reading| reading.saved.percent();
    let percent = AIMED_SEQUENTIAL_PERCENT;
    if let Some(saved) = against(readings, (Case::Selective, Case::Small), percent, &saved) {
        let name = format!("{percent} % sequential: saved, selective over small chunks");
        let aim = format!("at least {SAVED_PERCENT_MIN} %");
        lines.push(verdict(&name, saved.median, saved.median >= SAVED_PERCENT_MIN, &aim));
    }
    lines.iter().map(|line| format!("\n{line}")).collect()
}

/// The tables of figures 12 to 14, and table 6.
pub fn real(user: User, args: &SelectiveArgs, results: &real::Results) -> String {
    let readings: Vec<&real::Reading> = results.readings.iter().filter(|reading| reading.user == user).collect();
    let counted: Vec<&counter::Counted> =
        results.counted.iter().filter(|(of, _)| *of == user).map(|(_, counted)| counted).collect();
    let of = |case| readings.iter().filter(|reading| reading.case == case).copied().collect::<Vec<_>>();
    let all = times(args, &|case, time| median(&of(case), &|reading| reading.all.percent_within[time]));
    let sequential = times(args, &|case, time| median(&of(case), &|reading| reading.sequential.percent_within[time]));
    format!(
        "\nFiles of a {}\nFiles up to so many KiB, % (figure 12)\n{}\nRanks and savings (table 6)\n{}\n\
         All files read sequentially (figure 13): % of files within so many ms\n{all}\n\
         Files of rank 1 (figure 14)\n{sequential}",
        user.describe(),
        sizes(&counted),
        table_6(user, &counted, &of(Case::Selective), &|case| {
            spread(of(case).iter().map(|reading| reading.saved.percent()), 1)
        })
    )
}

fn table_6(
    user: User,
    counted: &[&counter::Counted],
    selective: &[&real::Reading],
    saved: &dyn Fn(Case) -> String,
) -> String {
    let headings = ["", "rank 0 %", "rank 1 %", "rank 2 %", "rank 3 %", "saved, selective %", "small %", "big %"];
    let mut table = Table::new(&headings);
    let permilles = user.rank_permilles().map(|permille| format!("{:.1}", permille as f64 / 10.0));
    let paper = user.saved_percents().map(|percent| format!("{percent:.1}"));
    table.row([vec!["the paper".to_owned()], permilles.to_vec(), paper.to_vec()].concat());
    let shares =
        selective.first().and_then(|reading| reading.saved.ranks).map_or(["-"; 4].map(str::to_owned), |ranks| {
            let files: u64 = ranks.iter().sum();
            ranks.map(|rank| format!("{:.1}", rank as f64 * 100.0 / files.max(1) as f64))
        });
    let ours = [Case::Selective, Case::Small, Case::Big].map(saved);
    table.row([vec!["ours".to_owned()], shares.to_vec(), ours.to_vec()].concat());
    let exact = |chunks: usize| spread(counted.iter().map(|counted| counted.percents()[chunks]), 1);
    let none = vec!["-".to_owned(); 5];
    table.row([vec!["counted in our files".to_owned()], none, vec![exact(0), exact(1)]].concat());
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(case: Case, seconds: f64, used_bytes: u64) -> synthetic::Reading {
        let distribution =
            Distribution { files: 10, bytes: 1_000_000, seconds, percent_within: [50.0; TIMES_MS.len()] };
        let ranks = (case == Case::Selective).then_some([1, 2, 3, 4]);
        synthetic::Reading {
            workload: Duplicates::High,
            case,
            repetition: 0,
            sequential_percent: 10,
            saved: Saved { mapped_bytes: 1_000, used_bytes, ranks },
            all: distribution.clone(),
            sequential: distribution,
        }
    }

    fn results(seconds: f64, used_bytes: u64) -> synthetic::Results {
        let counted = counter::Counted { files: 10, bytes: 1_000, small_duplicate_bytes: 700, ..Default::default() };
        let readings = vec![
            reading(Case::None, 1.0, 1_000),
            reading(Case::Small, 2.0, 300),
            reading(Case::Selective, seconds, used_bytes),
        ];
        synthetic::Results { counted: vec![(Duplicates::High, 0, counted)], readings }
    }

    #[test]
    fn an_aim_that_is_missed_is_said() {
        let args = SelectiveArgs::of_tests();
        let met = synthetic(Duplicates::High, &args, &results(1.02, 380));
        assert_eq!(met.matches(": met").count(), 2, "{met}");
        let missed = synthetic(Duplicates::High, &args, &results(1.1, 410));
        assert_eq!(missed.matches(": MISSED").count(), 2, "{missed}");
    }

    #[test]
    fn savings_are_told_beside_what_was_counted_and_the_paper_s() {
        let text = synthetic(Duplicates::High, &SelectiveArgs::of_tests(), &results(1.0, 300));
        for row in ["the paper's (table 4) ", "counted in our files "] {
            let row = text.lines().find(|line| line.contains(row)).unwrap();
            assert!(row.contains("70.3") || row.contains("70.00 (70.00-70.00)"), "{text}");
        }
        let ranks = |line: &str| line.starts_with("| 10 : 90") && line.ends_with("1 |      2 |      3 |      4 |");
        assert!(text.lines().any(ranks), "{text}");
    }
}
