//! Names of crash points: the stage of a block's life (`docs/life-of-a-block.md`), the program's activity, and the last
//! effect on a device.
//!
//! The stages tag, lookup, decide and confirm do not access a device, so a crash in them equals one in `receive`:
//! nothing is stored. `read` changes nothing.

use std::fmt;

use oncefs_engine::Stage;

use crate::effect::Effect;
use crate::image::Part;

/// The program's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// Opens the volume.
    Recover,
    /// An operation of the file system.
    Change,
    /// A commit.
    Commit,
    /// A commit between two publications of one operation.
    Interrupt,
    /// A checkpoint.
    Checkpoint,
    /// Makes freed blocks reusable.
    Release,
    /// Enlarges the data area.
    Grow,
    /// Fills the hint store.
    FillHints,
    /// Deduplicates out of line.
    Revisit,
    /// Compresses blocks.
    Compress,
    /// Moves fragments out of packs with gaps.
    Repack,
    /// Expands fragments.
    Expand,
    /// Ranks files.
    Rank,
    /// Merges hints into the disk level.
    MergeHints,
    /// Sweeps the disk level.
    SweepHints,
    /// Reads every block, and repairs damaged ones.
    Scrub,
    /// Saves the skipped buffer.
    SaveSkipped,
    /// Frees deleted files.
    Reclaim,
    /// Takes leaves of a clone.
    TakeLeaves,
    /// Gives freed space back.
    Punch,
    /// Closes a volume.
    Leave,
}

impl Doing {
    fn name(self) -> &'static str {
        match self {
            Doing::Recover => "recover",
            Doing::Change => "change",
            Doing::Commit => "commit",
            Doing::Interrupt => "commit within an operation",
            Doing::Checkpoint => "checkpoint",
            Doing::Release => "release",
            Doing::Grow => "grow",
            Doing::FillHints => "fill hints",
            Doing::Revisit => "remap",
            Doing::Compress => "compress",
            Doing::Repack => "repack",
            Doing::Expand => "expand",
            Doing::Rank => "rank",
            Doing::MergeHints => "merge hints",
            Doing::SweepHints => "sweep hints",
            Doing::Scrub => "scrub",
            Doing::SaveSkipped => "save skipped",
            Doing::Reclaim => "reclaim",
            Doing::TakeLeaves => "take leaves",
            Doing::Punch => "punch",
            Doing::Leave => "leave",
        }
    }
}

/// The last effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Last {
    Written(Part),
    Punched(Part),
    Flushed(Part),
    Grown(Part),
    Rotted,
    BatchWritten,
    RecordsFlushed,
    Marked(&'static str),
}

/// A crash point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    doing: Doing,
    last: Last,
}

impl Point {
    /// The point right after an effect.
    pub fn after(doing: Doing, effect: &Effect) -> Self {
        let last = match *effect {
            Effect::Write { part, is_punch: false, .. } => Last::Written(part),
            Effect::Write { part, is_punch: true, .. } => Last::Punched(part),
            Effect::Flush(part) => Last::Flushed(part),
            Effect::Grow(part, _) => Last::Grown(part),
            Effect::Rot(_) => Last::Rotted,
            Effect::Batch(_) | Effect::Keys { .. } => Last::BatchWritten,
            Effect::FlushRecords | Effect::KeysDurable(..) => Last::RecordsFlushed,
            Effect::Mark(what) => Last::Marked(what),
        };
        Self { doing, last }
    }

    /// The stage of a block's life that it belongs to. Recovery has none.
    pub fn stage(&self) -> Option<Stage> {
        Some(match (self.doing, self.last) {
            (Doing::Recover, _) => return None,
            (Doing::Change, Last::Written(_) | Last::Grown(_)) => Stage::Place,
            (Doing::Change, Last::Marked("begins")) => Stage::Receive,
            (Doing::Change, _) => Stage::Map,
            (Doing::Commit | Doing::Interrupt | Doing::Checkpoint | Doing::Release | Doing::Grow, _) => Stage::Commit,
            _ => Stage::Revisit,
        })
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = self.stage().map_or("open", Stage::name);
        write!(f, "{stage}: {}, ", self.doing.name())?;
        match self.last {
            Last::Written(part) => write!(f, "{} written", part.name()),
            Last::Punched(part) => write!(f, "{} punched", part.name()),
            Last::Flushed(part) => write!(f, "{} flushed", part.name()),
            Last::Grown(part) => write!(f, "{} grown", part.name()),
            Last::Rotted => write!(f, "data rotted"),
            Last::BatchWritten => write!(f, "records written"),
            Last::RecordsFlushed => write!(f, "records flushed"),
            Last::Marked(what) => write!(f, "{what}"),
        }
    }
}
