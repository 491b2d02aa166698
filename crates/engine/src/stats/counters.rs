//! The statistics of an open volume: events, and the blocks and times of each stage of a block's life.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{self, Relaxed};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::ClusterReport;

/// Declares the stages in the order of a block's life, each with its name for people and with what happens in it.
macro_rules! stages {
    ($($stage:ident, $name:literal, $meaning:literal;)+) => {
        /// The steps of a block's life: headings of `docs/life-of-a-block.md`, labels of
        /// counters and histograms, names of crash points.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "lowercase")]
        pub enum Stage {
            $(#[doc = $meaning] $stage,)+
        }

        impl Stage {
            /// All stages in the order of a block's life.
            pub const ALL: [Stage; [$($name),+].len()] = [$(Stage::$stage),+];

            /// What happens in this stage.
            pub fn meaning(self) -> &'static str {
                [$($meaning),+][self as usize]
            }

            /// The stage's name as shown to people.
            pub fn name(self) -> &'static str {
                [$($name),+][self as usize]
            }
        }
    };
}

stages! {
    Receive, "receive", "A write arrives and is cut into whole blocks.";
    Tag, "tag", "Tags, and fingerprints where they are made at once, of the blocks of a request.";
    Lookup, "lookup", "The hint store is asked for equal blocks.";
    Decide, "decide", "Hints become runs; runs that are too short to be shared are refused.";
    Confirm, "confirm", "The block table or a comparison confirms that blocks are equal; references are taken.";
    Place, "place", "What is left is written to free runs of the data area.";
    Map, "map", "The extents are published, and what they replaced is released.";
    Commit, "commit", "A group of changes becomes durable.";
    Revisit, "revisit", "The worker looks at blocks out of line.";
    Read, "read", "Blocks are read: the map, the read cache, the device.";
}

/// A counter of statistics. Nothing that is stored depends on it.
pub type Count = AtomicU64;

/// Latency classes of a histogram: class `i` holds events that took less than 2^i microseconds.
pub const HISTOGRAM_CLASSES: usize = 26;

/// A latency histogram with classes of doubling width.
#[derive(Debug, Default)]
pub struct LiveHistogram {
    classes: [AtomicU64; HISTOGRAM_CLASSES],
    nanoseconds: AtomicU64,
}

impl LiveHistogram {
    /// Counts one event that took `time`.
    pub fn record(&self, time: Duration) {
        let microseconds = time.as_micros().min(u128::from(u64::MAX)) as u64;
        let class = (u64::BITS - microseconds.leading_zeros()) as usize;
        self.classes[class.min(HISTOGRAM_CLASSES - 1)].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos().min(u128::from(u64::MAX)) as u64, Relaxed);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> Histogram {
        let classes: Vec<u64> = self.classes.iter().map(|c| c.load(Relaxed)).collect();
        Histogram { count: classes.iter().sum(), nanoseconds: self.nanoseconds.load(Relaxed), classes }
    }
}

/// A histogram at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Events counted.
    pub count: u64,
    /// The sum of their times.
    pub nanoseconds: u64,
    /// `classes[i]`: events that took less than 2^i microseconds and did not fit into a lower class.
    pub classes: Vec<u64>,
}

impl Histogram {
    /// Upper bound in microseconds of the class that holds the given share (0 to 1) of the events.
    pub fn percentile_us_max(&self, share: f64) -> u64 {
        let wanted = (self.count as f64 * share).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return 1 << class;
            }
        }
        0
    }

    /// Mean in microseconds.
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.nanoseconds as f64 / 1000.0 / self.count as f64 }
    }
}

/// Classes of a histogram of sizes: class `i` holds requests for at most 2^i blocks.
pub const SIZE_CLASSES: usize = 10;

/// A histogram of sizes in blocks with classes of doubling width.
#[derive(Debug, Default)]
pub struct LiveSizes {
    classes: [AtomicU64; SIZE_CLASSES],
    blocks: AtomicU64,
}

impl LiveSizes {
    /// Counts one request for this many blocks, at least one.
    pub fn record(&self, blocks: u64) {
        debug_assert!(blocks > 0, "a request has at least one block");
        let class = (u64::BITS - blocks.saturating_sub(1).leading_zeros()) as usize;
        self.classes[class.min(SIZE_CLASSES - 1)].fetch_add(1, Relaxed);
        self.blocks.fetch_add(blocks, Relaxed);
    }

    /// The counts so far.
    pub fn snapshot(&self) -> Sizes {
        let classes: Vec<u64> = self.classes.iter().map(|class| class.load(Relaxed)).collect();
        Sizes { count: classes.iter().sum(), blocks: self.blocks.load(Relaxed), classes }
    }
}

/// A histogram of sizes at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sizes {
    /// Requests counted.
    pub count: u64,
    /// The sum of their blocks.
    pub blocks: u64,
    /// `classes[i]`: requests for at most 2^i blocks that did not fit into a lower class. The last has all larger ones.
    pub classes: Vec<u64>,
}

impl Sizes {
    /// Mean in blocks.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.blocks as f64 / self.count as f64 }
    }
}

/// The read figures of the data area's device.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The cost of one more piece of a file to its readers, in blocks of sequential reading.
    pub piece_blocks: f64,
    /// Whether that was measured. Otherwise it is the value expected of the device.
    pub piece_is_measured: bool,
    /// Requests that read blocks of files.
    pub read_sizes: Sizes,
}

/// One stage's figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StageReport {
    /// Blocks that passed the stage.
    pub blocks: u64,
    /// Times per batch.
    pub latency: Histogram,
}

/// One cache's figures.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CacheReport {
    /// Bytes held.
    pub bytes: u64,
    /// Bytes allowed.
    pub bytes_max: u64,
    /// Look-ups answered from the cache.
    pub hits: u64,
    /// Look-ups not answered from the cache.
    pub misses: u64,
}

impl CacheReport {
    /// Share of look-ups answered by the cache, 0 to 1.
    pub fn hit_ratio(&self) -> f64 {
        let all = self.hits + self.misses;
        if all == 0 { 0.0 } else { self.hits as f64 / all as f64 }
    }
}

/// Everything `oncefs stats` shows.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Space, in bytes: see [`crate::Totals`] for the meaning of each name.
    pub space: BTreeMap<String, u64>,
    /// Per stage of a block's life.
    pub stages: BTreeMap<String, StageReport>,
    /// Per cache: `read`, `table`, `shards`, `hints`, `records`, and those that `fs` adds.
    pub caches: BTreeMap<String, CacheReport>,
    /// The device of the data area.
    pub device: DeviceReport,
    /// Events by name, such as `blocks_shared` or `groups_committed`.
    pub counters: BTreeMap<String, u64>,
    /// Files by rank, if files are ranked. `fs` adds it.
    #[serde(default)]
    pub ranks: BTreeMap<String, RankReport>,
    /// Settings in force, by name.
    pub settings: BTreeMap<String, String>,
    /// The cluster with the volume's objects. None: the volume is elsewhere.
    #[serde(default)]
    pub cluster: Option<ClusterReport>,
}

/// The files of one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankReport {
    /// How many files the queues know. Approximate after a crash.
    pub files: u64,
    /// How often a file got this rank since the mount.
    pub ranked: u64,
    /// The age of the oldest place in the queue of this rank. None: the queue is empty.
    pub waits_seconds: Option<u64>,
}

macro_rules! counters {
    ($(#[doc = $meaning:literal] $name:ident),* $(,)?) => {
        /// Event counters of a running store.
        #[derive(Debug, Default)]
        pub struct Counters { $(#[doc = $meaning] pub $name: AtomicU64),* }

        /// What each counter counts, by its name in a [`Report`]: all since the mount.
        pub const COUNTER_MEANINGS: &[(&str, &str)] = &[$((stringify!($name), $meaning.trim_ascii())),*];

        impl Counters {
            /// The counts so far, by name.
            pub fn snapshot(&self) -> BTreeMap<String, u64> {
                BTreeMap::from([$((stringify!($name).to_owned(), self.$name.load(Relaxed))),*])
            }
        }
    };
}

counters! {
    /// Blocks written by programs.
    blocks_written,
    /// Written blocks that were all zero and became holes.
    blocks_zero,
    /// Written blocks equal to what the map already held.
    blocks_unchanged,
    /// Written blocks that became references to a stored block.
    blocks_shared,
    /// Write requests.
    write_requests,
    /// Write requests that were neither looked up nor fingerprinted.
    write_requests_not_admitted,
    /// Blocks of these requests.
    blocks_not_admitted,
    /// Written blocks stored anew.
    blocks_placed,
    /// Blocks shared by copy_file_range.
    blocks_cloned,
    /// Blocks freed because their last reference went.
    blocks_freed,
    /// Blocks that the out-of-line worker examined.
    blocks_revisited,
    /// Examined blocks that became references to an equal block.
    blocks_remapped,
    /// Blocks moved so that their files have fewer extents.
    blocks_defragmented,
    /// Places in files whose blocks became fragments.
    blocks_compressed,
    /// Fragments that moved to a new pack, so that the gaps beside them became free.
    fragments_repacked,
    /// Bytes written by that.
    repack_bytes_written,
    /// Packs with gaps that stayed where they are, because of damage.
    packs_passed_over,
    /// Places in files whose fragments became blocks again.
    blocks_expanded,
    /// Blocks that were compressed as they were written.
    blocks_compressed_inline,
    /// Write requests that were to be compressed and do not shrink.
    write_requests_incompressible,
    /// Blocks served from the read cache that another file's read had put there.
    blocks_read_shared,
    /// Blocks that were read through the host's page cache, because files share them.
    blocks_read_through_host,
    /// Blocks of which the host's page cache had a wrong copy, and the device the right one.
    blocks_wrong_in_host_cache,
    /// Blocks of other files that were read around small ones.
    blocks_read_around,
    /// Blocks that left the read cache for others after all of their references had been read.
    cache_evicted_spent,
    /// Blocks that left the read cache for others before all of their references had been read.
    cache_evicted_awaited,
    /// Blocks read by the scrub.
    blocks_scrubbed,
    /// Blocks found to be damaged.
    blocks_bad,
    /// Bad blocks that got a replacement.
    blocks_repaired,
    /// Bad blocks in use again: they were sound after all, or took new bytes.
    blocks_restored,
    /// Replicas made.
    replicas_made,
    /// Replicas dropped.
    replicas_dropped,
    /// Hints moved from memory to disk.
    hints_demoted,
    /// Hints moved back to memory because a block matched.
    hints_promoted,
    /// Hints lost on their way to disk; a scan finds them again.
    hints_dropped,
    /// Lost hints that the worker added again.
    hints_repaired,
    /// Hints of freed blocks that the worker met.
    hints_stale,
    /// Hints of freed blocks that the sweep removed from disk.
    hints_swept,
    /// Hints found on the disk level.
    disk_level_hits,
    /// Bytes read from the file of hints.
    disk_level_bytes_read,
    /// Bytes written to the file of hints.
    disk_level_bytes_written,
    /// Bytes written to the file of skipped blocks.
    skipped_bytes_written,
    /// Hints that the block table did not confirm.
    hints_refused,
    /// Blocks fingerprinted.
    blocks_fingerprinted,
    /// Stored blocks read to be compared or fingerprinted before a share.
    blocks_compared,
    /// Bytes written to the data area.
    data_bytes_written,
    /// Bytes read from the data area.
    data_bytes_read,
    /// Bytes written to the log.
    log_bytes_written,
    /// Bytes of file data written with the log.
    log_data_bytes,
    /// Bytes written to the block table.
    table_bytes_written,
    /// Bytes of records handed to RocksDB.
    record_bytes_written,
    /// Bytes given back to the host by hole punching.
    bytes_punched,
    /// Commit groups made durable.
    groups_committed,
    /// Barriers answered.
    barriers,
    /// Flushes of the data area.
    data_flushes,
    /// Flushes of the log.
    log_flushes,
    /// Checkpoints finished.
    checkpoints,
}

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

    /// The figures of a stage.
    pub fn stage(&self, stage: Stage) -> &StageStats {
        &self.stages[stage as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const PAGE: &str = include_str!("../../../../docs/life-of-a-block.md");

    /// The lines of the page with this beginning, without it.
    fn lines(beginning: &str) -> Vec<&'static str> {
        PAGE.lines().filter_map(|line| line.strip_prefix(beginning)).collect()
    }

    #[test]
    fn the_headings_of_the_page_are_the_stages_in_order() {
        let stages = Stage::ALL.iter().enumerate().map(|(at, stage)| format!("{}. {}", at + 1, stage.name()));
        assert_eq!(lines("## "), stages.collect::<Vec<_>>());
    }

    #[test]
    fn the_page_names_every_counter_and_no_other() {
        let quoted =
            |line: &'static str| line.split("; the cache").next().unwrap_or(line).split('`').skip(1).step_by(2);
        let named: BTreeSet<&str> = lines("Counters: ").into_iter().flat_map(quoted).collect();
        let counters = Counters::default().snapshot();
        assert_eq!(named, counters.keys().map(String::as_str).collect());
    }
}
