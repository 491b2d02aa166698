//! The rule, and the estimate of a seek's cost on devices of many kinds.

use super::*;

/// A seek at 4,000 requests or 100 MB per second.
const THROTTLED: f64 = 100e6 / 4_000.0 / 4096.0;
const SEEKS: [f64; 8] = [2.0, 3.5, THROTTLED, 8.0, 20.0, 64.0, 100.0, 256.0];

fn of(pattern: ReadPattern, seek_blocks: f64) -> u32 {
    pattern.run_blocks_min(seek_blocks, None)
}

fn read(requests: u32, blocks: u32, follows: bool) -> ReadPattern {
    let mut pattern = ReadPattern::default();
    (0..requests).for_each(|_| pattern.read(blocks, follows));
    pattern
}

#[test]
fn a_file_never_read_is_expected_to_be_read_in_sequence() {
    let min = of(ReadPattern::default(), THROTTLED);
    assert!((4..=16).contains(&min), "runs of 1 to 3 are to be refused and runs of 16 shared, not those from {min}");
    assert_eq!(min, THROTTLED.ceil() as u32);
    assert_eq!(of(read(1_000, 256, true), THROTTLED), min);
}

#[test]
fn a_file_read_at_random_shares_every_run() {
    for seek_blocks in SEEKS {
        assert_eq!(of(read(20_000, 1, false), seek_blocks), 1, "a seek costs {seek_blocks}");
    }
    assert_eq!(of(read(100, 1, false), THROTTLED), 1);
}

#[test]
fn large_requests_at_random_places_are_mostly_sequential() {
    assert_eq!(of(read(1_000, 256, false), THROTTLED), THROTTLED.ceil() as u32);
    let small = read(1_000, 4, false);
    assert!((small.sequential_share() - 0.75).abs() < 0.01, "{}", small.sequential_share());
}

#[test]
fn the_number_is_never_above_two_of_the_pieces_that_the_file_lies_in() {
    for seek_blocks in SEEKS {
        for piece in [1, 2, 5, 16, 40] {
            let mut pattern = ReadPattern::default();
            (0..20_000 / piece).for_each(|_| pattern.lies(piece - 1, 1));
            let min = of(pattern, seek_blocks);
            assert!(min <= 2 * piece, "{min} in pieces of {piece}, a seek costs {seek_blocks}");
        }
    }
}

#[test]
fn the_bound_holds_on_the_slowest_device() {
    for seek_blocks in [64.5, 100.0, 256.0, 1e12] {
        assert_eq!(of(ReadPattern::default(), seek_blocks), RUN_BLOCKS_MIN_MAX);
    }
    assert_eq!(of(ReadPattern::default(), 0.0), 1);
}

#[test]
fn more_random_reads_more_pieces_and_cheaper_seeks_never_raise_the_number() {
    let patterns = |random: u32, apart: u32| {
        let mut pattern = ReadPattern::default();
        pattern.read(500, true);
        (0..random).for_each(|_| pattern.read(1, false));
        pattern.lies(500, apart);
        pattern
    };
    for (nth, seek_blocks) in SEEKS.into_iter().enumerate() {
        for more in [0, 1, 10, 100, 1_000, 10_000] {
            let here = patterns(more, more).worthwhile_run(seek_blocks);
            assert!(here >= patterns(more * 2, more).worthwhile_run(seek_blocks));
            assert!(here >= patterns(more, more * 2).worthwhile_run(seek_blocks));
            let cheaper = SEEKS[nth.saturating_sub(1)];
            assert!(here >= patterns(more, more).worthwhile_run(cheaper));
        }
    }
}

#[test]
fn the_number_changes_by_clear_steps_only() {
    let (mut in_force, mut changes) = (None, 0);
    for n in 0..10_000 {
        // A cost that wavers by a quarter, as an estimate may.
        let seek_blocks = THROTTLED * if n % 2 == 0 { 1.0 } else { 1.25 };
        let min = ReadPattern::default().run_blocks_min(seek_blocks, in_force);
        changes += u32::from(in_force.is_some_and(|before| before != min));
        in_force = Some(min);
    }
    assert_eq!((in_force, changes), (Some(7), 0));
}

#[test]
fn a_file_that_turns_to_random_reads_falls_to_one_in_a_few_steps_and_never_rises_on_the_way() {
    for seek_blocks in SEEKS {
        let (mut pattern, mut falls) = (read(100, 256, true), 0);
        let mut in_force = of(pattern, seek_blocks);
        for _ in 0..2_000_000 {
            pattern.read(1, false);
            let min = pattern.run_blocks_min(seek_blocks, Some(in_force));
            assert!(min <= in_force, "{min} after {in_force}");
            falls += u32::from(min < in_force);
            in_force = min;
        }
        assert_eq!(in_force, 1, "a seek costs {seek_blocks}");
        assert!(falls <= 11, "{falls} falls");
    }
}

#[test]
fn counts_stay_bounded_and_follow_the_present() {
    let mut pattern = read(1_000_000, 256, true);
    assert!(pattern.sequential + pattern.random <= BLOCKS_COUNTED_MAX);
    (0..BLOCKS_COUNTED_MAX * 4).for_each(|_| pattern.read(1, false));
    assert!(pattern.sequential_share() < 0.1, "{}", pattern.sequential_share());
    (0..1_000_000).for_each(|_| pattern.lies(255, 1));
    assert!(pattern.together + pattern.apart <= BLOCKS_COUNTED_MAX);
    assert!((pattern.apart_share() - 1.0 / 256.0).abs() < 1e-3);
}

mod seek_cost {
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
