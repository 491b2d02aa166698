//! Requests that read the data area: how large they are, and how long they take.
//!
//! Owns the sizes of those that serve files, and the estimate of a seek's cost, which all of them teach.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use oncefs_dedup::{ReadPattern, SeekCost};

use crate::stats::counters::{Count, DeviceReport, LiveSizes};
use crate::sync::{LockRank, Mutex};

/// Runs with at most this gap between them are read in one request: 32 KiB cost less than a second request.
pub const GAP_BLOCKS_MAX: u64 = 8;

/// Requests to the data area since the mount.
pub struct DeviceReads {
    sizes: LiveSizes,
    under_way: Count,
    cost: Mutex<SeekCost>,
    /// What `cost` says, to be read without a lock: the bits of a floating-point number.
    seek_blocks: Count,
}

impl Default for DeviceReads {
    fn default() -> Self {
        let reads = Self {
            sizes: LiveSizes::default(),
            under_way: Count::new(0),
            cost: Mutex::new(LockRank::Leaf, SeekCost::expected(None)),
            seek_blocks: Count::new(0),
        };
        reads.set(SeekCost::expected(None));
        reads
    }
}

/// How an estimate changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is the first that was measured.
    First,
    /// A seek costs so much less than it did that in a file of which nothing is known shorter runs are worth sharing.
    Fell,
    /// A seek costs more than it did.
    Rose,
}

impl DeviceReads {
    /// Starts from the usual cost on a device of this kind, before it is measured.
    pub fn expect(&self, is_rotational: Option<bool>) {
        self.set(SeekCost::expected(is_rotational));
    }

    fn set(&self, cost: SeekCost) {
        assert!(
            cost.blocks().is_finite() && cost.blocks() > 0.0,
            "a seek is expected to cost {} blocks",
            cost.blocks()
        );
        self.seek_blocks.store(cost.blocks().to_bits(), Relaxed);
        *self.cost.lock() = cost;
    }

    /// The cost of a seek, in blocks.
    pub fn seek_blocks(&self) -> f64 {
        f64::from_bits(self.seek_blocks.load(Relaxed))
    }

    /// A request for so many blocks serves a file.
    pub fn count(&self, blocks: u64) {
        self.sizes.record(blocks);
    }

    /// Makes requests at once, each for so many blocks, and learns from their time if all succeed. One of many has no time
    /// of its own, so they teach nothing where one is more than twice as large as another. Every request is timed: that
    /// takes as long as a thousandth of the fastest device's request, and only so the rare ones that are held back for
    /// long are seen.
    pub fn timed<E>(
        &self,
        blocks: &[u64],
        requests: impl FnOnce() -> Vec<Result<(), E>>,
    ) -> (Vec<Result<(), E>>, Option<Change>) {
        let count = blocks.len() as u64;
        let before = self.under_way.fetch_add(count, Relaxed) + count;
        let began = Instant::now();
        let results = requests();
        let time = began.elapsed();
        let after = self.under_way.fetch_sub(count, Relaxed);
        debug_assert!(
            after >= count,
            "{before} requests were under way when {count} began, and {after} when they ended"
        );
        let (least, most) = blocks.iter().fold((u64::MAX, 0), |(least, most), &n| (n.min(least), n.max(most)));
        if most / 2 > least || results.iter().any(Result::is_err) {
            return (results, None);
        }
        let at_once = before.midpoint(after).min(u64::from(u32::MAX)) as u32;
        (results, self.learn(blocks, time, at_once))
    }

    /// Requests for so many blocks each took so long, with so many under way. Ignored while others are noted.
    fn learn(&self, blocks: &[u64], time: Duration, at_once: u32) -> Option<Change> {
        let mut cost = self.cost.try_lock()?;
        let (was, was_measured) = (cost.blocks(), cost.is_measured());
        let mut is_new = false;
        blocks.iter().for_each(|&blocks| is_new |= cost.observe(blocks, time, at_once));
        if !is_new {
            return None;
        }
        self.seek_blocks.store(cost.blocks().to_bits(), Relaxed);
        log::info!("a seek costs as much as {:.1} blocks (before: {was:.1})", cost.blocks());
        let number = |seek_blocks| ReadPattern::default().run_blocks_min(seek_blocks, None);
        match was_measured {
            false => Some(Change::First),
            true if cost.blocks() > was => Some(Change::Rose),
            true => (number(cost.blocks()) < number(was)).then_some(Change::Fell),
        }
    }

    /// For `oncefs stats`.
    pub fn report(&self) -> DeviceReport {
        let cost = self.cost.lock();
        DeviceReport {
            seek_blocks: cost.blocks(),
            seek_is_measured: cost.is_measured(),
            read_sizes: self.sizes.snapshot(),
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    /// Many requests for one block and for 256, of which each block takes 10 microseconds.
    fn learned(reads: &DeviceReads, seek: Duration) -> Vec<Change> {
        let learn = |n: u64| match n % 2 {
            0 => reads.learn(&[1], seek, 1),
            _ => reads.learn(&[256], Duration::from_micros(2_560), 1),
        };
        (0..100_000).filter_map(learn).collect()
    }

    #[test]
    fn what_a_seek_costs_is_expected_then_measured_and_its_changes_are_told() {
        let reads = DeviceReads::default();
        assert_eq!((reads.seek_blocks(), reads.report().seek_is_measured), (8.0, false));
        reads.expect(Some(true));
        assert_eq!(reads.seek_blocks(), 16.0);
        assert_eq!(learned(&reads, Duration::from_micros(400)), [Change::First]);
        assert!((reads.seek_blocks() - 40.0).abs() < 0.5 && reads.report().seek_is_measured);
        assert_eq!(learned(&reads, Duration::from_micros(60)), [Change::Fell]);
        assert_eq!(learned(&reads, Duration::from_micros(400)), [Change::Rose]);
    }

    #[test]
    fn a_seek_that_costs_more_than_any_number_allows_for_tells_of_no_fall() {
        let reads = DeviceReads::default();
        assert_eq!(learned(&reads, Duration::from_micros(2_000)), [Change::First]);
        for _ in 0..3 {
            // Between 100 and 200 blocks no file's number is another one: there is nothing to look at again.
            assert_eq!(learned(&reads, Duration::from_micros(1_000)), []);
            assert!((reads.seek_blocks() - 100.0).abs() < 1.0);
            assert_eq!(learned(&reads, Duration::from_micros(2_000)), [Change::Rose]);
        }
        assert_eq!(learned(&reads, Duration::from_micros(60)), [Change::Fell]);
    }

    #[test]
    fn a_request_that_failed_teaches_nothing() {
        let reads = DeviceReads::default();
        assert_eq!(reads.timed(&[1], || vec![Err("no")]), (vec![Err("no")], None));
        assert_eq!(reads.under_way.load(Relaxed), 0);
        assert_eq!(reads.timed(&[1], || vec![Ok::<_, ()>(())]), (vec![Ok(())], None));
    }

    #[test]
    fn requests_made_at_once_teach_what_each_adds_if_they_are_alike() {
        for (sizes, at_once) in [([1; 100], 100), ([2; 100], 100)] {
            let reads = DeviceReads::default();
            // 100 at once take 40 ms: each adds 400 microseconds, the time of 40 blocks.
            for _ in 0..50 {
                reads.learn(&sizes, Duration::from_millis(40), at_once);
            }
            for _ in 0..500 {
                reads.learn(&[256], Duration::from_micros(2_560), 1);
            }
            assert!((reads.seek_blocks() - 40.0).abs() < 0.5, "{}", reads.seek_blocks());
        }
    }

    #[test]
    fn requests_made_at_once_teach_nothing_if_they_are_not_alike() {
        let reads = DeviceReads::default();
        let before = reads.cost.lock().clone();
        let made = || vec![Ok::<_, ()>(()); 2];
        reads.timed(&[1, 200], made);
        assert_eq!(*reads.cost.lock(), before);
        reads.timed(&[100, 200], made);
        assert_ne!(*reads.cost.lock(), before);
    }
}
