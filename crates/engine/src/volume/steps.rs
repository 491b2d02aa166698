//! The steps of the background threads, one at a time, for callers that drive an open volume by hand: explorers,
//! fuzzers, tests.

use std::time::Duration;

use crate::Result;
use crate::volume::assembly::Volume;

/// A step of background work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundStep {
    /// Brings the log's changes to their place.
    Checkpoint,
    /// Frees one deleted file.
    Reclaim,
    /// Takes a part of the leaves that the oldest pending clone lacks.
    TakeLeaves,
    /// Makes freed blocks reusable.
    Release,
    /// Gives freed space back to the host.
    Punch,
    /// Fills the hint store after the volume was opened.
    FillHints,
    /// Merges hints that left memory into the disk level.
    MergeHints,
    /// Looks for stale hints in one page of the disk level.
    SweepHints,
    /// Deduplicates at most this many blocks out of line.
    Revisit {
        /// Upper bound of the visited blocks.
        blocks_max: u64,
    },
    /// One turn of the work that ranks files.
    Rank,
    /// Compresses a batch of about this many blocks, with `compress=later`.
    Compress {
        /// The bound.
        blocks_max: u64,
    },
    /// Moves fragments of about this many blocks out of packs with gaps.
    Repack {
        /// The bound.
        blocks_max: u64,
    },
    /// Expands everything that is compressed, in batches of about this many blocks.
    Expand {
        /// The bound.
        blocks_max: u64,
    },
    /// Handles bad blocks that reads and writes noticed.
    Repair,
    /// Continues the scrub, or begins a pass, by at most this many blocks.
    Scrub {
        /// Upper bound of the blocks read.
        blocks_max: u64,
    },
    /// Waits until the record files are merged and listed.
    CatchUpRecords,
    /// Saves the skipped buffer.
    SaveSkipped,
    /// The work of closing a volume.
    LeaveCleanly,
}

impl Volume {
    /// Does it once. True: it did something, and there may be more.
    pub(crate) fn run(&self, step: BackgroundStep) -> Result<bool> {
        match step {
            BackgroundStep::Checkpoint => self.commits.checkpoint().map(|()| false),
            BackgroundStep::Reclaim => match self.base.signals.next_detached(Duration::ZERO) {
                Some(map) => self.reclaimer.reclaim(map).map(|()| true),
                None => Ok(false),
            },
            BackgroundStep::TakeLeaves => self.lazy_clones.step(),
            BackgroundStep::Release => {
                self.groups.release_waiting();
                Ok(false)
            }
            BackgroundStep::Punch => Ok(self.free_blocks.punch_some()),
            BackgroundStep::FillHints => self.hint_levels.fill_hints().map(|()| false),
            BackgroundStep::MergeHints => {
                self.hint_levels.merge_waiting_hints();
                Ok(false)
            }
            BackgroundStep::SweepHints => Ok(self.hint_levels.sweep_hint_page()),
            BackgroundStep::Revisit { blocks_max } => Ok(self.revisits.revisit(blocks_max)?.is_some()),
            BackgroundStep::Rank => Ok(self.file_ranker.rank()?.is_some()),
            BackgroundStep::Compress { blocks_max } => Ok(self.block_compressor.compress_some(blocks_max)?.is_some()),
            BackgroundStep::Repack { blocks_max } => Ok(self.repacker.repack_some(blocks_max)?.is_some()),
            BackgroundStep::Expand { blocks_max } => self.converter.expand_all(blocks_max),
            BackgroundStep::Repair => self.repairs.repair_noticed().map(|()| false),
            BackgroundStep::Scrub { blocks_max } => self.scrubber.scrub_step(blocks_max),
            BackgroundStep::CatchUpRecords => {
                self.base.stored.catch_up_records();
                Ok(false)
            }
            BackgroundStep::SaveSkipped => {
                self.backlog_notes.checkpoint_backlog(0);
                Ok(false)
            }
            BackgroundStep::LeaveCleanly => {
                self.scrubber.save_scrub()?;
                self.commits.checkpoint()?;
                self.leave_cleanly();
                Ok(false)
            }
        }
    }
}
