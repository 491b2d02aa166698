//! The last line: the sums of all runs of a file.

use oncefs_engine::{BLOCK_BYTES, Equal, ExplainedRun, What};
use serde::Serialize;

use crate::size::Size;

/// Sums of the runs, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sums {
    /// Runs in the data area.
    runs: u64,
    /// Blocks of data.
    data: u64,
    /// Blocks of data that other places refer to as well.
    shared: u64,
    /// Blocks of data that only this place refers to.
    own: u64,
    /// Own blocks that equal a known one and would be shared without a limit.
    equal: u64,
    /// Bad blocks of data.
    bad: u64,
    /// Blocks reserved and not written.
    reserved: u64,
    /// Blocks of holes.
    hole: u64,
    /// The lbn and pbn at which the last run could continue.
    #[serde(skip)]
    end: Option<(u64, u64)>,
}

impl Sums {
    /// Adds a run.
    pub fn add(&mut self, run: &ExplainedRun) {
        match run.what {
            What::Hole => self.hole += run.blocks,
            What::Reserved => self.reserved += run.blocks,
            What::Shared { .. } => self.shared += run.blocks,
            What::Own { equal, .. } => {
                self.own += run.blocks;
                self.equal += if equal == Equal::None { 0 } else { run.blocks };
            }
            What::Bad { .. } => self.bad += run.blocks,
            What::Unknown { .. } | What::Changed => {}
        }
        let Some(pbn) = run.what.pbn() else { return };
        self.data += run.blocks;
        self.runs += u64::from(self.end != Some((run.lbn, pbn)));
        self.end = Some((run.lbn + run.blocks, pbn + run.blocks));
    }

    /// In one line.
    pub fn text(&self) -> String {
        let Self { runs, data, shared, own, equal, bad, reserved, hole, .. } = self;
        let runs = if *runs == 1 { "1 run".to_owned() } else { format!("{runs} runs") };
        let size = |blocks: &u64| Size(blocks * BLOCK_BYTES as u64);
        let mut text = format!("total   {} in {runs}: {} shared, {} not shared", size(data), size(shared), size(own));
        if *equal > 0 {
            text += &format!(", of which {} equal known blocks", size(equal));
        }
        for (blocks, what) in [(bad, "bad"), (reserved, "reserved"), (hole, "hole")] {
            if *blocks > 0 {
                text += &format!("; {} {what}", size(blocks));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::Equal;

    use super::*;

    #[test]
    fn the_sums_count_runs_of_the_data_area_and_not_what_is_said_of_them() {
        let own = |pbn| What::Own { pbn, equal: Equal::None, waits: false };
        let mut sums = Sums::default();
        for (lbn, blocks, what) in [
            (0, 4, own(100)),
            (4, 2, What::Shared { pbn: 104, references: 2 }),
            (6, 3, What::Hole),
            (9, 1, own(106)),
            (10, 1, own(50)),
            (11, 1, What::Bad { pbn: 51, replacement: None, references: 1 }),
            (12, 5, What::Reserved),
        ] {
            sums.add(&ExplainedRun::plain(lbn, blocks, what));
        }
        assert_eq!((sums.runs, sums.data, sums.shared, sums.own, sums.bad), (3, 9, 2, 6, 1));
        let text = "total   36.0 KiB in 3 runs: 8.00 KiB shared, 24.0 KiB not shared; 4.00 KiB bad; 20.0 KiB reserved; \
                    12.0 KiB hole";
        assert_eq!(sums.text(), text);
    }
}
