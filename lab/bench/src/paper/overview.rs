//! The summary of all papers: how many claims hold, and what falls short first, with its cause.

use std::collections::BTreeSet;

use oncefs_toolbox::Table;

use super::figure::Paper;
use super::page::heading;
use super::readings::Readings;
use super::verdict::{Judged, Verdict, number};

/// The page in Markdown, from the papers with their readings.
pub fn page(papers: &[(&'static Paper, Readings)]) -> String {
    let mut counts = Table::new(&[
        "paper",
        "hold",
        "fall short",
        "not comparable",
        "not measured yet",
        "commit",
        "last",
        "load before, at most",
    ]);
    let mut short = Table::new(&["paper", "figure", "", "paper's", "ours", "bound", "cause"]);
    let mut figures =
        Table::new(&["paper", "figure", "shows", "hold", "fall short", "not comparable", "not measured yet"]);
    for (paper, readings) in papers {
        let link = format!("[{}](paper-{}.md)", paper.name, paper.name);
        let mut all = Vec::new();
        for figure in &paper.figures {
            let judged: Vec<Judged> = figure.claims.iter().map(|claim| Judged::of(claim, readings)).collect();
            judged.iter().filter(|judged| judged.falls_short()).for_each(|judged| {
                short.row(short_cells(&link, &heading(figure), judged));
            });
            figures.row([vec![link.clone(), heading(figure), figure.title.to_owned()], count(&judged)].concat());
            all.extend(judged);
        }
        counts.row([vec![link], count(&all), conditions(readings)].concat());
    }
    format!(
        "# The papers' evaluations, and ours\n\nEvery figure and table of the four papers whose systems oncefs contains: \
         what holds on our mounts, and what does not. `oncefs-bench paper NAME` wrote this page and those of the papers, \
         which have the numbers, the commits and the conditions; [benchmarks](../benchmarks.md#the-papers-evaluations) \
         explains it.\n\n{counts}\n## What falls short\n\n{short}\n## All figures\n\n{figures}"
    )
}

/// The commits, when the last experiment ended, and the greatest load average before one.
fn conditions(readings: &Readings) -> Vec<String> {
    let dates = readings.0.values().map(|stored| stored.date.clone()).max();
    let loads = readings.0.values().filter_map(|stored| stored.load_before.parse::<f64>().ok());
    let dash = || "-".to_owned();
    let commits: BTreeSet<&str> = readings.0.values().map(|stored| stored.commit.as_str()).collect();
    let commits = (!commits.is_empty()).then(|| commits.into_iter().collect::<Vec<_>>().join(", "));
    vec![
        commits.unwrap_or_else(dash),
        dates.unwrap_or_else(dash),
        loads.max_by(f64::total_cmp).map_or_else(dash, |load| format!("{load:.1}")),
    ]
}

fn count(judged: &[Judged]) -> Vec<String> {
    let of = |is: fn(&Verdict) -> bool| judged.iter().filter(|judged| is(&judged.verdict)).count().to_string();
    vec![
        of(|verdict| *verdict == Verdict::Holds),
        of(|verdict| *verdict == Verdict::FallsShort),
        of(|verdict| matches!(verdict, Verdict::NotComparable(_))),
        of(|verdict| *verdict == Verdict::NotMeasured),
    ]
}

fn short_cells(paper: &str, figure: &str, judged: &Judged) -> Vec<String> {
    let claim = judged.claim;
    vec![
        paper.to_owned(),
        figure.to_owned(),
        claim.what.clone(),
        claim.paper.to_owned(),
        judged.ours.map_or("-".to_owned(), |ours| number(ours.median)),
        claim.bound.describe(),
        if claim.cause.is_empty() { "not known".to_owned() } else { claim.cause.to_owned() },
    ]
}
