//! The text of overrides, and every combination of override, rank and mount.

use super::*;

const MOUNTS: ShareLimit = ShareLimit::Runs(5);

fn effective(
    policy_override: Option<PolicyOverride>,
    rank: Rank,
    is_update_heavy: bool,
    ranks: Ranks,
) -> EffectivePolicy {
    effective_policy(
        FilePolicy { policy_override, rank, is_update_heavy, compress: None },
        MountPolicy { ranks, run_blocks_min: Some(5), slowdown: Some(Slowdown(100)) },
    )
}

fn expected(is_inline: bool, is_later: bool, limit: ShareLimit, shares_ends: bool) -> EffectivePolicy {
    EffectivePolicy { is_inline, is_later, limit, shares_ends }
}

/// Run and ends of the four ranks.
const RUNS: [(ShareLimit, bool); 4] =
    [(MOUNTS, false), (ShareLimit::Runs(64), true), (ShareLimit::Runs(1), false), (ShareLimit::Runs(1), false)];

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
            assert_eq!(overridden(PolicyOverride::Run(3)), expected(true, true, ShareLimit::Runs(3), false));
            let budget = |slowdown| overridden(PolicyOverride::Slowdown(slowdown)).limit;
            assert_eq!(budget(Some(Slowdown(7))), ShareLimit::Budget(Slowdown(7)));
            assert_eq!(budget(None), ShareLimit::Runs(1));
            let (run, ends) = if ranks == Ranks::Off { (MOUNTS, false) } else { RUNS[nth] };
            assert_eq!(overridden(PolicyOverride::Later), expected(false, true, run, ends), "{rank:?} {ranks:?}");
        }
    }
}

#[test]
fn a_rank_sets_the_budget_where_the_mount_has_one_and_not_in_the_paper() {
    let limit = |rank, ranks, slowdown| {
        let file = FilePolicy { rank, ..FilePolicy::default() };
        effective_policy(file, MountPolicy { ranks, run_blocks_min: None, slowdown }).limit
    };
    let of = |ranks, percent| Rank::ALL.map(|rank| limit(rank, ranks, Some(Slowdown(percent))));
    let (every, budget) = (ShareLimit::Runs(1), |percent| ShareLimit::Budget(Slowdown(percent)));
    assert_eq!(of(Ranks::Off, 100), [budget(100); 4]);
    assert_eq!(of(Ranks::On, 100), [budget(100), budget(10), every, every]);
    assert_eq!(of(Ranks::Paper, 100), [budget(100), ShareLimit::Runs(64), every, every]);
    assert_eq!(limit(Rank::New, Ranks::On, None), every, "no limit");
}

#[test]
fn overrides_are_read_as_they_are_written() {
    let named = [PolicyOverride::Off, PolicyOverride::Inline, PolicyOverride::Later, PolicyOverride::Selective];
    let slowdowns = std::iter::once(None).chain((0..=1_000).map(|percent| Some(Slowdown(percent))));
    let all = named.into_iter().chain((1..=256).map(PolicyOverride::Run));
    for policy_override in all.chain(slowdowns.map(PolicyOverride::Slowdown)) {
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
    for text in others
        .into_iter()
        .chain(["run=+4", "run= 4", "run=4 ", "run=4294967297", "inline,later", "off\0"])
        .chain(["slowdown", "slowdown=", "slowdown=-1", "slowdown=1001", "slowdown=+4", "slowdown=04", "slowdown=None"])
    {
        assert_eq!(text.parse::<PolicyOverride>(), Err(InvalidOverride), "{text:?}");
    }
    assert!(InvalidOverride.to_string().contains("off, inline, later, selective, run=N with N from 1 to 256, or"));
}

#[test]
fn a_limit_allows_more_than_another() {
    let (runs, budget) = (ShareLimit::Runs, |percent| ShareLimit::Budget(Slowdown(percent)));
    for (this, other, allows_more) in [
        (runs(4), runs(8), true),
        (runs(8), runs(8), false),
        (budget(100), budget(10), true),
        (budget(10), budget(10), false),
        (budget(10), runs(1), false),
        (budget(10), runs(2), true),
        (runs(1), budget(100), true),
        (runs(64), budget(100), false),
    ] {
        assert_eq!(this.allows_more_than(other), allows_more, "{this:?} {other:?}");
    }
}

#[test]
fn compression_is_as_the_file_says_and_else_as_the_mount_says() {
    for mount in Compress::ALL {
        let of = |compress| effective_compress(FilePolicy { compress, ..FilePolicy::default() }, mount);
        assert_eq!(of(None), mount);
        for own in Compress::ALL {
            assert_eq!(of(Some(own)), if mount == Compress::Off { Compress::Off } else { own });
            assert_eq!(own.to_string().parse(), Ok(own));
        }
    }
    for text in ["", "on", "Later", "none", " off"] {
        assert_eq!(text.parse::<Compress>(), Err(InvalidCompress), "{text}");
    }
}
