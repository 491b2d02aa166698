//! What the out-of-line worker keeps between its turns.

use std::sync::OnceLock;

use oncefs_dedup::{BatchSize, Pace, SkippedBuffer};

use crate::settings::values::Settings;
use crate::stats::counters::LiveHistogram;
use crate::sync::Mutex;
use crate::worker::backlog_file::SkippedFile;
use crate::worker::pass::Pass;
use crate::worker::rank_turn::RankTurn;
use crate::worker::surroundings::{Surroundings, pace_rule};

/// Blocks that in-line deduplication left to the worker.
pub struct Backlog {
    /// In memory.
    pub skipped: Mutex<SkippedBuffer>,
    /// Where they are kept across mounts.
    pub file: Mutex<Option<SkippedFile>>,
}

impl Backlog {
    /// An empty backlog, kept in a file or not.
    pub fn new(settings: &Settings, file: Option<SkippedFile>) -> Self {
        Self { skipped: Mutex::new(SkippedBuffer::with_bytes_max(settings.skipped_bytes)), file: Mutex::new(file) }
    }
}

/// The worker of an open volume.
pub struct Worker {
    /// What it looks at as a whole.
    pub pass: Mutex<Pass>,
    /// When it runs.
    pub pace: Mutex<Pace>,
    /// The machine's load and supply.
    pub surroundings: Mutex<Surroundings>,
    /// Called when it has nothing else to do, see [`crate::Store::rank_by`].
    pub rank_turn: OnceLock<RankTurn>,
    /// How long requests waited for work that gives way to them.
    pub yield_time: LiveHistogram,
    /// Held while a portion of a file is laid out anew: one at a time bounds the memory, and closing waits for it.
    pub defragging: Mutex<BatchSize>,
}

impl Worker {
    /// A worker that has done nothing yet.
    pub fn new(settings: &Settings, surroundings: Surroundings, defrag_batch: BatchSize) -> Self {
        Self {
            pass: Mutex::default(),
            pace: Mutex::new(Pace::new(pace_rule(settings))),
            surroundings: Mutex::new(surroundings),
            rank_turn: OnceLock::new(),
            yield_time: LiveHistogram::default(),
            defragging: Mutex::new(defrag_batch),
        }
    }
}
