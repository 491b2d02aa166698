//! The controller against streams of requests with a known share of duplicates. Not covered: the cost or gain of the
//! shares on a device.

use super::*;
use crate::random::Random;

/// Duplicates per mille among the blocks of the requests, and the timing of the requests.
struct Stream {
    numbers: Random,
    per_mille: u64,
    blocks: u64,
    now: Duration,
    between: Duration,
}

impl Stream {
    fn new(per_mille: u64, blocks: u64) -> Self {
        // Without time in between, so that only the rate admits.
        Self { numbers: Random::new(1), per_mille, blocks, now: Duration::ZERO, between: Duration::ZERO }
    }

    fn at_rate(mut self, requests_per_second: u32) -> Self {
        self.between = Duration::from_secs(1) / requests_per_second;
        self
    }

    fn duplicates(&mut self) -> u64 {
        let per_mille = self.per_mille;
        (0..self.blocks).filter(|_| self.below_1000() < per_mille).count() as u64
    }

    fn below_1000(&mut self) -> u64 {
        self.numbers.below(1_000)
    }

    /// Passes `requests` through the controller. Returns how many it admitted.
    fn pass(&mut self, admission: &mut Admission, requests: u64) -> u64 {
        let mut admitted = 0;
        for _ in 0..requests {
            self.now += self.between;
            let duplicates = self.duplicates();
            if admission.admit(self.now) {
                admitted += 1;
                admission.observe(self.blocks, duplicates);
            }
            admission.check();
        }
        admitted
    }
}

/// Steps of a tenth add up to within a millionth.
fn is_at_floor(admission: &Admission) -> bool {
    (admission.rate() - admission.rule().floor).abs() < 1e-6
}

/// A controller that has seen only unique data, and its stream.
fn at_floor(rule: Rule, blocks: u64) -> (Admission, Stream) {
    let (mut admission, mut unique) = (Admission::new(rule), Stream::new(0, blocks));
    unique.pass(&mut admission, 3_000);
    assert!(is_at_floor(&admission));
    (admission, unique)
}

#[test]
fn the_share_falls_to_its_floor_on_unique_data_within_ten_windows() {
    for (rule, windows) in [(Rule::PAPER, 7), (Rule::PROBING, 10)] {
        let (mut admission, mut unique) = (Admission::new(rule), Stream::new(0, 1));
        unique.pass(&mut admission, windows * 150);
        assert!(!is_at_floor(&admission), "{rule:?} after {windows} windows less one request");
        // A window is judged when the first request of the next one comes.
        unique.pass(&mut admission, 1);
        assert!(is_at_floor(&admission), "{rule:?}: {}", admission.rate());
        let admitted = unique.pass(&mut admission, 100_000);
        let expected = (100_000.0 * rule.floor) as u64;
        assert!(admitted.abs_diff(expected) <= 1, "{rule:?}: {admitted}");
    }
}

#[test]
fn the_papers_rule_steps_by_a_tenth_down_and_three_tenths_up_at_the_ends_of_windows() {
    let mut admission = Admission::new(Rule::PAPER);
    let window = |admission: &mut Admission, duplicates: u64| {
        for _ in 0..150 {
            if admission.admit(Duration::ZERO) {
                admission.observe(10, duplicates);
            }
        }
        admission.admit(Duration::ZERO);
        admission.window = Window::default();
        (admission.rate() * 100.0).round() as u32
    };
    let rates = [5, 4, 4, 3, 3, 2, 2, 1, 1, 5, 5, 5].map(|duplicates| window(&mut admission, duplicates));
    // The first window has nothing to compare with. The second 4 is below the mean of 5 and 4.
    assert_eq!(rates, [100, 90, 80, 70, 60, 50, 40, 30, 30, 60, 90, 100]);
}

#[test]
fn a_steady_share_of_duplicates_keeps_most_requests_admitted() {
    for (rule, per_mille, share_min) in [(Rule::PAPER, 250, 0.80), (Rule::PROBING, 250, 0.95), (Rule::PROBING, 50, 0.9)]
    {
        let (mut admission, mut stream) = (Admission::new(rule), Stream::new(per_mille, 1));
        let admitted = stream.pass(&mut admission, 100_000) as f64 / 1e5;
        assert!(admitted >= share_min, "{rule:?} at {per_mille} per mille: {admitted}");
    }
}

#[test]
fn equal_windows_with_duplicates_change_nothing() {
    let mut admission = Admission::new(Rule { floor: 0.30, ..Rule::PROBING });
    for request in 0..10_000 {
        assert!(admission.admit(Duration::ZERO), "request {request}");
        admission.observe(4, 1);
    }
}

#[test]
fn the_first_duplicates_found_by_a_probe_restore_the_full_rate_at_once() {
    let (mut admission, _) = at_floor(Rule::PROBING, 1);
    let requests = (1..).find(|_| admission.admit(Duration::ZERO)).unwrap();
    assert!(requests <= 100, "{requests}");
    admission.observe(8, 0);
    assert_eq!(admission.rate(), 0.01);
    admission.observe(8, 1);
    assert_eq!(admission.rate(), 1.0);
    assert!((0..100).all(|_| admission.admit(Duration::ZERO)));
}

#[test]
fn the_papers_rule_waits_for_the_windows_end() {
    let (mut admission, _) = at_floor(Rule::PAPER, 1);
    admission.observe(8, 8);
    assert_eq!(admission.rate(), 0.30);
}

#[test]
fn the_rate_recovers_within_a_second_of_duplicates_appearing() {
    // Slow streams consist of large requests: the kernel merges requests that the device cannot take at once.
    for (per_second, blocks) in [(20, 256), (50, 64), (200, 16), (700, 8), (3_000, 1), (20_000, 1)] {
        let mut admission = Admission::new(Rule::PROBING);
        let mut stream = Stream::new(0, blocks).at_rate(per_second);
        stream.pass(&mut admission, 3_000 + 5 * u64::from(per_second));
        assert_eq!(admission.rate(), 0.01, "{per_second} requests a second");
        stream.per_mille = 250;
        let appeared = stream.now;
        while admission.rate() < 1.0 {
            stream.pass(&mut admission, 1);
        }
        let time = stream.now - appeared;
        assert!(time < Duration::from_secs(1), "{time:?} at {per_second} requests a second");
    }
}

#[test]
fn probes_by_time_are_few() {
    for per_second in [20, 50, 200, 700, 20_000] {
        let (mut admission, unique) = at_floor(Rule::PROBING, 1);
        let mut unique = unique.at_rate(per_second);
        let admitted = unique.pass(&mut admission, u64::from(per_second) * 100);
        // At most four a second, in addition to those that the rate admits.
        let allowed = 100 * 4 + u64::from(per_second) + 1;
        assert!(admitted <= allowed, "{admitted} of 100 s at {per_second} requests a second");
        assert!(admitted >= 100 * 3, "{admitted} of 100 s at {per_second} requests a second");
    }
}

#[test]
fn admitted_requests_are_spread_evenly() {
    for share in [0.01, 0.1, 0.3, 1.0 / 3.0, 0.5, 0.7, 0.99] {
        let mut admission = Admission::always();
        admission.set_limit(share);
        let places: Vec<u32> = (0..10_000).filter(|_| admission.admit(Duration::ZERO)).collect();
        let apart = |pair: &[u32]| pair[1] - pair[0];
        let (least, most) = (places.windows(2).map(apart).min(), places.windows(2).map(apart).max());
        assert!(most.unwrap() - least.unwrap() <= 1, "{share}: {least:?} to {most:?} apart");
        assert!(places.len().abs_diff((share * 10_000.0) as usize) <= 1, "{share}: {}", places.len());
    }
}

#[test]
fn the_limit_bounds_the_rate_and_zero_turns_off() {
    let (mut admission, mut stream) = (Admission::always(), Stream::new(500, 4).at_rate(100));
    admission.set_limit(0.25);
    assert_eq!((admission.rate(), admission.share()), (1.0, 0.25));
    assert_eq!(stream.pass(&mut admission, 1_000), 250);
    admission.set_limit(0.0);
    assert_eq!(stream.pass(&mut admission, 1_000), 0);
    admission.set_limit(1.0);
    assert_eq!(stream.pass(&mut admission, 1_000), 1_000);
}

#[test]
fn a_limit_that_is_no_share_is_brought_into_its_range() {
    for (given, taken) in [(-0.5, 0.0), (7.0, 1.0), (f64::NAN, 0.0), (f64::INFINITY, 1.0)] {
        let mut admission = Admission::always();
        admission.set_limit(given);
        assert_eq!(admission.limit(), taken, "{given}");
    }
}

#[test]
fn windows_of_which_nothing_was_observed_do_not_count() {
    let mut admission = Admission::new(Rule::PROBING);
    for _ in 0..10_000 {
        assert!(admission.admit(Duration::ZERO));
    }
    assert_eq!((admission.windows(), admission.rate()), (0, 1.0));
    let sparse = Rule { window_requests: 10, ..Rule::PROBING };
    let (mut admission, mut unique) = at_floor(sparse, 1);
    let before = admission.windows();
    unique.pass(&mut admission, 10_000);
    assert!((99..=101).contains(&(admission.windows() - before)), "one window in ten holds a probe");
}

#[test]
fn always_never_adapts() {
    let (mut admission, mut unique) = (Admission::always(), Stream::new(0, 1));
    assert_eq!(unique.pass(&mut admission, 10_000), 10_000);
}

#[test]
fn a_new_rule_applies_to_what_was_learned() {
    let (mut admission, mut unique) = at_floor(Rule::PROBING, 1);
    admission.set_rule(Rule { windows: 3, ..Rule::PAPER }).unwrap();
    admission.check();
    assert_eq!(admission.rate(), 0.30);
    admission.set_rule(Rule::ALWAYS).unwrap();
    assert_eq!(unique.pass(&mut admission, 1_000), 1_000);
}

#[test]
fn nonsense_is_refused_with_the_range_and_changes_nothing() {
    let paper = Rule::PAPER;
    let refused = [
        (Rule { window_requests: 0, ..paper }, "window_requests must be 1 to 1000000"),
        (Rule { windows: 1_001, ..paper }, "windows must be 1 to 1000"),
        (Rule { step_down: -0.1, ..paper }, "step_down must be 0 to 1"),
        (Rule { step_up: 0.0, ..paper }, "step_up must be 0.01 to 1"),
        (Rule { floor: 0.0, ..paper }, "floor must be 0.001 to 1"),
        (Rule { floor: f64::NAN, ..paper }, "floor must be 0.001 to 1"),
    ];
    let mut admission = Admission::new(paper);
    for (rule, message) in refused {
        assert_eq!(admission.set_rule(rule).unwrap_err().to_string(), message);
        assert_eq!(admission.rule(), paper);
    }
    for rule in [Rule::PAPER, Rule::PROBING, Rule::ALWAYS] {
        assert_eq!(rule.check(), Ok(()), "{rule:?}");
    }
}

fn auto() -> Fingerprinting {
    Fingerprinting::Auto(DuplicateShare::default(), WritePace::default())
}

/// Batches of 100 blocks until the answer is `eager`.
fn blocks_until(eager: bool, fingerprinting: &mut Fingerprinting, duplicates: u64) -> u64 {
    let mut blocks = 0;
    while fingerprinting.eager() != eager {
        fingerprinting.observe(100, duplicates);
        blocks += 100;
        assert!(blocks < 1_000_000, "never at {duplicates} %");
    }
    blocks
}

#[test]
fn auto_starts_lazy() {
    assert!(!auto().eager());
}

#[test]
fn auto_turns_eager_soon_after_duplicates_appear_and_lazy_after_they_end() {
    let mut fingerprinting = auto();
    assert!(blocks_until(true, &mut fingerprinting, 25) < WINDOW_BLOCKS / 4);
    (0..1_000).for_each(|_| fingerprinting.observe(100, 25));
    assert!(blocks_until(false, &mut fingerprinting, 0) < 4 * WINDOW_BLOCKS);
}

#[test]
fn a_steady_share_between_the_thresholds_changes_nothing() {
    let (mut from_lazy, mut from_eager) = (auto(), auto());
    blocks_until(true, &mut from_eager, 50);
    for _ in 0..10_000 {
        from_lazy.observe(100, 2);
        from_eager.observe(100, 2);
        assert!(!from_lazy.eager() && from_eager.eager());
    }
}

#[test]
fn the_size_of_batches_does_not_matter_for_a_steady_share() {
    for blocks in [50, 100, 1_000, WINDOW_BLOCKS, 10 * WINDOW_BLOCKS] {
        let mut recent = DuplicateShare::default();
        (0..2_000).for_each(|_| recent.observe(blocks, blocks / 10));
        assert!((recent.share() - 0.1).abs() < 1e-3, "{} at {blocks}", recent.share());
    }
}

#[test]
fn auto_is_eager_where_the_device_is_slow_and_lazy_again_once_it_is_clearly_fast() {
    let mut fingerprinting = auto();
    let mut write = |ns_per_block: u64, times: u64| {
        (0..times).for_each(|_| fingerprinting.observe_device(256, Duration::from_nanos(256 * ns_per_block)));
        fingerprinting.eager()
    };
    assert!(!write(1_000, 1), "4 GB/s");
    assert!(!write(1_700, 100), "2.4 GB/s, between the bounds");
    assert!(write(9_000, 20), "450 MB/s");
    assert!(write(1_700, 100), "between the bounds again");
    assert!(!write(1_000, 100));
    let mut first = auto();
    first.observe_device(1, Duration::from_micros(41));
    assert!(first.eager(), "the first write says what there is to know");
    first.observe_device(0, Duration::from_secs(1));
    assert!(first.eager());
}

#[test]
fn what_is_not_looked_up_is_fingerprinted_only_where_the_device_hides_it_and_nothing_is_to_be_saved() {
    let slow = |mut fingerprinting: Fingerprinting| {
        fingerprinting.observe_device(1, Duration::from_micros(41));
        fingerprinting
    };
    assert!(!auto().eager_unadmitted(false), "the device is fast");
    assert!(slow(auto()).eager_unadmitted(false));
    assert!(!slow(auto()).eager_unadmitted(true), "load or energy bound the rate");
    let mut finding = auto();
    blocks_until(true, &mut finding, 100);
    assert!(!finding.eager_unadmitted(false), "duplicates alone do not pay for it: the request was not looked up");
    for fixed in [Fingerprinting::Eager, Fingerprinting::Lazy] {
        assert!(!slow(fixed).eager_unadmitted(false), "a fixed choice is that of requests that are looked up");
    }
}

#[test]
fn an_empty_batch_teaches_nothing() {
    let mut fingerprinting = auto();
    blocks_until(true, &mut fingerprinting, 100);
    let before = fingerprinting;
    fingerprinting.observe(0, 0);
    assert_eq!(fingerprinting, before);
}

#[test]
fn fixed_modes_learn_nothing() {
    for mut fixed in [Fingerprinting::Eager, Fingerprinting::Lazy] {
        let before = fixed;
        fixed.observe(1 << 20, 1 << 19);
        fixed.observe_device(1, Duration::from_secs(1));
        assert_eq!(fixed, before);
    }
    assert!(Fingerprinting::Eager.eager() && !Fingerprinting::Lazy.eager());
}

#[test]
fn a_hit_of_a_probe_brings_the_full_rate_back_at_once_and_the_limit_stays() {
    let mut admission = Admission::new(Rule::PAPER);
    assert!(!admission.is_probed(), "everything is admitted");
    admission.rate = Rule::PAPER.floor;
    assert!(admission.is_probed());
    admission.set_limit(0.2);
    assert!(!admission.is_probed(), "the machine has no time for more");
    admission.hit();
    assert_eq!((admission.rate(), admission.share()), (1.0, 0.2));
    admission.check();
}
