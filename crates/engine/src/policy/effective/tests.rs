//! Files with policies of their own: what writes and the worker do, when a policy applies, and that it goes with the
//! map.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use oncefs_dedup::{ShareLimit, Skipped, Slowdown};

use super::*;
use crate::format::keys::LeafKey;
use crate::kv::Kv;
use crate::settings::values::{Inline, Settings};
use crate::tests::fixture::{Devices, one_level, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks};

const DATA: Blocks = Blocks(40_000);
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Every request is looked up as it is written, and a worker visits the rest.
fn settings(ranks: Ranks) -> Settings {
    Settings { inline: Inline::All, ranks, skipped_bytes: 64 << 10, ..one_level() }
}

fn volume(ranks: Ranks) -> (Devices, Volume) {
    let devices = Devices::new(DATA, settings(ranks));
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    worked_off(&volume);
    (devices, volume)
}

fn write(volume: &Volume, map: u64, first: u64, data: &[u8]) {
    volume.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
}

fn say(volume: &Volume, map: u64, policy: FilePolicy) {
    let mut change = Change::new();
    volume.file_policies.policy_change(&mut change, MapId(map), policy);
    volume.publisher.publish(change).unwrap();
}

fn policy_override(text: &str) -> FilePolicy {
    FilePolicy { policy_override: Some(text.parse().unwrap()), ..FilePolicy::default() }
}

fn rank(rank: Rank) -> FilePolicy {
    FilePolicy { rank, ..FilePolicy::default() }
}

/// Blocks in use, the label not counted.
fn used(volume: &Volume) -> u64 {
    volume.free_blocks.totals().used.0 - 1
}

/// Blocks that the worker visited until nothing was left.
fn worked_off(volume: &Volume) -> u64 {
    let before = volume.base.stats.counters.blocks_revisited.load(Relaxed);
    while volume.revisits.revisit(256).unwrap().is_some() {}
    volume.base.stats.counters.blocks_revisited.load(Relaxed) - before
}

fn is_noted(volume: &Volume, map: u64) -> bool {
    volume.base.backlog.contents().into_iter().any(|skipped| match skipped {
        Skipped::Owner(owner) => owner == map,
        Skipped::Chunk { owner, .. } => owner == map,
        Skipped::Everything => true,
    })
}

fn records(volume: &Volume) -> usize {
    let (from, to) = keys::all_file_policies();
    volume.metadata.scan(&from, &to, usize::MAX).unwrap().len()
}

#[test]
fn a_file_that_is_off_is_left_alone_by_writes_the_worker_and_full_passes() {
    let (_devices, volume) = volume(Ranks::Off);
    let data = unique(20, 1);
    say(&volume, 2, policy_override("off"));
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    assert_eq!(used(&volume), 40);
    assert!(!is_noted(&volume, 2), "nothing is kept for the worker");
    volume.worklist.begin_full_pass();
    assert_eq!((worked_off(&volume), used(&volume)), (20, 40), "the other file is looked at");
    write(&volume, 3, 0, &data);
    assert_eq!(used(&volume), 40, "and others share with it");
}

#[test]
fn later_leaves_everything_to_the_worker() {
    let (_devices, volume) = volume(Ranks::Off);
    let data = unique(20, 1);
    say(&volume, 2, policy_override("later"));
    write(&volume, 1, 0, &data);
    write(&volume, 2, 0, &data);
    assert_eq!(used(&volume), 40);
    worked_off(&volume);
    assert_eq!(used(&volume), 20);
}

#[test]
fn a_file_that_is_allowed_more_is_looked_at_as_a_whole_and_one_that_is_not_is_not() {
    for (before, after, is_due) in [
        ("off", "later", true),
        ("off", "inline", true),
        ("off", "selective", false),
        ("later", "inline", false),
        ("inline", "off", false),
        ("run=8", "run=4", true),
        ("run=4", "run=8", false),
        ("run=2", "inline", true),
        ("later", "run=1", false),
        ("run=2", "slowdown=10", true),
        ("slowdown=10", "slowdown=100", true),
        ("slowdown=100", "slowdown=10", false),
        ("slowdown=100", "slowdown=none", true),
    ] {
        let (_devices, volume) = volume(Ranks::Off);
        say(&volume, 2, policy_override(before));
        write(&volume, 1, 0, &unique(20, 1));
        write(&volume, 2, 0, &unique(20, 1));
        worked_off(&volume);
        say(&volume, 2, policy_override(after));
        assert_eq!(is_noted(&volume, 2), is_due, "from {before} to {after}");
    }
}

#[test]
fn a_run_s_length_is_the_file_s_own() {
    let (_devices, volume) = volume(Ranks::Off);
    let data = unique(20, 1);
    write(&volume, 1, 0, &data);
    say(&volume, 2, policy_override("run=8"));
    write(&volume, 2, 0, &data[3 * BLOCK_BYTES..9 * BLOCK_BYTES]);
    write(&volume, 2, 100, &data[..9 * BLOCK_BYTES]);
    worked_off(&volume);
    assert_eq!(used(&volume), 26, "six are too few, nine are not");
    assert_eq!((volume.file_policies.run_blocks_min(MapId(2)), volume.file_policies.run_blocks_min(MapId(3))), (8, 1));
    say(&volume, 2, policy_override("run=6"));
    worked_off(&volume);
    assert_eq!(used(&volume), 20);
}

#[test]
fn a_new_file_of_the_paper_s_profile_is_looked_at_once_it_is_ranked() {
    let (_devices, volume) = volume(Ranks::Paper);
    let data = unique(40, 1);
    for map in [1, 2, 3] {
        write(&volume, map, 0, &data);
    }
    volume.worklist.begin_full_pass();
    assert_eq!((worked_off(&volume), used(&volume)), (0, 120));
    say(&volume, 1, rank(Rank::Random));
    say(&volume, 2, rank(Rank::Cold));
    worked_off(&volume);
    assert_eq!(used(&volume), 80);
    say(&volume, 3, rank(Rank::Sequential));
    worked_off(&volume);
    assert_eq!(used(&volume), 40, "a whole file is shared however short it is");
    assert_eq!(volume.file_policies.effective_policy(MapId(3)).limit, ShareLimit::Runs(64));
}

#[test]
fn a_ranked_file_that_is_written_is_new_again_and_only_what_was_written_is_looked_at() {
    let (_devices, volume) = volume(Ranks::On);
    write(&volume, 1, 0, &unique(200, 1));
    say(&volume, 1, rank(Rank::Sequential));
    worked_off(&volume);
    let mut change = Change::new();
    volume.file_policies.policy_change(&mut change, MapId(1), FilePolicy::default());
    let with = move |_, written: &mut Change| *written = change;
    volume.write(MapId(1), 10 * BLOCK, &unique(3, 2), with).unwrap();
    assert_eq!(
        (volume.file_policies.file_policy(MapId(1)), volume.file_policies.run_blocks_min(MapId(1))),
        (FilePolicy::default(), 1)
    );
    assert_eq!(worked_off(&volume), 3, "though shorter runs are worth sharing now");
}

#[test]
fn a_mount_with_ranks_leaves_update_heavy_files_alone_and_new_ones_to_its_own_rule() {
    let (_devices, volume) = volume(Ranks::On);
    let data = unique(20, 1);
    say(&volume, 2, FilePolicy { is_update_heavy: true, ..FilePolicy::default() });
    for map in [1, 2, 3] {
        write(&volume, map, 0, &data);
    }
    worked_off(&volume);
    assert_eq!(used(&volume), 40);
    volume.work_loop.tune(&[("ranks".to_owned(), "off".to_owned())]).unwrap();
    worked_off(&volume);
    assert_eq!(used(&volume), 20, "that they count no more lets everything be looked at");
}

#[test]
fn a_mount_without_in_line_or_worker_does_neither_whatever_a_file_may() {
    let devices = Devices::new(DATA, Settings { inline: Inline::Off, skipped_bytes: 0, ..settings(Ranks::Off) });
    let volume = devices.open();
    let data = unique(20, 1);
    for map in [1, 2] {
        say(&volume, map, policy_override("run=1"));
        write(&volume, map, 0, &data);
    }
    worked_off(&volume);
    assert_eq!(used(&volume), 40);
}

#[test]
fn what_is_said_survives_checkpoints_and_crashes_and_goes_with_the_map() {
    let (devices, volume) = volume(Ranks::Off);
    say(&volume, 1, policy_override("run=8"));
    say(&volume, 2, policy_override("off"));
    volume.commits.checkpoint().unwrap();
    say(&volume, 2, policy_override("later"));
    volume.commits.commit().unwrap();
    say(&volume, 1, policy_override("run=9"));
    let volume = devices.after_power_cut_of_all().open();
    assert_eq!(
        (volume.file_policies.file_policy(MapId(1)), volume.file_policies.file_policy(MapId(2))),
        (policy_override("run=8"), policy_override("later"))
    );
    write(&volume, 1, 0, &unique(5, 1));
    volume.commits.commit().unwrap();
    volume.range_changes.detach(MapId(1), |_| ()).unwrap();
    assert_eq!((volume.file_policies.file_policy(MapId(1)), records(&volume)), (FilePolicy::default(), 1));
    say(&volume, 2, FilePolicy::default());
    assert_eq!(records(&volume), 0);
}

#[test]
fn a_crash_leaves_a_map_with_what_is_said_of_it_or_neither() {
    for is_committed in [false, true] {
        let (devices, volume) = volume(Ranks::Off);
        say(&volume, 1, policy_override("off"));
        write(&volume, 1, 0, &unique(5, 1));
        volume.commits.commit().unwrap();
        volume.range_changes.detach(MapId(1), |_| ()).unwrap();
        if is_committed {
            volume.commits.commit().unwrap();
        }
        let volume = devices.after_power_cut_of_all().open();
        assert_eq!(volume.metadata.detached_maps().unwrap().len(), usize::from(is_committed));
        assert_eq!(records(&volume), usize::from(!is_committed));
    }
}

#[test]
fn maps_of_which_nothing_is_said_cost_no_record() {
    let (_devices, volume) = volume(Ranks::Off);
    let mut change = Change::new();
    volume.file_policies.policy_change(&mut change, MapId(1), FilePolicy::default());
    volume.file_policies.first_policy(&mut change, MapId(2), FilePolicy::default());
    assert!(change.puts.is_empty() && change.policies.is_empty());
    volume.file_policies.policy_change(&mut change, MapId(1), policy_override("off"));
    volume.file_policies.policy_change(&mut change, MapId(1), FilePolicy::default());
    volume.publisher.publish(change).unwrap();
    assert_eq!(
        (volume.file_policies.file_policy(MapId(1)), records(&volume)),
        (FilePolicy::default(), 0),
        "the last one counts"
    );
}

#[test]
fn a_damaged_record_is_as_if_nothing_was_said_and_can_be_said_again() {
    let (devices, volume) = volume(Ranks::Off);
    say(&volume, 1, policy_override("off"));
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let mut bytes = devices.kv.get(&keys::file_policy(MapId(1))).unwrap().unwrap();
    bytes[0] ^= 1;
    devices.kv.write(vec![(keys::file_policy(MapId(1)), Some(bytes))]).unwrap();
    let volume = devices.open();
    assert_eq!(volume.file_policies.file_policy(MapId(1)), FilePolicy::default());
    say(&volume, 1, FilePolicy::default());
    assert_eq!(records(&volume), 0, "the damaged one goes");
    say(&volume, 1, policy_override("off"));
    assert_eq!(volume.file_policies.file_policy(MapId(1)), policy_override("off"));
}

/// Readers load a record into memory all the time, beside a thread that changes it. The thread reads its own change,
/// and no reader sees an older value than before.
#[test]
fn nobody_reads_what_was_said_before() {
    let (_devices, volume) = volume(Ranks::Off);
    // Little memory, so that policies leave it and are read again.
    volume.base.policy.forget_policies();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..2 {
            let (volume, is_over) = (&volume, &is_over);
            scope.spawn(move || {
                let mut newest = 0;
                for other in (0..).map(|n| MapId(1_000 + (n * 7 + reader) % 2_000)) {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    volume.file_policies.file_policy(other);
                    let Some(PolicyOverride::Run(seen)) = volume.file_policies.file_policy(MapId(1)).policy_override
                    else {
                        continue;
                    };
                    assert!(seen >= newest, "{seen} behind {newest}");
                    newest = seen;
                }
            });
        }
        for blocks in 1..=256 {
            let policy = FilePolicy { policy_override: Some(PolicyOverride::Run(blocks)), ..FilePolicy::default() };
            for _ in 0..8 {
                say(&volume, 1, policy);
                assert_eq!(volume.file_policies.file_policy(MapId(1)), policy);
            }
            if blocks % 32 == 0 {
                volume.commits.checkpoint().unwrap();
            }
        }
        is_over.store(true, Relaxed);
    });
}

#[test]
fn a_full_pass_over_files_that_are_left_alone_goes_in_bounded_steps() {
    let (_devices, volume) = volume(Ranks::Off);
    const FILES: u64 = 10_000;
    for map in 1..=FILES {
        say(&volume, map, policy_override("off"));
        write(&volume, map, 0, &unique(1, map));
    }
    volume.worklist.begin_full_pass();
    let mut steps = 0;
    while let Some(blocks) = volume.revisits.revisit(256).unwrap() {
        assert_eq!(blocks, 0);
        steps += 1;
    }
    assert!((3..100).contains(&steps), "{steps} steps");
    assert!(!volume.base.worker.with_pass(|pass| pass.is_ahead_of(LeafKey { map: MapId(FILES), leaf: 0 })));
}

#[test]
fn why_a_file_is_treated_as_it_is_is_said() {
    let (_devices, volume) = volume(Ranks::Paper);
    for (policy, why) in [
        (FilePolicy::default(), "rank 0"),
        (rank(Rank::Sequential), "set by its rank 1"),
        (rank(Rank::Random), "set by read_slowdown_percent_max"),
        (policy_override("off"), "policy off"),
        (policy_override("selective"), "policy selective, rank 0"),
        (policy_override("run=8"), "set by its policy"),
    ] {
        say(&volume, 1, policy);
        assert_eq!(volume.file_policies.why_effective(volume.file_policies.file_policy(MapId(1))), why, "{policy:?}");
    }
    let heavy = FilePolicy { is_update_heavy: true, ..FilePolicy::default() };
    let slowdown = Some(Slowdown(100));
    volume.base.tuning.replace(Settings { ranks: Ranks::On, slowdown, ..volume.base.tuning.settings() }, |_, _| ());
    say(&volume, 1, heavy);
    assert_eq!(
        volume.file_policies.why_effective(volume.file_policies.file_policy(MapId(1))),
        "rewritten on several days"
    );
    say(&volume, 1, rank(Rank::Random));
    assert_eq!(volume.file_policies.why_effective(volume.file_policies.file_policy(MapId(1))), "set by its rank 2");
    say(&volume, 1, FilePolicy::default());
    assert_eq!(
        volume.file_policies.why_effective(volume.file_policies.file_policy(MapId(1))),
        "set by read_slowdown_percent_max"
    );
    say(&volume, 1, policy_override("slowdown=7"));
    assert_eq!(volume.file_policies.why_effective(volume.file_policies.file_policy(MapId(1))), "set by its policy");
}

#[test]
fn both_levels_and_a_sample_change_nothing_of_it() {
    let devices = Devices::new(DATA, Settings { ranks: Ranks::Paper, ..two_levels() });
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    worked_off(&volume);
    let data = unique(200, 1);
    for map in [1, 2] {
        write(&volume, map, 0, &data);
    }
    volume.worklist.begin_full_pass();
    worked_off(&volume);
    assert_eq!(used(&volume), 400);
    say(&volume, 2, rank(Rank::Cold));
    worked_off(&volume);
    assert_eq!(used(&volume), 200);
}

#[test]
#[ignore = "a measurement, for docs/decisions/0031-a-policy-is-an-attribute-and-a-record.md"]
fn what_asking_costs() {
    const ASKED: u64 = 5_000_000;
    let (_devices, volume) = volume(Ranks::On);
    for (what, maps) in [("one map", 1), ("1,000 maps", 1_000), ("100,000 maps, most of which have left", 100_000)] {
        let began = std::time::Instant::now();
        for n in 0..ASKED {
            let map = MapId(1 + n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % maps);
            std::hint::black_box(volume.file_policies.effective_policy(map));
        }
        println!("{what}: {:.0} ns", began.elapsed().as_nanos() as f64 / ASKED as f64);
    }
}
