//! The findings of an exploration, as text.

use oncefs_toolbox::{Column, Table};

use crate::explore::{Explorer, Failure};
use crate::point::Point;

/// Counts, and a line for each crash point.
pub fn counts(explorer: &Explorer) -> String {
    let counts = explorer.counts();
    let columns = [Column::right(9), Column::right(11), Column::left(0)];
    let what = "crash point (stage: what was done, what had just happened)";
    let mut table = Table::of(columns).with_head(&["states", "in recovery", what]);
    for (point, [states, nested]) in &counts.points {
        table.row(vec![states.to_string(), nested.to_string(), point.to_string()]);
    }
    format!(
        "{}{} workloads, {} crash states, {} of them within a recovery; {} distinct ones were recovered and judged\n",
        table.plain(),
        counts.workloads,
        counts.enumerated,
        counts.nested,
        explorer.distinct()
    )
}

/// A failure, its place, and the command that repeats it.
pub fn failure(failure: &Failure) -> String {
    let Failure { workload, state, point, what, after } = failure;
    let place = point.map(|point| format!("\n  at:     {point}")).unwrap_or_default();
    let state = state.map(|state| format!(" --state {state}")).unwrap_or_default();
    format!(
        "FAILED after {after} distinct states\n  work:   {workload}{place}\n  wrong:  {what}\n  replay: oncefs-explore replay {workload}{state}\n"
    )
}

/// The crash points among `points` that an exploration of all workloads did not reach.
pub fn not_visited(explorer: &Explorer, points: &[&str]) -> Vec<String> {
    let visited: Vec<String> = explorer.counts().points.keys().map(Point::to_string).collect();
    points.iter().filter(|point| !visited.iter().any(|name| name == *point)).map(|point| (*point).to_owned()).collect()
}
