//! Requests that read the data area: how large they are, and how long they take.
//!
//! Owns the sizes of requests that serve files, and the estimate of a piece's cost, which learns from all requests.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_dedup::{PieceCost, PieceCostEstimate, ReadTime};

use crate::pace::stopwatch::Stopwatch;
use crate::stats::counters::{Count, DeviceReport, LiveSizes};
use crate::stats::request_timer::RequestTimer;
use crate::sync::{AtomicBool, LockRank, Mutex};

/// Runs with at most this gap between them are read in one request: 32 KiB cost less than a second request.
pub const GAP_BLOCKS_MAX: u64 = 8;

/// Requests to the data area since the mount.
pub struct DeviceReads {
    sizes: LiveSizes,
    under_way: Count,
    estimate: Mutex<PieceCostEstimate>,
    /// The current estimate, readable without a lock: the bits of a floating-point number.
    piece_blocks: Count,
    /// The estimate in the volume's record, in the same form. 0: it has none.
    saved: Count,
    /// Whether the device was probed since the mount.
    is_probed: AtomicBool,
    /// Whether the CPUs were busy when they were last looked at. Until then they count as busy.
    is_machine_busy: AtomicBool,
    stopwatch: Stopwatch,
}

/// How the estimate changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A piece costs less than it did: files may have more of them.
    Fell,
    /// A piece costs as much as it did, or more.
    Rose,
}

impl DeviceReads {
    /// No reads yet, which the stopwatch will time. Until they are measured, a piece costs as `expected`.
    pub fn new(expected: PieceCost, stopwatch: Stopwatch) -> Self {
        Self {
            sizes: LiveSizes::default(),
            under_way: Count::new(0),
            estimate: Mutex::new(LockRank::Leaf, PieceCostEstimate::expecting(expected)),
            piece_blocks: Count::new(expected.blocks().to_bits()),
            saved: Count::new(0),
            is_probed: AtomicBool::new(false),
            is_machine_busy: AtomicBool::new(true),
            stopwatch,
        }
    }

    /// Starts from the measurement of an earlier mount.
    pub fn start_from(&self, cost: PieceCost) {
        debug_assert!(cost.blocks() > 0.0, "a piece costs {} blocks", cost.blocks());
        self.piece_blocks.store(cost.blocks().to_bits(), Relaxed);
        *self.estimate.lock() = PieceCostEstimate::starting_from(cost);
    }

    /// The cost of a piece.
    pub fn piece_cost(&self) -> PieceCost {
        PieceCost::of_blocks(f64::from_bits(self.piece_blocks.load(Relaxed)))
    }

    /// Whether the cost was measured, now or by an earlier mount.
    pub fn is_measured(&self) -> bool {
        self.estimate.lock().is_measured()
    }

    /// Whether the device was probed since the mount.
    pub fn is_probed(&self) -> bool {
        self.is_probed.load(Relaxed)
    }

    /// Notes that the device was probed.
    pub fn note_probed(&self) {
        self.is_probed.store(true, Relaxed);
    }

    /// Notes whether the CPUs are busy. Reads teach nothing then: while a request with many pieces waits for a CPU, the
    /// time would count as that of its pieces.
    pub fn note_machine(&self, is_busy: bool) {
        self.is_machine_busy.store(is_busy, Relaxed);
    }

    /// Whether the CPUs are busy, so that reads teach nothing.
    pub fn is_machine_busy(&self) -> bool {
        self.is_machine_busy.load(Relaxed)
    }

    /// The time by the stopwatch of the reads.
    pub fn now(&self) -> Duration {
        self.stopwatch.now()
    }

    /// Whether the volume's record has this cost.
    pub fn is_saved(&self, cost: PieceCost) -> bool {
        self.saved.load(Relaxed) == cost.blocks().to_bits()
    }

    /// Notes that the volume's record has this cost.
    pub fn note_saved(&self, cost: PieceCost) {
        debug_assert!(cost.blocks() > 0.0, "a cost of {} blocks is kept", cost.blocks());
        self.saved.store(cost.blocks().to_bits(), Relaxed);
    }

    /// Counts a request for this many blocks that serves a file.
    pub fn count(&self, blocks: u64) {
        self.sizes.record(blocks);
    }

    /// Requests begin that are made in parallel. Every call is timed. That costs a thousandth of the fastest device's
    /// request, and only this way the rare long delays are seen.
    pub fn begin(&self) -> RequestTimer<'_> {
        RequestTimer::begin(&self.under_way, self.now())
    }

    /// Requests ended, each for this many blocks in one piece. Learns from their time if all succeeded and the
    /// CPUs are not busy.
    ///
    /// `pages` is the number of requests for pages of the block table that were made in parallel. To a device these are
    /// pieces of one block. Beside a single piece they finish first.
    pub fn end(&self, timer: RequestTimer<'_>, blocks: &[u64], pages: usize, have_succeeded: bool) -> Option<Change> {
        let (time, at_once) = timer.end(self.now());
        if blocks.is_empty() || !have_succeeded || self.is_machine_busy() {
            return None;
        }
        let pages = if blocks.len() > 1 { pages as u64 } else { 0 };
        let (pieces, blocks) = (blocks.len() as u64 + pages, blocks.iter().sum::<u64>() + pages);
        self.learn(ReadTime { pieces, blocks, time, at_once })
    }

    /// Does nothing while another read is being noted.
    fn learn(&self, read: ReadTime) -> Option<Change> {
        let mut estimate = self.estimate.try_lock()?;
        let was = estimate.cost().blocks();
        if !estimate.observe(read) {
            return None;
        }
        let now = estimate.cost().blocks();
        self.piece_blocks.store(now.to_bits(), Relaxed);
        log::info!("a separate piece of a file costs as much as {now:.2} blocks (before: {was:.2})");
        Some(if now < was { Change::Fell } else { Change::Rose })
    }

    /// The figures for `oncefs stats`.
    pub fn report(&self) -> DeviceReport {
        let estimate = self.estimate.lock();
        DeviceReport {
            piece_blocks: estimate.cost().blocks(),
            piece_is_measured: estimate.is_measured(),
            read_sizes: self.sizes.snapshot(),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    /// Many requests in one piece, with 8 microseconds per block, and many with 64 pieces.
    fn learned(reads: &DeviceReads, piece: Duration) -> Vec<Change> {
        let block = Duration::from_micros(8);
        let learn = |n: u64| match n % 2 {
            0 => reads.learn(ReadTime { pieces: 64, blocks: 64, time: (piece + block) * 64, at_once: 1 }),
            _ => reads.learn(ReadTime { pieces: 1, blocks: 256, time: piece + block * 256, at_once: 1 }),
        };
        (0..20_000).filter_map(learn).collect()
    }

    #[test]
    fn what_a_piece_costs_is_expected_then_measured_and_its_changes_are_told() {
        let reads = DeviceReads::new(PieceCost::EXPECTED, Stopwatch::default());
        assert_eq!((reads.piece_cost(), reads.report().piece_is_measured), (PieceCost::EXPECTED, false));
        assert_eq!(learned(&reads, Duration::from_micros(400)), [Change::Rose]);
        assert!((reads.piece_cost().blocks() - 40.0).abs() < 0.5 && reads.report().piece_is_measured);
        assert_eq!(learned(&reads, Duration::from_micros(60)).last(), Some(&Change::Fell));
        assert_eq!(learned(&reads, Duration::from_micros(400)).last(), Some(&Change::Rose));
    }

    #[test]
    fn what_an_earlier_mount_measured_holds_until_it_clearly_changes() {
        let reads = DeviceReads::new(PieceCost::EXPECTED, Stopwatch::default());
        reads.start_from(PieceCost::of_blocks(6.5));
        assert!(reads.is_measured() && reads.piece_cost().blocks() == 6.5);
        assert_eq!(learned(&reads, Duration::from_micros(60)), []);
        assert_eq!(reads.piece_cost().blocks(), 6.5);
    }

    #[test]
    fn a_request_that_failed_teaches_nothing() {
        let reads = DeviceReads::new(PieceCost::EXPECTED, Stopwatch::default());
        let before = reads.estimate.lock().clone();
        reads.note_machine(false);
        assert_eq!(reads.end(reads.begin(), &[1; 16], 0, false), None);
        assert_eq!((reads.under_way.load(Relaxed), &*reads.estimate.lock()), (0, &before));
    }

    #[test]
    fn reads_teach_nothing_while_the_cpus_are_busy_or_nobody_looked_at_them() {
        let reads = DeviceReads::new(PieceCost::EXPECTED, Stopwatch::default());
        let before = reads.estimate.lock().clone();
        let teach_nothing = || {
            assert_eq!(reads.end(reads.begin(), &[1; 16], 0, true), None);
            assert_eq!((reads.under_way.load(Relaxed), &*reads.estimate.lock()), (0, &before));
        };
        teach_nothing();
        reads.note_machine(true);
        teach_nothing();
        reads.note_machine(false);
        reads.end(reads.begin(), &[1; 16], 0, true);
        assert_ne!(*reads.estimate.lock(), before);
    }

    #[test]
    fn requests_made_at_once_are_one_read_of_as_many_pieces() {
        let reads = DeviceReads::new(PieceCost::EXPECTED, Stopwatch::default());
        let before = reads.estimate.lock().clone();
        reads.note_machine(false);
        reads.end(reads.begin(), &[1, 200], 0, true);
        assert_eq!(*reads.estimate.lock(), before, "two pieces of such lengths say nothing of either");
        reads.end(reads.begin(), &[1; 16], 0, true);
        assert_ne!(*reads.estimate.lock(), before);
    }

    #[test]
    fn pages_read_beside_several_pieces_are_pieces_and_beside_a_single_one_they_are_not() {
        let reads = DeviceReads::new(PieceCost::EXPECTED, Stopwatch::default());
        let before = reads.estimate.lock().clone();
        reads.note_machine(false);
        reads.end(reads.begin(), &[1; 5], 2, true);
        assert_eq!(*reads.estimate.lock(), before, "seven pieces are too few to teach");
        reads.end(reads.begin(), &[1; 5], 3, true);
        assert_ne!(*reads.estimate.lock(), before);
        let before = reads.estimate.lock().clone();
        reads.end(reads.begin(), &[64], 2, true);
        assert_ne!(*reads.estimate.lock(), before, "a large piece");
    }
}
