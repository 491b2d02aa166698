//! How wishes are written, and every combination of wish, rank and mount.

use super::*;

const MOUNTS: Option<u32> = Some(5);

fn effective(
    policy_override: Option<PolicyOverride>,
    rank: Rank,
    is_update_heavy: bool,
    ranks: Ranks,
) -> EffectivePolicy {
    effective_policy(
        FilePolicy { policy_override, rank, is_update_heavy },
        MountPolicy { ranks, run_blocks_min: MOUNTS },
    )
}

fn expected(is_inline: bool, is_later: bool, run_blocks_min: Option<u32>, shares_ends: bool) -> EffectivePolicy {
    EffectivePolicy { is_inline, is_later, run_blocks_min, shares_ends }
}

/// Run and ends of the four ranks.
const RUNS: [(Option<u32>, bool); 4] = [(MOUNTS, false), (Some(64), true), (Some(1), false), (Some(1), false)];

fn all_files() -> impl Iterator<Item = (usize, Rank, bool)> {
    Rank::ALL.into_iter().enumerate().flat_map(|(nth, rank)| [(nth, rank, false), (nth, rank, true)])
}

#[test]
fn without_override_and_ranks_the_mount_decides() {
    for (_, rank, heavy) in all_files() {
        assert_eq!(effective(None, rank, heavy, Ranks::Off), expected(true, true, MOUNTS, false));
    }
}

#[test]
fn with_ranks_new_files_follow_the_mount_and_update_heavy_ones_are_left_alone() {
    for (nth, rank, heavy) in all_files() {
        let (run, ends) = RUNS[nth];
        let right = if heavy { expected(false, false, MOUNTS, false) } else { expected(true, true, run, ends) };
        assert_eq!(effective(None, rank, heavy, Ranks::On), right, "{rank:?}");
    }
}

#[test]
fn as_in_the_paper_new_files_are_left_alone_and_all_others_come_later() {
    for (nth, rank, heavy) in all_files() {
        let (run, ends) = RUNS[nth];
        let right = if nth == 0 { expected(false, false, MOUNTS, false) } else { expected(false, true, run, ends) };
        assert_eq!(effective(None, rank, heavy, Ranks::Paper), right, "{rank:?}");
        for ranks in [Ranks::Off, Ranks::On, Ranks::Paper] {
            assert_eq!(effective(Some(PolicyOverride::Selective), rank, heavy, ranks), right, "{rank:?} {ranks:?}");
        }
    }
}

#[test]
fn an_override_beats_rank_and_mount() {
    for (nth, rank, heavy) in all_files() {
        for ranks in [Ranks::Off, Ranks::On, Ranks::Paper] {
            let overridden = |policy_override| effective(Some(policy_override), rank, heavy, ranks);
            assert_eq!(overridden(PolicyOverride::Off), expected(false, false, MOUNTS, false));
            assert_eq!(overridden(PolicyOverride::Inline), expected(true, true, MOUNTS, false));
            assert_eq!(overridden(PolicyOverride::Run(3)), expected(true, true, Some(3), false));
            let (run, ends) = if ranks == Ranks::Off { (MOUNTS, false) } else { RUNS[nth] };
            assert_eq!(overridden(PolicyOverride::Later), expected(false, true, run, ends), "{rank:?} {ranks:?}");
        }
    }
}

#[test]
fn an_automatic_mount_stays_automatic_where_the_mount_decides() {
    let automatic = |ranks| effective_policy(FilePolicy::default(), MountPolicy { ranks, run_blocks_min: None });
    assert!([Ranks::Off, Ranks::On, Ranks::Paper].into_iter().all(|ranks| automatic(ranks).run_blocks_min.is_none()));
}

#[test]
fn overrides_are_read_as_they_are_written() {
    let named = [PolicyOverride::Off, PolicyOverride::Inline, PolicyOverride::Later, PolicyOverride::Selective];
    for policy_override in named.into_iter().chain((1..=256).map(PolicyOverride::Run)) {
        assert_eq!(policy_override.to_string().parse(), Ok(policy_override));
    }
    assert_eq!(
        (PolicyOverride::Selective.to_string(), PolicyOverride::Run(64).to_string()),
        ("selective".into(), "run=64".into())
    );
}

#[test]
fn nothing_else_is_an_override() {
    let others = ["", "Off", "on", "none", " off", "off\n", "run", "run=", "run=0", "run=257", "run=-1", "run=01"];
    for text in others.into_iter().chain(["run=+4", "run= 4", "run=4 ", "run=4294967297", "inline,later", "off\0"]) {
        assert_eq!(text.parse::<PolicyOverride>(), Err(InvalidOverride), "{text:?}");
    }
    assert!(InvalidOverride.to_string().contains("off, inline, later, selective or run=N with N from 1 to 256"));
}
