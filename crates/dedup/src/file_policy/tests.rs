//! How wishes are written, and every combination of wish, rank and mount.

use super::*;

const MOUNTS: Option<u32> = Some(5);

fn treated(wish: Option<Wish>, rank: Rank, is_update_heavy: bool, ranks: Ranks) -> Treatment {
    treatment(FilePolicy { wish, rank, is_update_heavy }, MountPolicy { ranks, run_blocks_min: MOUNTS })
}

fn expected(is_inline: bool, is_later: bool, run_blocks_min: Option<u32>, shares_ends: bool) -> Treatment {
    Treatment { is_inline, is_later, run_blocks_min, shares_ends }
}

/// Run and ends of the four ranks.
const RUNS: [(Option<u32>, bool); 4] = [(MOUNTS, false), (Some(64), true), (Some(1), false), (Some(1), false)];

fn all_files() -> impl Iterator<Item = (usize, Rank, bool)> {
    Rank::ALL.into_iter().enumerate().flat_map(|(nth, rank)| [(nth, rank, false), (nth, rank, true)])
}

#[test]
fn without_a_wish_and_ranks_the_mount_decides() {
    for (_, rank, heavy) in all_files() {
        assert_eq!(treated(None, rank, heavy, Ranks::Off), expected(true, true, MOUNTS, false));
    }
}

#[test]
fn with_ranks_new_files_follow_the_mount_and_update_heavy_ones_are_left_alone() {
    for (nth, rank, heavy) in all_files() {
        let (run, ends) = RUNS[nth];
        let right = if heavy { expected(false, false, MOUNTS, false) } else { expected(true, true, run, ends) };
        assert_eq!(treated(None, rank, heavy, Ranks::On), right, "{rank:?}");
    }
}

#[test]
fn as_in_the_paper_new_files_are_left_alone_and_all_others_come_later() {
    for (nth, rank, heavy) in all_files() {
        let (run, ends) = RUNS[nth];
        let right = if nth == 0 { expected(false, false, MOUNTS, false) } else { expected(false, true, run, ends) };
        assert_eq!(treated(None, rank, heavy, Ranks::Paper), right, "{rank:?}");
        for ranks in [Ranks::Off, Ranks::On, Ranks::Paper] {
            assert_eq!(treated(Some(Wish::Selective), rank, heavy, ranks), right, "{rank:?} {ranks:?}");
        }
    }
}

#[test]
fn a_wish_beats_rank_and_mount() {
    for (nth, rank, heavy) in all_files() {
        for ranks in [Ranks::Off, Ranks::On, Ranks::Paper] {
            let wished = |wish| treated(Some(wish), rank, heavy, ranks);
            assert_eq!(wished(Wish::Off), expected(false, false, MOUNTS, false));
            assert_eq!(wished(Wish::Inline), expected(true, true, MOUNTS, false));
            assert_eq!(wished(Wish::Run(3)), expected(true, true, Some(3), false));
            let (run, ends) = if ranks == Ranks::Off { (MOUNTS, false) } else { RUNS[nth] };
            assert_eq!(wished(Wish::Later), expected(false, true, run, ends), "{rank:?} {ranks:?}");
        }
    }
}

#[test]
fn an_automatic_mount_stays_automatic_where_the_mount_decides() {
    let automatic = |ranks| treatment(FilePolicy::default(), MountPolicy { ranks, run_blocks_min: None });
    assert!([Ranks::Off, Ranks::On, Ranks::Paper].into_iter().all(|ranks| automatic(ranks).run_blocks_min.is_none()));
}

#[test]
fn wishes_are_read_as_they_are_written() {
    let named = [Wish::Off, Wish::Inline, Wish::Later, Wish::Selective];
    for wish in named.into_iter().chain((1..=256).map(Wish::Run)) {
        assert_eq!(wish.to_string().parse(), Ok(wish));
    }
    assert_eq!((Wish::Selective.to_string(), Wish::Run(64).to_string()), ("selective".into(), "run=64".into()));
}

#[test]
fn nothing_else_is_a_wish() {
    let others = ["", "Off", "on", "none", " off", "off\n", "run", "run=", "run=0", "run=257", "run=-1", "run=01"];
    for text in others.into_iter().chain(["run=+4", "run= 4", "run=4 ", "run=4294967297", "inline,later", "off\0"]) {
        assert_eq!(text.parse::<Wish>(), Err(UnknownWish), "{text:?}");
    }
    assert!(UnknownWish.to_string().contains("off, inline, later, selective or run=N with N from 1 to 256"));
}
