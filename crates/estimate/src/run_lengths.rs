//! The lengths of runs of duplicates: blocks that are adjacent in a file and whose first copies are adjacent too.

use crate::contents::Content;
use crate::estimate::RunClass;

/// The shortest runs of each class.
const CLASSES: [u64; 7] = [1, 2, 4, 16, 64, 256, 4_096];

/// Runs by their length.
#[derive(Default)]
pub struct RunLengths {
    runs: [u64; CLASSES.len()],
    blocks: [u64; CLASSES.len()],
    /// The content that would continue the present run.
    next: Option<u32>,
    length: u64,
}

impl RunLengths {
    /// Adds the file's next block.
    pub fn add(&mut self, content: Content) {
        let goes_on = self.next == Some(content.number);
        if content.before == 0 || !goes_on {
            self.end_run();
        }
        if content.before > 0 {
            self.length += 1;
            self.next = Some(content.number + 1);
        }
    }

    /// Ends the file's last run.
    pub fn end_run(&mut self) {
        if self.length > 0 {
            let class = CLASSES.partition_point(|min| *min <= self.length) - 1;
            self.runs[class] += 1;
            self.blocks[class] += self.length;
        }
        (self.length, self.next) = (0, None);
    }

    /// All classes, including those without runs.
    pub fn classes(&self) -> Vec<RunClass> {
        let all: u64 = self.blocks.iter().sum();
        let ends = CLASSES.iter().skip(1).map(|min| Some(min - 1)).chain([None]);
        let classes = CLASSES.iter().zip(ends).zip(self.runs.iter().zip(&self.blocks));
        let class = |((min, max), (runs, blocks)): ((&u64, Option<u64>), (&u64, &u64))| RunClass {
            blocks_min: *min,
            blocks_max: max,
            runs: *runs,
            blocks: *blocks,
            percent_of_duplicates: 100.0 * *blocks as f64 / all.max(1) as f64,
        };
        classes.map(class).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_where_the_first_copies_do() {
        let mut lengths = RunLengths::default();
        let content = |number, before| Content { number, before };
        [content(0, 0), content(1, 0), content(2, 0)].into_iter().for_each(|block| lengths.add(block));
        lengths.end_run();
        [content(0, 1), content(1, 1), content(1, 2), content(3, 0), content(2, 1)]
            .into_iter()
            .for_each(|block| lengths.add(block));
        lengths.end_run();
        [content(0, 2), content(1, 3), content(2, 2)].into_iter().for_each(|block| lengths.add(block));
        lengths.end_run();
        let runs: Vec<(u64, u64)> = lengths.classes().iter().map(|class| (class.runs, class.blocks)).collect();
        assert_eq!(runs[..3], [(2, 2), (2, 5), (0, 0)]);
    }
}
