//! The files that share most, with the few runs by which their partners are found.

use std::cmp::Reverse;

use oncefs_engine::{ExplainedRun, What};

/// Most files kept.
const FILES_MAX: usize = 100;

/// Most runs kept for each file, the longest shared ones.
const RUNS_MAX: usize = 8;

/// A file that shares blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharingFile {
    /// One of its names, for messages.
    pub name: String,
    /// Its map.
    pub map: u64,
    /// Blocks of its data.
    pub held_blocks: u64,
    /// The part of them that other places refer to as well.
    pub shared_blocks: u64,
    /// Its longest shared runs, in the order of the file.
    pub runs: Vec<ExplainedRun>,
}

/// The files that share most so far, by descending number of shared blocks. Equal files stay in the order found.
#[derive(Debug, Default)]
pub struct Most(Vec<SharingFile>);

impl Most {
    /// Whether a file with `shared_blocks` shared blocks belongs to them.
    pub fn wants(&self, shared_blocks: u64) -> bool {
        shared_blocks > 0 && self.place_of(shared_blocks) < FILES_MAX
    }

    /// Adds a file for which `wants` was true.
    pub fn add(&mut self, file: SharingFile) {
        let at = self.place_of(file.shared_blocks);
        self.0.insert(at, file);
        self.0.truncate(FILES_MAX);
    }

    fn place_of(&self, shared_blocks: u64) -> usize {
        self.0.partition_point(|more| more.shared_blocks >= shared_blocks)
    }

    /// All of them.
    pub fn files(self) -> Vec<SharingFile> {
        self.0
    }
}

/// The longest shared runs of one file, collected while its runs are read.
#[derive(Debug, Default)]
pub struct LongestRuns {
    kept: Vec<ExplainedRun>,
    open: Option<ExplainedRun>,
}

impl LongestRuns {
    /// Adds the next run of the file. Adjacent shared runs in the data area count as one, even with different sharers.
    pub fn add(&mut self, run: &ExplainedRun) {
        let What::Shared { references, .. } = run.what else { return };
        if let Some(open) = &mut self.open
            && open.lbn + open.blocks == run.lbn
            && open.what.plus(open.blocks).pbn() == run.what.pbn()
        {
            open.blocks += run.blocks;
            if let What::Shared { references: most, .. } = &mut open.what {
                *most = references.max(*most);
            }
            return;
        }
        self.close();
        self.open = Some(run.clone());
    }

    /// The runs, after the last run of the file.
    pub fn finish(mut self) -> Vec<ExplainedRun> {
        self.close();
        self.kept.sort_unstable_by_key(|run| run.lbn);
        self.kept
    }

    fn close(&mut self) {
        let Some(run) = self.open.take() else { return };
        let at = self.kept.partition_point(|longer| Reverse(longer.blocks) <= Reverse(run.blocks));
        self.kept.insert(at, run);
        self.kept.truncate(RUNS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(lbn: u64, pbn: u64, blocks: u64, references: u32) -> ExplainedRun {
        ExplainedRun::plain(lbn, blocks, What::Shared { pbn, references })
    }

    #[test]
    fn the_files_that_share_most_are_kept_and_no_more() {
        let mut most = Most::default();
        for n in 0..3 * FILES_MAX as u64 {
            let shared_blocks = n % 150;
            if most.wants(shared_blocks) {
                let file = SharingFile { name: n.to_string(), map: n, held_blocks: 200, shared_blocks, runs: vec![] };
                most.add(file);
            }
        }
        let files = most.files();
        assert_eq!(files.len(), FILES_MAX);
        assert_eq!((files[0].map, files[1].map, files[99].shared_blocks), (149, 299, 100));
        assert!(!Most::default().wants(0), "a file that shares nothing is none of them");
    }

    #[test]
    fn the_longest_runs_are_kept_and_pieces_of_one_are_joined() {
        let mut runs = LongestRuns::default();
        runs.add(&shared(0, 10, 2, 2));
        runs.add(&shared(2, 12, 2, 5));
        for n in 0..RUNS_MAX as u64 {
            runs.add(&shared(100 + 10 * n, 1000 + 20 * n, 3, 2));
        }
        runs.add(&ExplainedRun::plain(900, 99, What::Hole));
        let runs = runs.finish();
        assert_eq!((runs.len(), &runs[0]), (RUNS_MAX, &shared(0, 10, 4, 5)));
        assert_eq!(runs[RUNS_MAX - 1].lbn, 160, "of equals the first");
    }
}
