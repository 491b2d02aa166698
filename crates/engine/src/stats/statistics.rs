//! What an open volume counts: events, and the blocks and times of each stage.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::Stage;
use crate::stats::counters::{Count, Counters, LiveHistogram};

/// Blocks and times of one stage.
#[derive(Default)]
pub struct StageStats {
    /// Blocks that passed.
    pub blocks: Count,
    /// Time per batch.
    pub latency: LiveHistogram,
}

/// Counters of an open volume.
#[derive(Default)]
pub struct Statistics {
    /// Events.
    pub counters: Counters,
    stages: [StageStats; Stage::ALL.len()],
}

impl Statistics {
    /// Counts a stage's blocks and time.
    pub fn timed<T>(&self, stage: Stage, blocks: u64, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = work();
        self.record(stage, blocks, began.elapsed());
        result
    }

    /// Counts a stage that was timed elsewhere.
    pub fn record(&self, stage: Stage, blocks: u64, time: Duration) {
        let stats = self.stage(stage);
        stats.blocks.fetch_add(blocks, Ordering::Relaxed);
        stats.latency.record(time);
    }

    /// What was counted of a stage.
    pub fn stage(&self, stage: Stage) -> &StageStats {
        &self.stages[stage as usize]
    }
}
