//! Draws the charts of `docs/results/older/selective.md` like the paper's figures.

use oncefs_plot::{Bars, Chart, Series};

use super::args::SelectiveArgs;
use super::cases::Case;
use super::counter::{Counted, SIZES_KIB};
use super::reading::TIMES_MS;
use super::tables::{WHICH_FILES, at, median};
use super::user::User;
use super::workload::Duplicates;
use super::{real, synthetic};

/// Files by name, with their SVG text.
pub fn plots(args: &SelectiveArgs, synthetic: &synthetic::Results, real: &real::Results) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    for duplicates in args.workloads.iter().copied() {
        let readings: Vec<&synthetic::Reading> =
            synthetic.readings.iter().filter(|reading| reading.workload == duplicates).collect();
        if !readings.is_empty() {
            plots.extend(response_plots(args, duplicates, &readings));
            plots.extend(speed_plots(args, duplicates, &readings));
        }
    }
    let counted = synthetic.counted.iter().map(|(duplicates, _, counted)| (duplicates.describe(), counted));
    plots.extend(sizes_plot("selective-figure-8.svg", "Sizes of the synthetic files (figure 8)", counted));
    let counted = real.counted.iter().map(|(user, counted)| (user.describe(), counted));
    plots.extend(sizes_plot("selective-figure-12.svg", "Sizes of real files (figure 12)", counted));
    for user in [User::Desktop, User::Developer] {
        plots.extend(real_plots(args, user, real));
    }
    plots
}

/// Figures 9 and 10: a chart of all files and one of those read sequentially, for each share.
fn response_plots(
    args: &SelectiveArgs,
    duplicates: Duplicates,
    readings: &[&synthetic::Reading],
) -> Vec<(String, String)> {
    let figure = duplicates.figure();
    let mut plots = Vec::new();
    for percent in args.sequential.iter().copied() {
        for (which, of) in WHICH_FILES {
            let title = format!("{which} files, {percent} % read sequentially (figure {figure})");
            let value =
                |case, time: usize| median(&at(readings, case, percent), &|reading| of(reading).percent_within[time]);
            let name = format!("selective-figure-{figure}-{which}-{percent}.svg");
            plots.push((name, times_chart(args, title, &value)));
        }
    }
    plots
}

fn times_chart(args: &SelectiveArgs, title: String, value: &dyn Fn(Case, usize) -> Option<f64>) -> String {
    let points = |case| TIMES_MS.iter().enumerate().filter_map(move |(at, ms)| Some((*ms, value(case, at)?)));
    let series =
        args.cases.iter().map(|case| Series { name: case.describe().to_owned(), points: points(*case).collect() });
    let series = series.filter(|series| !series.points.is_empty()).collect();
    Chart { title, x_label: "at most so many ms".to_owned(), y_label: "% of files".to_owned(), series }.svg()
}

/// Figure 11: speed of all files and of those read sequentially, and what is saved.
fn speed_plots(
    args: &SelectiveArgs,
    duplicates: Duplicates,
    readings: &[&synthetic::Reading],
) -> Vec<(String, String)> {
    type Value = fn(&synthetic::Reading) -> f64;
    let charts: [(&str, &str, &str, Value); 3] = [
        ("all", "Speed of all files", "MB/s", |reading| reading.all.speed()),
        ("sequential", "Speed of sequential files", "MB/s", |reading| reading.sequential.speed()),
        ("saved", "Saved", "%", |reading| reading.saved.percent()),
    ];
    let svg = |(which, what, y_label, value): (&str, &str, &str, Value)| {
        let of = |case, percent| median(&at(readings, case, percent), &value).unwrap_or(0.0);
        let group = |percent: &usize| {
            (format!("{percent}:{}", 100 - percent), args.cases.iter().map(|case| of(*case, *percent)).collect())
        };
        let bars = Bars {
            title: format!("{what}, {} (figure 11)", duplicates.describe()),
            y_label: y_label.to_owned(),
            names: args.cases.iter().map(|case| case.describe().to_owned()).collect(),
            groups: args.sequential.iter().map(group).collect(),
        };
        (format!("selective-figure-11-{which}-{}.svg", duplicates.name()), bars.svg())
    };
    charts.map(svg).to_vec()
}

fn sizes_plot<'a>(
    name: &str,
    title: &str,
    counted: impl Iterator<Item = (&'static str, &'a Counted)>,
) -> Option<(String, String)> {
    let mut series: Vec<Series> = Vec::new();
    for (name, counted) in counted {
        if series.iter().all(|series| series.name != name) {
            let shares = SIZES_KIB.iter().enumerate().map(|(at, kib)| (*kib as f64, counted.percent_up_to(at)));
            series.push(Series { name: name.to_owned(), points: shares.collect() });
        }
    }
    let is_empty = series.is_empty();
    let chart = Chart { title: title.to_owned(), x_label: "KiB".to_owned(), y_label: "% of files".to_owned(), series };
    (!is_empty).then(|| (name.to_owned(), chart.svg()))
}

/// Figures 13 and 14.
fn real_plots(args: &SelectiveArgs, user: User, results: &real::Results) -> Vec<(String, String)> {
    let readings: Vec<&real::Reading> = results.readings.iter().filter(|reading| reading.user == user).collect();
    if readings.is_empty() {
        return Vec::new();
    }
    let of = |case| readings.iter().filter(|reading| reading.case == case).copied().collect::<Vec<_>>();
    let all = |case, time: usize| median(&of(case), &|reading| reading.all.percent_within[time]);
    let sequential = |case, time: usize| median(&of(case), &|reading| reading.sequential.percent_within[time]);
    let title = |what: &str, figure| format!("{what} of a {} (figure {figure})", user.describe());
    let name = |figure| format!("selective-figure-{figure}-{}.svg", user.name());
    vec![
        (name(13), times_chart(args, title("All files", 13), &all)),
        (name(14), times_chart(args, title("Files of rank 1", 14), &sequential)),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::cases::Saved;
    use super::super::reading::Distribution;
    use super::*;

    #[test]
    fn each_figure_that_was_measured_is_drawn() {
        let args = SelectiveArgs::of_tests();
        let distribution = Distribution { files: 1, bytes: 1, seconds: 1.0, percent_within: [50.0; TIMES_MS.len()] };
        let saved = Saved { mapped_bytes: 10, used_bytes: 5, ranks: None };
        let (mut synthetic, mut real) = (synthetic::Results::default(), real::Results::default());
        synthetic.counted.push((Duplicates::High, 0, Counted::default()));
        synthetic.readings.push(synthetic::Reading {
            workload: Duplicates::High,
            case: Case::Small,
            repetition: 0,
            sequential_percent: 10,
            saved: saved.clone(),
            all: distribution.clone(),
            sequential: distribution.clone(),
        });
        let names = |synthetic: &synthetic::Results, real: &real::Results| -> Vec<String> {
            plots(&args, synthetic, real).into_iter().map(|(name, _)| name).collect()
        };
        let drawn = names(&synthetic, &real);
        assert!(drawn.contains(&"selective-figure-9-all-10.svg".to_owned()), "{drawn:?}");
        assert!(drawn.iter().all(|name| !name.contains("-10-all") && !name.contains("-12")), "{drawn:?}");
        real.readings.push(real::Reading {
            user: User::Desktop,
            case: Case::Small,
            repetition: 0,
            saved,
            all: distribution.clone(),
            sequential: distribution,
        });
        assert!(names(&synthetic, &real).contains(&"selective-figure-14-desktop.svg".to_owned()));
    }
}
