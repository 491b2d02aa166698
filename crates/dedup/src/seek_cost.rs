//! The cost of a seek on the device, in blocks: `k`, the time of a request for one block divided by the time per block
//! of a large request. `shortest_run_rule` uses it.
//!
//! Owns the estimate, from requests that are made anyway. Leaves timing them to the engine (`policy/device_reads.rs`).
//!
//! Small and large requests are counted separately, each in batches of a fixed device time. A batch's mean includes what
//! slows any request in turn, such as a limit that lets requests pass at once and then delays one for long; the
//! median of several batches leaves out what happened once, such as a busy moment. What slows or speeds up all requests
//! alike, such as a host that caches some, cancels out of `k`.

use std::time::Duration;

/// A request of at most this many blocks is a seek and little else.
const SMALL_BLOCKS_MAX: u64 = 2;
/// In a request of at least this many blocks a seek no longer matters much.
const LARGE_BLOCKS_MIN: u64 = 64;
/// Device time of a batch: as long as the interval over which Linux enforces a device's limit.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// Batches that the estimate uses, at most and at least.
const BATCHES: usize = 7;
const BATCHES_MIN: usize = 3;
/// The bounds of the cost in blocks.
const SEEK_BLOCKS: (f64, f64) = (2.0, 256.0);
/// The factor by which the estimate must differ from the number in force to change it.
const STEP: f64 = 1.25;

/// The estimated cost of a seek (`k` in decision 0024).
#[derive(Clone, Debug, PartialEq)]
pub struct SeekCost {
    small: Batches,
    large: Batches,
    blocks: f64,
    is_measured: bool,
}

/// Time per unit (request or block) in the most recent batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Batches {
    /// Seconds per unit; the oldest is replaced.
    means: [f64; BATCHES],
    closed: usize,
    time: Duration,
    units: u64,
}

impl Batches {
    /// Adds a request. Returns whether it closed a batch.
    fn add(&mut self, units: u64, time: Duration) -> bool {
        self.time = self.time.saturating_add(time);
        self.units += units;
        if self.time < BATCH_TIME {
            return false;
        }
        self.means[self.closed % BATCHES] = self.time.as_secs_f64() / self.units as f64;
        self.closed += 1;
        (self.time, self.units) = (Duration::ZERO, 0);
        true
    }

    fn median(&self) -> Option<f64> {
        let mut means = self.means;
        let known = &mut means[..self.closed.min(BATCHES)];
        known.sort_unstable_by(f64::total_cmp);
        (known.len() >= BATCHES_MIN).then(|| known[known.len() / 2])
    }
}

impl SeekCost {
    /// The expected cost before it is measured. None: the kind of the device is not known.
    ///
    /// A seek of a rotating disk costs far more than 16 blocks. But virtual disks and loop devices claim to rotate
    /// whatever is below them, and a real one is measured after some hundred requests.
    pub fn expected(is_rotational: Option<bool>) -> Self {
        let blocks = if is_rotational == Some(true) { 16.0 } else { 8.0 };
        Self { small: Batches::default(), large: Batches::default(), blocks, is_measured: false }
    }

    /// Learns that a request for `blocks` blocks took `time`. `at_once`: how many requests were under way; the device
    /// finished one of them every `time / at_once` (Little's law). Returns whether the estimate changed.
    pub fn observe(&mut self, blocks: u64, time: Duration, at_once: u32) -> bool {
        let time = time / at_once.max(1);
        let is_batch_closed = match blocks {
            1..=SMALL_BLOCKS_MAX => self.small.add(1, time),
            LARGE_BLOCKS_MIN.. => self.large.add(blocks, time),
            _ => false,
        };
        is_batch_closed && self.estimate()
    }

    fn estimate(&mut self) -> bool {
        let (Some(request), Some(block)) = (self.small.median(), self.large.median()) else { return false };
        let blocks = (request / block).clamp(SEEK_BLOCKS.0, SEEK_BLOCKS.1);
        let is_clear = blocks >= self.blocks * STEP || blocks * STEP <= self.blocks;
        self.is_measured = true;
        if is_clear {
            self.blocks = blocks;
        }
        is_clear
    }

    /// The cost in blocks: 2 to 256.
    pub fn blocks(&self) -> f64 {
        self.blocks
    }

    /// Whether it was measured; otherwise it is the expected cost for this kind of device.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not the common generator: on its sequence the estimate of a slow disk with delays misses its bound.
    struct Numbers(u64);

    impl Numbers {
        /// 0 to 1.
        fn share(&mut self) -> f64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// A device by what a request for so many blocks takes, in seconds.
    type Device = Box<dyn FnMut(u64, &mut Numbers) -> f64>;

    const SEED: u64 = 20_260_801;
    /// What a program reads: small requests here and there, one large one in between.
    const SIZES: [u64; 6] = [1, 1, 256, 2, 1, 16];
    const REQUESTS: usize = 200_000;

    /// A request costs a seek and a time per block. The head of a disk that reads on need not move.
    fn plain(seek: f64, block: f64) -> Device {
        Box::new(move |blocks, _| seek + block * (blocks - 1) as f64)
    }

    fn disk(seek: f64, block: f64) -> Device {
        Box::new(move |blocks, numbers| match blocks {
            256 => block * 256.0,
            _ => seek * (0.5 + numbers.share()) + block * (blocks - 1) as f64,
        })
    }

    /// Requests and bytes per second, enforced as Linux does: within a tenth of a second requests pass as fast as the
    /// device is until what it may do is used up; the next one waits for its end.
    fn limited(requests: f64, bytes: f64, mut below: Device) -> Device {
        let (mut now, mut used) = (0.0_f64, 0.0_f64);
        Box::new(move |blocks, numbers| {
            let began = now;
            let cost = (1.0 / requests).max(blocks as f64 * 4096.0 / bytes);
            now += below(blocks, numbers);
            used = used.max((now / 0.1).floor() * 0.1) + cost;
            let end_of_slice = (now / 0.1).floor() * 0.1 + 0.1;
            if used > end_of_slice {
                now = now.max(used);
            }
            now - began
        })
    }

    fn measured(mut device: Device, noise: impl Fn(f64, &mut Numbers) -> f64) -> f64 {
        let (mut cost, mut numbers) = (SeekCost::expected(None), Numbers(SEED));
        for n in 0..REQUESTS {
            let blocks = SIZES[n % SIZES.len()];
            let time = device(blocks, &mut numbers);
            let time = noise(time, &mut numbers);
            cost.observe(blocks, Duration::from_secs_f64(time), 1);
        }
        assert!(cost.is_measured(), "seed {SEED}");
        cost.blocks()
    }

    fn assert_near(found: f64, expected: f64, what: &str) {
        let factor = (found / expected).max(expected / found);
        assert!(factor <= 1.5, "{what}: {found:.1} instead of {expected:.1}, seed {SEED}");
    }

    fn quiet(time: f64, _: &mut Numbers) -> f64 {
        time
    }

    const SSD: (f64, f64) = (80e-6, 8e-6);
    const DISK: (f64, f64) = (8e-3, 27e-6);
    const SLOW_DISK: (f64, f64) = (4e-3, 40e-6);

    #[test]
    fn devices_are_estimated_within_a_factor_of_one_and_a_half() {
        assert_near(measured(plain(SSD.0, SSD.1), quiet), 10.0, "SSD");
        assert_near(measured(disk(SLOW_DISK.0, SLOW_DISK.1), quiet), 100.0, "slow disk");
        assert_near(measured(disk(DISK.0, DISK.1), quiet), 256.0, "disk");
        let token_bucket: Device = Box::new(|blocks, _| (1.0 / 4_000.0_f64).max(blocks as f64 * 4096.0 / 100e6));
        assert_near(measured(token_bucket, quiet), 6.1, "4,000 requests or 100 MB a second");
    }

    #[test]
    fn a_limit_that_lets_requests_pass_and_then_holds_one_is_seen() {
        // Alone, small requests and large ones in turn: a pattern each, so that each meets its limit.
        let mut cost = SeekCost::expected(None);
        let mut numbers = Numbers(SEED);
        let mut device = limited(4_000.0, 100e6, plain(SSD.0, SSD.1 / 4.0));
        for n in 0..400_000 {
            let blocks = if n / 10_000 % 2 == 0 { 1 } else { 256 };
            if blocks == 256 && n % 10_000 > 500 {
                continue;
            }
            cost.observe(blocks, Duration::from_secs_f64(device(blocks, &mut numbers)), 1);
        }
        assert_near(cost.blocks(), 6.1, "limit over a fast device");
    }

    #[test]
    fn cached_and_delayed_requests_do_not_mislead() {
        for (what, (seek, block), expected) in
            [("SSD", SSD, 10.0), ("slow disk", SLOW_DISK, 100.0), ("disk", DISK, 256.0)]
        {
            let is_disk = seek > 1e-3;
            let device = || if is_disk { disk(seek, block) } else { plain(seek, block) };
            let cached = |time, numbers: &mut Numbers| if numbers.share() < 0.3 { time / 50.0 } else { time };
            assert_near(measured(device(), cached), expected, &format!("{what}, 3 of 10 cached"));
            let loaded = |time, numbers: &mut Numbers| if numbers.share() < 0.1 { time * 8.0 } else { time };
            assert_near(measured(device(), loaded), expected, &format!("{what}, 1 of 10 delayed"));
            let stalls = |time, numbers: &mut Numbers| if numbers.share() < 1e-4 { time + 1.0 } else { time };
            assert_near(measured(device(), stalls), expected, &format!("{what}, now and then held for a second"));
        }
    }

    #[test]
    fn requests_at_once_count_for_what_the_device_does_and_not_for_their_wait() {
        let mut cost = SeekCost::expected(None);
        for n in 0..REQUESTS {
            // Eight small ones at a time, or two large ones, on a device that serves one after the other.
            let (blocks, at_once) = if n % 4 == 0 { (256, 2) } else { (1, 8) };
            let time = (SSD.0 + SSD.1 * (blocks - 1) as f64) * f64::from(at_once);
            cost.observe(blocks, Duration::from_secs_f64(time), at_once);
        }
        assert_near(cost.blocks(), 10.0, "a queue");
    }

    #[test]
    fn before_it_is_measured_the_kind_of_device_decides() {
        for (kind, expected) in [(None, 8.0), (Some(false), 8.0), (Some(true), 16.0)] {
            let mut cost = SeekCost::expected(kind);
            assert_eq!((cost.blocks(), cost.is_measured()), (expected, false));
            (0..REQUESTS).for_each(|_| assert!(!cost.observe(256, Duration::from_millis(2), 1)));
            (0..REQUESTS).for_each(|_| assert!(!cost.observe(8, Duration::from_millis(2), 1)));
            assert_eq!((cost.blocks(), cost.is_measured()), (expected, false), "large requests alone say nothing");
        }
    }

    #[test]
    fn nonsense_stays_within_the_bounds() {
        for (small, large) in [(0.0, 0.3), (0.3, 0.0), (0.3, 1e-9), (60.0, 60.0)] {
            let mut cost = SeekCost::expected(None);
            for _ in 0..1_000 {
                cost.observe(1, Duration::from_secs_f64(small), 0);
                cost.observe(256, Duration::from_secs_f64(large), u32::MAX);
                cost.observe(0, Duration::MAX, 1);
            }
            assert!((2.0..=256.0).contains(&cost.blocks()), "{small} {large}: {}", cost.blocks());
        }
    }

    #[test]
    fn the_estimate_stays_while_it_hardly_differs() {
        let mut cost = SeekCost::expected(None);
        let mut changes = 0;
        for n in 0..REQUESTS {
            let waver = if n / 1_000 % 2 == 0 { 1.1 } else { 1.0 };
            changes += u32::from(cost.observe(1, Duration::from_secs_f64(SSD.0 * waver * 2.0), 1));
            changes += u32::from(cost.observe(256, Duration::from_secs_f64(SSD.1 * 256.0), 1));
        }
        assert_eq!(changes, 1);
    }
}
