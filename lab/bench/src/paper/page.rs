//! The page of a paper: its figures in its order, each with the paper's numbers, ours, verdicts and the chart.

use oncefs_toolbox::Table;

use super::figure::{Figure, Paper};
use super::plots;
use super::readings::{Readings, Stored};
use super::verdict::{Judged, number};
use crate::spread::Spread;

/// The page in Markdown. Charts are beside it, in `plots`.
pub fn page(paper: &Paper, readings: &Readings, drawn: impl Fn(&Figure) -> bool) -> String {
    let mut text = format!(
        "# {}\n\n{}\n\n`oncefs-bench paper {}` wrote this page; [benchmarks](../benchmarks.md#the-papers-evaluations) \
         explains it. The verdicts of all papers: [summary](papers.md).\n\n",
        paper.title, paper.about, paper.name
    );
    text.push_str(&conditions(paper, readings));
    for figure in &paper.figures {
        text.push_str(&section(paper, figure, readings, drawn(figure)));
    }
    text
}

fn conditions(paper: &Paper, readings: &Readings) -> String {
    let stored: Vec<&Stored> =
        paper.experiments().iter().filter_map(|experiment| readings.0.get(experiment.name)).collect();
    let Some(first) = stored.first() else { return "Nothing was measured yet.\n".to_owned() };
    let mut table = Table::new(&[
        "oncefs-bench ...",
        "commit",
        "repetitions",
        "ended, UTC",
        "minutes",
        "load before",
        "load after",
    ]);
    for stored in &stored {
        let words: Vec<String> = stored.words.iter().map(|word| quoted(word)).collect();
        table.row(vec![
            format!("`{}`", words.join(" ")),
            stored.commit.clone(),
            stored.repetitions.to_string(),
            stored.date.clone(),
            format!("{:.1}", stored.minutes),
            stored.load_before.clone(),
            stored.load_after.clone(),
        ]);
    }
    let is_busy = stored.iter().any(|stored| stored.is_busy());
    let alone = match is_busy {
        true => {
            "**Other work ran on the machine meanwhile**, as the load averages show: times are of mounts that suffered \
             from it alike, by turns, so ratios are nearer to the truth than times, and a verdict of such a run is no \
             proof. A cause that is given is what is known of it, beside that load."
        }
        false => "Nothing else ran on the machine.",
    };
    let build = match stored.iter().any(|stored| stored.is_debug) {
        true => " **oncefs was a debug build in part, whose times say nothing.**",
        false => "",
    };
    format!(
        "Machine: {}. {alone}{build} Figures below name the paper's sizes; those that were used are among the words here.\n\n{table}",
        first.machine
    )
}

/// A word as a shell needs it.
fn quoted(word: &str) -> String {
    if word.contains(' ') { format!("\"{word}\"") } else { word.to_owned() }
}

fn section(paper: &Paper, figure: &Figure, readings: &Readings, has_chart: bool) -> String {
    let mut text = format!("\n## {}: {}\n\n{}\n\n", heading(figure), figure.title, figure.note);
    let mut table = Table::new(&["", "paper", "ours: median (range)", "ours to paper", "bound", "verdict"]);
    let mut causes: Vec<&str> = Vec::new();
    for claim in &figure.claims {
        let judged = Judged::of(claim, readings);
        if judged.falls_short() && !claim.cause.is_empty() && !causes.contains(&claim.cause) {
            causes.push(claim.cause);
        }
        table.row(cells(&judged));
    }
    text.push_str(&table.to_string());
    causes.iter().for_each(|cause| text.push_str(&format!("\nShort because: {cause}.\n")));
    if has_chart {
        let file = plots::file_name(paper, figure);
        text.push_str(&format!("\n![{}](plots/{file})\n", figure.title));
    }
    text
}

/// "Figure 3", or what the paper calls it.
pub fn heading(figure: &Figure) -> String {
    match figure.number.starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("Figure {}", figure.number),
        false => figure.number.to_owned(),
    }
}

fn cells(judged: &Judged) -> Vec<String> {
    let dash = || "-".to_owned();
    let ours = |spread: Spread| match spread.min == spread.max {
        true => number(spread.median),
        false => format!("{} ({} to {})", number(spread.median), number(spread.min), number(spread.max)),
    };
    vec![
        judged.claim.what.clone(),
        judged.claim.paper.to_owned(),
        judged.ours.map_or_else(dash, ours),
        judged.ratio().map_or_else(dash, number),
        judged.claim.bound.describe(),
        judged.describe(),
    ]
}
