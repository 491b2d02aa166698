//! Runs that are shown in one line.

use oncefs_engine::{Compressed, ExplainedRun, What};

/// One line: shared runs that continue each other form one line, however many places refer to each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its blocks. For shared ones, the largest number of references to one of them.
    pub run: ExplainedRun,
    /// References to its blocks from places other than the run itself.
    pub other_references: u64,
}

fn is_one_line(a: &ExplainedRun, b: &ExplainedRun) -> bool {
    let are_shared = matches!((&a.what, &b.what), (What::Shared { .. }, What::Shared { .. }));
    let goes_on = match (&a.compressed, &b.compressed) {
        (None, None) => true,
        (Some(a), Some(b)) => a.is_followed_by(b),
        _ => false,
    };
    are_shared && goes_on && a.lbn + a.blocks == b.lbn && a.what.plus(a.blocks).pbn() == b.what.pbn()
}

/// The lines of some runs.
pub fn lines_of(runs: &[ExplainedRun]) -> Vec<Line> {
    let line = |runs: &[ExplainedRun]| {
        let references =
            |run: &ExplainedRun| if let What::Shared { references, .. } = run.what { references } else { 1 };
        let mut run = runs[0].clone();
        run.blocks = runs.iter().map(|run| run.blocks).sum();
        let lengths = runs.iter().filter_map(|run| run.compressed.as_ref()).flat_map(|compressed| &compressed.lengths);
        let lengths: Vec<u16> = lengths.copied().collect();
        run.compressed = run.compressed.map(|compressed| Compressed { lengths, ..compressed });
        if let What::Shared { references: most, .. } = &mut run.what {
            *most = runs.iter().map(references).max().unwrap_or(*most);
        }
        Line { run, other_references: runs.iter().map(|run| run.blocks * u64::from(references(run) - 1)).sum() }
    };
    runs.chunk_by(is_one_line).map(line).collect()
}

/// The start of the last line, if another line precedes it. Otherwise the start of the last run.
pub fn start_of_last(runs: &[ExplainedRun]) -> usize {
    let last = runs.chunk_by(is_one_line).next_back().map_or(0, <[ExplainedRun]>::len);
    if last < runs.len() { runs.len() - last } else { runs.len().saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_runs_that_continue_each_other_are_told_in_one_line() {
        let shared = |lbn, blocks, pbn, references| ExplainedRun::plain(lbn, blocks, What::Shared { pbn, references });
        let hole = ExplainedRun::plain(15, 4, What::Hole);
        let runs = [shared(0, 4, 10, 2), shared(4, 1, 14, 5), shared(5, 5, 15, 2), shared(10, 5, 90, 3), hole.clone()];
        let line = |run, other_references| Line { run, other_references };
        let lines = [line(shared(0, 10, 10, 5), 13), line(shared(10, 5, 90, 3), 10), line(hole, 0)];
        assert_eq!(lines_of(&runs), lines);
        assert_eq!([5, 4, 3, 2, 1].map(|count| start_of_last(&runs[..count])), [4, 3, 2, 1, 0]);
        assert_eq!((start_of_last(&runs[3..]), start_of_last(&[])), (1, 0));
    }
}
