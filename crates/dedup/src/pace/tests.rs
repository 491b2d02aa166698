//! The pace against a clock that the test moves. Not covered: whether a real worker keeps to it.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A quiet machine on mains at `now`, no request yet.
fn quiet(now: Duration) -> Conditions {
    let (cpus, cpus_of_others) = (2, 0.2);
    let (cpu_busy, device_busy, energy_share) = (0.1, 0.1, 1.0);
    Conditions { now, last_foreground: None, cpu_busy, cpus, cpus_of_others, device_busy, energy_share, opens_in: None }
}

/// The same with a request just now.
fn active(now: Duration) -> Conditions {
    Conditions { last_foreground: Some(now), ..quiet(now) }
}

fn pace(mode: Mode) -> Pace {
    Pace::new(PaceRule::new(mode))
}

fn wait(turn: Turn) -> (Duration, Why) {
    match turn {
        Turn::Wait { time, why } => (time, why),
        Turn::Run { blocks_max } => panic!("runs {blocks_max} blocks"),
    }
}

/// The first batches are smaller than they may become. Together they lack at most this many blocks.
const GROWING: u64 = 4 * BATCH_BLOCKS;

/// Runs the worker for `time`, each batch taking `took`. Returns the blocks it processed.
fn run_for(pace: &mut Pace, time: Duration, took: Duration, conditions: impl Fn(Duration) -> Conditions) -> u64 {
    let (mut now, mut blocks) = (Duration::ZERO, 0);
    while now < time {
        match pace.next(&conditions(now)) {
            Turn::Run { blocks_max } => {
                assert!((1..=FORCED_BLOCKS).contains(&blocks_max), "{blocks_max}");
                (now, blocks) = (now + took, blocks + blocks_max);
                pace.ran(blocks_max, took, &conditions(now));
            }
            Turn::Wait { time, .. } => {
                assert!(!time.is_zero() && time <= WAIT_MAX, "{time:?}");
                now += time;
            }
        }
    }
    blocks
}

#[test]
fn a_quiet_volume_is_processed_as_fast_as_batches_go() {
    for mode in [Mode::WhenIdle, Mode::Always] {
        let blocks = run_for(&mut pace(mode), 1_000 * MS, MS, quiet);
        assert!((1_000 * BATCH_BLOCKS - GROWING..=1_000 * BATCH_BLOCKS).contains(&blocks), "{blocks}");
    }
}

#[test]
fn when_idle_waits_for_what_is_left_of_the_idle_time_and_starts_exactly_then() {
    let mut pace = pace(Mode::WhenIdle);
    let last_foreground = Some(1_000 * MS);
    let at = |now| Conditions { last_foreground, ..quiet(now) };
    assert_eq!(wait(pace.next(&at(1_000 * MS))), (200 * MS, Why::Foreground));
    assert_eq!(wait(pace.next(&at(1_150 * MS))), (50 * MS, Why::Foreground));
    assert!(matches!(pace.next(&at(1_200 * MS)), Turn::Run { .. }));
}

/// Runs the worker for some batches on a device that takes this long for a block, and returns the longest of the last
/// ones.
fn longest(pace: &mut Pace, block: Duration, batches: u32, conditions: impl Fn(Duration) -> Conditions) -> Duration {
    let (mut now, mut longest) = (Duration::ZERO, Duration::ZERO);
    for batch in 0..batches {
        match pace.next(&conditions(now)) {
            Turn::Run { blocks_max } => {
                let took = block * blocks_max as u32;
                now += took;
                longest = if batch * 2 < batches { longest } else { longest.max(took) };
                pace.ran(blocks_max, took, &conditions(now));
            }
            Turn::Wait { time, .. } => now += time,
        }
    }
    longest
}

#[test]
fn batches_end_soon_enough_for_others_on_slow_devices_too_unless_forced() {
    for (mode, micros) in [(Mode::WhenIdle, 1), (Mode::WhenIdle, 300), (Mode::Always, 1_000), (Mode::Always, 20_000)] {
        let block = Duration::from_micros(micros);
        let longest_beside = longest(&mut pace(mode), block, 100, quiet);
        assert!(longest_beside <= 25 * MS && longest_beside > Duration::ZERO, "{micros} us: {longest_beside:?}");
    }
    let mut forced = pace(Mode::WhenIdle);
    forced.force(true);
    assert_eq!(longest(&mut forced, MS, 100, active), MS * FORCED_BLOCKS as u32);
}

#[test]
fn outside_its_hours_the_worker_waits_and_asks_again_every_second_unless_forced() {
    let closed = |now| Conditions { opens_in: Some(Duration::from_secs(7_200)), ..quiet(now) };
    for mode in [Mode::WhenIdle, Mode::Always] {
        let mut pace = pace(mode);
        assert_eq!(wait(pace.next(&closed(MS))), (WAIT_MAX, Why::Schedule));
        let soon = Conditions { opens_in: Some(3 * MS), ..quiet(MS) };
        assert_eq!(wait(pace.next(&soon)), (3 * MS, Why::Schedule));
        assert!(matches!(pace.next(&quiet(4 * MS)), Turn::Run { .. }));
        pace.force(true);
        assert!(matches!(pace.next(&closed(MS)), Turn::Run { .. }));
        pace.set_paused(true);
        assert_eq!(wait(pace.next(&closed(MS))).1, Why::Paused);
    }
    assert_eq!(wait(pace(Mode::Off).next(&closed(MS))).1, Why::Off, "its hours do not turn it on");
}

#[test]
fn always_runs_beside_the_foreground_but_never_without_rests() {
    let blocks = run_for(&mut pace(Mode::Always), 1_000 * MS, MS, active);
    let half = 500 * BATCH_BLOCKS;
    assert!((half - GROWING..=half).contains(&blocks), "{blocks}: each batch is followed by a rest of its own length");
}

#[test]
fn always_gives_way_while_requests_take_longer_and_returns_when_they_no_longer_do() {
    let mut pace = pace(Mode::Always);
    pace.foreground(1_000, 1_000 * MS, false);
    pace.foreground(1_000, 1_200 * MS, true);
    let slowed = run_for(&mut pace, 10_000 * MS, MS, active);
    assert!(slowed < 10_000 / 200 * BATCH_BLOCKS, "{slowed}");
    pace.foreground(1_000, 1_050 * MS, true);
    let start = 20_000 * MS;
    let after = run_for(&mut pace, 10_000 * MS, MS, |now| active(start + now));
    assert!(after > 4_000 * BATCH_BLOCKS, "{after}");
}

#[test]
fn always_gives_way_on_a_full_device_or_cpu_only_while_the_foreground_is_active() {
    let full_device = |now| Conditions { device_busy: 1.0, ..active(now) };
    let full_cpu = |now| Conditions { cpu_busy: 1.0, ..active(now) };
    let full_of_its_own = |now| Conditions { device_busy: 1.0, cpu_busy: 1.0, ..quiet(now) };
    assert!(run_for(&mut pace(Mode::Always), 10_000 * MS, MS, full_device) < 50 * BATCH_BLOCKS);
    assert!(run_for(&mut pace(Mode::Always), 10_000 * MS, MS, full_cpu) < 50 * BATCH_BLOCKS);
    let blocks = run_for(&mut pace(Mode::Always), 10_000 * MS, MS, full_of_its_own);
    assert!(blocks >= 10_000 * BATCH_BLOCKS - GROWING, "{blocks}");
}

#[test]
fn beside_programs_that_want_every_cpu_an_idle_volume_s_work_takes_a_sixteenth_of_one() {
    // As many threads as CPUs, of which the worker takes its part, and one thread fewer.
    for (cpus, full, spare) in [(1, 0.5, 0.02), (2, 4.0 / 3.0, 1.0), (4, 3.2, 3.0), (16, 15.06, 15.0)] {
        for mode in [Mode::WhenIdle, Mode::Always] {
            let beside = |cpus_of_others| move |now| Conditions { cpu_busy: 1.0, cpus, cpus_of_others, ..quiet(now) };
            let blocks = run_for(&mut pace(mode), 10_000 * MS, MS, beside(full));
            let share = blocks as f64 / (10_000 * BATCH_BLOCKS) as f64;
            assert!((0.04..0.0625).contains(&share), "{share} of {cpus} CPUs");
            let blocks = run_for(&mut pace(mode), 10_000 * MS, MS, beside(spare));
            assert!(blocks >= 10_000 * BATCH_BLOCKS - GROWING, "{blocks}: a CPU is left");
        }
    }
}

#[test]
fn a_rest_beside_programs_ends_when_they_do() {
    let mut pace = pace(Mode::WhenIdle);
    let wanted = |now| Conditions { cpus_of_others: 2.0, ..quiet(now) };
    for _ in 0..10 {
        pace.ran(1, 20 * MS, &wanted(Duration::ZERO));
    }
    assert_eq!(wait(pace.next(&wanted(MS))), (319 * MS, Why::Busy));
    assert!(matches!(pace.next(&quiet(MS)), Turn::Run { .. }));
}

#[test]
fn what_the_worker_takes_while_idle_lengthens_no_later_rest() {
    let mut pace = pace(Mode::Always);
    let full_of_its_own = |now| Conditions { device_busy: 1.0, cpu_busy: 1.0, ..quiet(now) };
    run_for(&mut pace, 1_000 * MS, MS, full_of_its_own);
    pace.ran(1, MS, &active(1_001 * MS));
    assert_eq!(wait(pace.next(&active(1_001 * MS))), (MS, Why::Busy));
}

#[test]
fn a_rest_ends_when_the_volume_falls_idle() {
    let mut pace = pace(Mode::Always);
    for _ in 0..10 {
        pace.ran(1, 1_000 * MS, &Conditions { device_busy: 1.0, ..active(Duration::ZERO) });
    }
    let at = |now| Conditions { last_foreground: Some(Duration::ZERO), ..quiet(now) };
    assert_eq!(wait(pace.next(&at(50 * MS))), (150 * MS, Why::Busy));
    assert!(matches!(pace.next(&at(200 * MS)), Turn::Run { .. }));
}

#[test]
fn the_rate_is_kept_over_minutes_from_one_block_to_millions() {
    for blocks_per_minute in [1, 60, 1_000, 60_000, 3_000_000] {
        for energy_share in [1.0, 0.5] {
            let mut pace = Pace::new(PaceRule { blocks_per_minute, ..PaceRule::new(Mode::WhenIdle) });
            let blocks = run_for(&mut pace, 600_000 * MS, MS, |now| Conditions { energy_share, ..quiet(now) });
            let expected = blocks_per_minute as f64 * 10.0 * energy_share;
            // Tolerates the allowance saved for the first second, or the current block.
            let slack = (expected / 500.0).max(1.0);
            assert!((blocks as f64 - expected).abs() <= slack, "{blocks} of {expected}");
        }
    }
}

#[test]
fn a_long_idle_time_saves_up_no_more_than_a_second() {
    let mut pace = Pace::new(PaceRule { blocks_per_minute: 1_200, ..PaceRule::new(Mode::WhenIdle) });
    let later = quiet(3_600_000 * MS);
    assert_eq!(pace.next(&later), Turn::Run { blocks_max: 20 });
    pace.ran(20, Duration::ZERO, &later);
    assert_eq!(wait(pace.next(&later)), (250 * MS, Why::Rate));
}

#[test]
fn without_a_rate_the_energy_share_is_kept_by_rests() {
    for (share, batches) in [(0.5, 500), (0.25, 250), (0.8, 800)] {
        let on_battery = |now| Conditions { energy_share: share, ..quiet(now) };
        let blocks = run_for(&mut pace(Mode::WhenIdle), 1_000 * MS, MS, on_battery) / BATCH_BLOCKS;
        assert!(blocks.abs_diff(batches) <= 1 + GROWING / BATCH_BLOCKS, "{blocks} batches at {share}");
    }
}

#[test]
fn a_rest_to_save_energy_ends_with_the_return_of_mains() {
    let mut pace = pace(Mode::WhenIdle);
    let almost_empty = Conditions { energy_share: 1e-300, ..quiet(5_000 * MS) };
    pace.ran(1, 1_000 * MS, &almost_empty);
    assert_eq!(wait(pace.next(&almost_empty)), (WAIT_MAX, Why::Energy));
    assert!(matches!(pace.next(&quiet(5_001 * MS)), Turn::Run { .. }));
}

#[test]
fn no_energy_and_off_and_pause_hold_the_worker() {
    let no_energy = Conditions { energy_share: 0.0, ..quiet(5_000 * MS) };
    assert_eq!(wait(pace(Mode::Always).next(&no_energy)), (WAIT_MAX, Why::Energy));
    assert_eq!(wait(pace(Mode::Off).next(&quiet(5_000 * MS))), (WAIT_MAX, Why::Off));
    let mut paused = pace(Mode::Always);
    paused.set_paused(true);
    assert_eq!(wait(paused.next(&quiet(5_000 * MS))), (WAIT_MAX, Why::Paused));
    paused.set_paused(false);
    assert!(matches!(paused.next(&quiet(5_000 * MS)), Turn::Run { .. }));
}

#[test]
fn force_overrides_everything_but_the_pause() {
    let rule = PaceRule { blocks_per_minute: 1, ..PaceRule::new(Mode::Off) };
    let mut pace = Pace::new(rule);
    pace.force(true);
    let worst = |now| Conditions { energy_share: 0.0, device_busy: 1.0, cpu_busy: 1.0, ..active(now) };
    assert_eq!(run_for(&mut pace, 100 * MS, MS, worst), 100 * FORCED_BLOCKS);
    pace.set_paused(true);
    assert_eq!(wait(pace.next(&worst(200 * MS))).1, Why::Paused);
    pace.set_paused(false);
    pace.force(false);
    assert_eq!(wait(pace.next(&worst(200 * MS))).1, Why::Off);
}

#[test]
fn forced_work_is_not_charged_to_the_rate() {
    let mut pace = Pace::new(PaceRule { blocks_per_minute: 1_200, ..PaceRule::new(Mode::WhenIdle) });
    pace.force(true);
    run_for(&mut pace, 100 * MS, MS, quiet);
    pace.force(false);
    assert_eq!(pace.next(&quiet(10_000 * MS)), Turn::Run { blocks_max: 20 });
}

#[test]
fn the_slowdown_is_known_once_both_means_are_and_forgets() {
    let mut pace = pace(Mode::Always);
    assert_eq!(pace.slowdown(), None);
    pace.foreground(0, Duration::ZERO, true);
    pace.foreground(10, 10 * MS, true);
    assert_eq!(pace.slowdown(), None);
    pace.foreground(100, 80 * MS, false);
    assert!((pace.slowdown().unwrap() - 0.25).abs() < 1e-9);
    (0..1_000).for_each(|_| pace.foreground(1, MS, false));
    assert!(pace.slowdown().unwrap().abs() < 1e-3);
}

#[test]
fn nonsense_is_refused_with_the_range_and_changes_nothing() {
    let rule = PaceRule::new(Mode::WhenIdle);
    let refused = [
        (PaceRule { blocks_per_minute: u64::MAX, ..rule }, "blocks_per_minute must be 0 to 1000000000"),
        (PaceRule { idle_after: Duration::MAX, ..rule }, "idle_after_ms must be 0 to 3600000"),
        (PaceRule { slowdown_max: -1.0, ..rule }, "slowdown_max must be 0 to 10"),
        (PaceRule { slowdown_max: f64::NAN, ..rule }, "slowdown_max must be 0 to 10"),
    ];
    let mut pace = pace(Mode::WhenIdle);
    for (nonsense, message) in refused {
        assert_eq!(pace.set_rule(nonsense).unwrap_err().to_string(), message);
        assert_eq!(pace.rule(), rule);
    }
    pace.set_rule(PaceRule { blocks_per_minute: 7, ..rule }).unwrap();
    assert_eq!(pace.rule().blocks_per_minute, 7);
}

#[test]
fn progress_tells_the_time_left_at_the_rate_so_far() {
    let progress = |done, all| Progress { done, all, spent: Duration::from_secs(10) };
    assert_eq!((progress(25, 100).share(), progress(25, 100).eta()), (0.25, Some(Duration::from_secs(30))));
    assert_eq!((progress(0, 100).share(), progress(0, 100).eta()), (0.0, None));
    assert_eq!((progress(0, 0).share(), progress(0, 0).eta()), (1.0, Some(Duration::ZERO)));
    // Blocks added while it ran may be done before they are counted.
    assert_eq!((progress(101, 100).share(), progress(101, 100).eta()), (1.0, Some(Duration::ZERO)));
    let unstarted = Progress { done: 0, all: 1, spent: Duration::ZERO };
    assert_eq!(unstarted.eta(), None);
}
