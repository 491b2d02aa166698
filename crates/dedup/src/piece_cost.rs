//! The cost of one more separate piece to a reader: `k`, estimated from the times of reads.
//!
//! Owns the estimate. Leaves to the engine making and timing the reads: those of a short probe while the volume is
//! idle, and those that programs make (`policy/device_reads.rs`).
//!
//! Reads of one large piece give the time of a block. Parallel reads of many small pieces give the time of the pieces
//! beyond their blocks. Both are counted in batches of a fixed device time. A batch's mean includes every cause of
//! delay that reads meet in turn, such as a limit that lets reads pass at once and then delays one for long. The median
//! of several batches leaves out one-off delays, such as a busy moment.

use std::time::Duration;

use crate::budget::PieceCost;

/// A read of at least this many blocks in one piece measures the time of a block.
const LARGE_BLOCKS_MIN: u64 = 64;
/// A read of at least this many pieces,
const PIECES_MIN: u64 = 8;
/// with at most this many blocks each on average, measures the time of a piece.
const BLOCKS_PER_PIECE_MAX: u64 = 8;
/// Device time of a batch: as long as the interval over which Linux enforces a device's limit.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// Most and fewest batches that the estimate uses.
const BATCHES: usize = 7;
const BATCHES_MIN: usize = 3;
/// The factor by which the estimate must differ from the number in force to change it.
const STEP: f64 = 1.25;
/// The time to hand one block to a program, whatever the device: the check against its tag, the copy, the kernel's
/// request. It is part of sequential reading, so on a fast device a piece weighs less because of it.
const HANDING_OVER: Duration = Duration::from_nanos(2_000);

/// One read whose pieces were all requested at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadTime {
    /// Separate ranges of the data area.
    pub pieces: u64,
    /// Blocks in all of them.
    pub blocks: u64,
    /// From the first request to the last completion.
    pub time: Duration,
    /// How many such reads were under way: the device finished one of them every `time / at_once` (Little's law).
    pub at_once: u32,
}

/// The sums of a batch of reads, or of several.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sums {
    pieces: u64,
    blocks: u64,
    time: Duration,
}

/// The sums of recent batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Batches {
    open: Sums,
    /// A new batch replaces the oldest.
    closed: [Sums; BATCHES],
    count: usize,
}

impl Batches {
    /// Adds a read. Returns whether it closed a batch.
    fn add(&mut self, read: &ReadTime) -> bool {
        self.open.pieces += read.pieces;
        self.open.blocks += read.blocks;
        self.open.time = self.open.time.saturating_add(read.time / read.at_once.max(1));
        if self.open.time < BATCH_TIME {
            return false;
        }
        self.closed[self.count % BATCHES] = std::mem::take(&mut self.open);
        self.count += 1;
        true
    }

    /// The median over all batches of a number computed from each.
    fn median(&self, of: impl Fn(&Sums) -> f64) -> Option<f64> {
        let mut numbers: Vec<f64> = self.closed[..self.count.min(BATCHES)].iter().map(of).collect();
        numbers.sort_unstable_by(f64::total_cmp);
        (numbers.len() >= BATCHES_MIN).then(|| numbers[numbers.len() / 2])
    }
}

/// The estimate of `k`.
#[derive(Clone, Debug, PartialEq)]
pub struct PieceCostEstimate {
    large: Batches,
    scattered: Batches,
    cost: PieceCost,
    is_measured: bool,
}

impl Default for PieceCostEstimate {
    fn default() -> Self {
        Self::expecting(PieceCost::EXPECTED)
    }
}

impl PieceCostEstimate {
    /// Starts from an assumption. The first measurement replaces it.
    pub fn expecting(cost: PieceCost) -> Self {
        Self { large: Batches::default(), scattered: Batches::default(), cost, is_measured: false }
    }

    /// Starts from an earlier measurement.
    pub fn starting_from(measured: PieceCost) -> Self {
        Self { is_measured: true, ..Self::expecting(measured) }
    }

    /// Adds a read. Returns whether the value in force changed, or was measured for the first time.
    pub fn observe(&mut self, read: ReadTime) -> bool {
        debug_assert!(read.pieces > 0 && read.blocks >= read.pieces, "{read:?}");
        let is_scattered = read.pieces >= PIECES_MIN && read.blocks <= read.pieces * BLOCKS_PER_PIECE_MAX;
        let is_batch_closed = match read.pieces {
            1 if read.blocks >= LARGE_BLOCKS_MIN => self.large.add(&read),
            _ if is_scattered => self.scattered.add(&read),
            _ => false,
        };
        is_batch_closed && self.estimate()
    }

    fn estimate(&mut self) -> bool {
        let Some(cost) = self.measured() else { return false };
        let (now, before) = (cost.blocks(), self.cost.blocks());
        let is_first = !std::mem::replace(&mut self.is_measured, true);
        let is_clear = now >= before * STEP || now * STEP <= before;
        if is_clear || is_first {
            self.cost = cost;
        }
        is_clear || is_first
    }

    /// A large read takes the time of its blocks and of one piece, a scattered read that of its blocks and its pieces:
    /// two equations for the time of a block and that of a piece.
    fn measured(&self) -> Option<PieceCost> {
        let read_time = self.large.median(|sums| sums.time.as_secs_f64() / sums.blocks as f64)?;
        let read_blocks = self.large.median(|sums| sums.blocks as f64 / sums.pieces as f64)?;
        let per_piece = |sums: &Sums| {
            let blocks = sums.blocks as f64 / sums.pieces as f64;
            (sums.time.as_secs_f64() / sums.pieces as f64 - blocks * read_time) / (1.0 - blocks / read_blocks)
        };
        let piece = self.scattered.median(per_piece)?;
        let block = (read_time - piece / read_blocks).max(0.0);
        Some(PieceCost::of_blocks(piece / (block + HANDING_OVER.as_secs_f64())))
    }

    /// The value in force.
    pub fn cost(&self) -> PieceCost {
        self.cost
    }

    /// Whether it was measured, now or earlier. Otherwise it is the expected value.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device on which a block of a large read, and a piece, take this many microseconds.
    fn reads(block_us: f64, piece_us: f64) -> impl Iterator<Item = ReadTime> {
        let time = move |pieces: u64, blocks: u64| {
            Duration::from_secs_f64((piece_us * pieces as f64 + block_us * blocks as f64) / 1e6)
        };
        let read = move |n: u64| {
            let (pieces, blocks) = if n.is_multiple_of(2) { (1, 256) } else { (64, 100) };
            ReadTime { pieces, blocks, time: time(pieces, blocks), at_once: 1 }
        };
        (0..20_000).map(read)
    }

    fn learned(block_us: f64, piece_us: f64) -> f64 {
        let mut estimate = PieceCostEstimate::default();
        reads(block_us, piece_us).for_each(|read| _ = estimate.observe(read));
        assert!(estimate.is_measured());
        estimate.cost().blocks()
    }

    #[test]
    fn devices_get_the_cost_of_their_pieces() {
        // A fast virtual SSD: 2.1 GB/s in 4 KiB pieces, 6.3 GB/s in large ones; then 4,000 IOPS and 100 MB/s; a disk.
        for (block_us, piece_us, expected) in [(0.65, 1.3, 0.49), (41.0, 209.0, 4.9), (27.0, 8_000.0, 277.0)] {
            let cost = learned(block_us, piece_us);
            assert!((cost / expected - 1.0).abs() < 0.1, "{block_us} {piece_us}: {cost}, not {expected}");
        }
    }

    #[test]
    fn nothing_is_measured_before_both_kinds_of_reads_were_seen_for_some_batches() {
        let mut estimate = PieceCostEstimate::default();
        for read in reads(0.65, 1.3).filter(|read| read.pieces > 1) {
            assert!(!estimate.observe(read));
        }
        let single = ReadTime { pieces: 1, blocks: 1, time: Duration::from_secs(1), at_once: 1 };
        let few = ReadTime { pieces: 4, blocks: 4, ..single };
        let long = ReadTime { pieces: 8, blocks: 256, ..single };
        assert!([single, few, long].into_iter().cycle().take(60).all(|read| !estimate.observe(read)));
        assert_eq!((estimate.is_measured(), estimate.cost()), (false, PieceCost::EXPECTED));
        let first = reads(0.65, 1.3).filter(|read| read.pieces == 1).map(|read| estimate.observe(read));
        assert_eq!(first.filter(|changed| *changed).count(), 1, "the first estimate is told, once");
    }

    #[test]
    fn a_limit_that_lets_reads_pass_and_then_holds_one_back_is_seen() {
        let mut estimate = PieceCostEstimate::default();
        for (n, read) in reads(2.0, 2.0).enumerate() {
            // 90 ms after each 10 ms of reads, as a limit of a tenth of the device would do it.
            let time = if n % 40 == 1 { read.time + Duration::from_millis(90) } else { read.time };
            estimate.observe(ReadTime { time, ..read });
        }
        assert!(estimate.cost().blocks() > 10.0, "{:?}", estimate.cost());
    }

    #[test]
    fn reads_at_the_same_time_share_the_device() {
        let mut alone = PieceCostEstimate::default();
        let mut together = alone.clone();
        for read in reads(10.0, 50.0) {
            alone.observe(read);
            together.observe(ReadTime { time: read.time * 4, at_once: 4, ..read });
        }
        assert_eq!(alone.cost(), together.cost());
    }

    #[test]
    fn a_small_change_changes_nothing_and_a_clear_one_is_told() {
        let mut estimate = PieceCostEstimate::starting_from(PieceCost::of_blocks(4.0));
        assert!(estimate.is_measured());
        let changes = |estimate: &mut PieceCostEstimate, piece_us| {
            reads(8.0, piece_us).filter(|read| estimate.observe(*read)).count()
        };
        assert_eq!(changes(&mut estimate, 45.0), 0, "4.5 is not far from 4");
        assert_eq!(estimate.cost().blocks(), 4.0);
        assert!(changes(&mut estimate, 100.0) > 0);
        assert!((estimate.cost().blocks() - 10.0).abs() < 1.5, "{:?}", estimate.cost());
    }
}
