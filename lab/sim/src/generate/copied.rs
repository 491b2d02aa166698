//! Makes a trace from a table of copies: every content is written exactly as often as the table says.
//!
//! The table does not say when. Here the first writes of all contents are spread evenly, and each further copy
//! follows the one before at a drawn distance, so that order is a property of its own.

use std::time::Duration;

use super::address::{blocks_to_end, place};
use super::copies::CopyTable;
use super::distance::Distance;
use crate::trace::{Content, Event, Source, TraceError, Write};
use oncefs_toolbox::Random;

/// What the trace shall be like.
#[derive(Clone, Debug, PartialEq)]
pub struct CopiedSpec {
    /// Which contents are copied how often; taken as it is, sample it before.
    pub table: CopyTable,
    /// Blocks between a copy and the next one of the same content.
    pub reuse: Distance,
    /// Contents that are copied together, in order.
    pub run_blocks: u64,
    /// Time from the first write to the last; writes are evenly spaced.
    pub duration: Duration,
    /// Repeats a trace exactly.
    pub seed: u64,
}

/// A trace being handed out. All addresses are new: DEDISbench's tables know nothing of overwrites.
pub struct Copied {
    runs: Vec<Run>,
    run_at: usize,
    offset: u64,
    written: u64,
    blocks: u64,
    seed: u64,
    duration: Duration,
    contents: Vec<Content>,
}

/// Contents that follow one another, written once.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Where it stands among the others, in blocks.
    position: f64,
    first: u64,
    contents: u64,
}

impl Copied {
    /// Puts all copies in order: 24 bytes of memory a run.
    pub fn new(spec: &CopiedSpec) -> Self {
        let mut random = Random::mixed(spec.seed);
        let blocks = spec.table.blocks() as u64;
        let mut runs = Vec::new();
        let mut first = 0;
        for class in &spec.table.0 {
            let end = first + class.contents;
            while first < end {
                let contents = spec.run_blocks.clamp(1, end - first);
                let mut position = random.fraction() * blocks as f64;
                for _ in 0..class.copies {
                    runs.push(Run { position, first, contents });
                    position += spec.reuse.draw(&mut random) as f64;
                }
                first += contents;
            }
        }
        runs.sort_by(|a, b| a.position.total_cmp(&b.position));
        let (run_at, offset, written, contents) = (0, 0, 0, Vec::new());
        Self { runs, run_at, offset, written, blocks, seed: spec.seed, duration: spec.duration, contents }
    }
}

impl Source for Copied {
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        let Some(&run) = self.runs.get(self.run_at) else { return Ok(None) };
        let length = (run.contents - self.offset).min(blocks_to_end(self.written));
        let numbers = run.first + self.offset..run.first + self.offset + length;
        self.contents.clear();
        self.contents.extend(numbers.map(|number| Content::numbered(number ^ self.seed << u32::BITS)));
        let time = self.duration.mul_f64(self.written as f64 / self.blocks as f64);
        let place = place(self.written);
        self.written += length;
        self.offset += length;
        if self.offset == run.contents {
            (self.run_at, self.offset) = (self.run_at + 1, 0);
        }
        Ok(Some(Event::Write(Write { time, place, contents: &self.contents })))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn every_content_has_exactly_its_copies() {
        let table = CopyTable::parse("0 700\n1 100\n6 13\n40 3").unwrap();
        for run_blocks in [1, 8] {
            let reuse = Distance::Pareto { min: 10.0, alpha: 1.0 };
            let (table, duration) = (table.clone(), Duration::from_secs(60));
            let mut copied = Copied::new(&CopiedSpec { table, reuse, run_blocks, duration, seed: 1 });
            let mut copies: HashMap<Content, u64> = HashMap::new();
            let mut next = 0;
            while let Some(Event::Write(write)) = copied.next().unwrap() {
                assert_eq!(write.place, place(next));
                next += write.contents.len() as u64;
                write.contents.iter().for_each(|content| *copies.entry(*content).or_default() += 1);
            }
            let with = |wanted: u64| copies.values().filter(|copies| **copies == wanted).count();
            assert_eq!([with(1), with(2), with(7), with(41)], [700, 100, 13, 3], "runs of {run_blocks}");
        }
    }
}
