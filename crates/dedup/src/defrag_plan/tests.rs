//! Plans against a reference that tries, for every number of runs gained, the cheapest way to gain them.

use super::*;
use crate::random::Random;

/// Runs of (blocks, shared blocks), far from each other in the data area.
fn file(runs: &[(u64, u64)]) -> Vec<FileRun> {
    let mut laid = Vec::new();
    let mut at = 0;
    for (n, (blocks, shared)) in (1..).zip(runs) {
        FileRun::add(&mut laid, Lbn(at), Pbn(n * 10_000), *blocks);
        laid.last_mut().unwrap().shared = *shared;
        at += blocks;
    }
    laid
}

fn plan(runs: &[(u64, u64)], run_blocks_min: u32, space_blocks: u64) -> DefragPlan {
    plan_defrag(&file(runs), &DefragRule { run_blocks_min, space_blocks })
}

/// The ranges of a plan as (from, to).
fn moved(plan: &DefragPlan) -> Vec<(usize, usize)> {
    plan.ranges.iter().map(|range| (range.from, range.to)).collect()
}

/// For every number of runs gained, in ascending order, the fewest blocks that it takes.
fn cheapest(runs: &[FileRun], run_blocks_min: u32) -> Vec<u64> {
    const NONE: u64 = u64::MAX / 2;
    let (mut stays, mut moves) = (vec![0], vec![NONE]);
    let at = |costs: &[u64], gain: usize| costs.get(gain).copied().unwrap_or(NONE);
    for run in runs {
        let may = !run.must_stay && run.blocks < u64::from(run_blocks_min);
        let gains = stays.len() + 1;
        let next_stays: Vec<u64> = (0..gains).map(|gain| at(&stays, gain).min(at(&moves, gain))).collect();
        let joined = |gain: usize| if gain > 0 { at(&moves, gain - 1) } else { NONE };
        let next_moves = (0..gains).map(|gain| at(&stays, gain).min(joined(gain)) + run.shared);
        moves = next_moves.map(|cost| if may { cost.min(NONE) } else { NONE }).collect();
        stays = next_stays;
    }
    let mut costs: Vec<u64> = (0..stays.len()).map(|gain| at(&stays, gain).min(at(&moves, gain))).collect();
    while costs.last().is_some_and(|cost| *cost >= NONE) {
        costs.pop();
    }
    costs
}

fn random_file(random: &mut Random) -> Vec<FileRun> {
    let count = random.below(40) as usize;
    let blocks_max = [3, 12, 100][random.below(3) as usize];
    let shared_in = 1 + random.below(4);
    let mut runs = Vec::new();
    let mut at = 0;
    for n in 0..count as u64 {
        at += random.below(3);
        let blocks = 1 + random.below(blocks_max);
        FileRun::add(&mut runs, Lbn(at), Pbn(1 + n * 1_000), blocks);
        let last = runs.last_mut().unwrap();
        last.shared = if random.below(shared_in) == 0 { random.below(blocks + 1) } else { 0 };
        last.must_stay = random.below(12) == 0;
        at += blocks;
    }
    runs
}

/// Checks a plan's invariants.
fn check(runs: &[FileRun], rule: &DefragRule, plan: &DefragPlan) {
    let mut free_from = 0;
    for range in &plan.ranges {
        assert!(range.from >= free_from && range.to >= range.from + 2 && range.to <= runs.len(), "(1) (2)");
        let may_move = |run: &FileRun| !run.must_stay && run.blocks < u64::from(rule.run_blocks_min);
        assert!(runs[range.from..range.to].iter().all(may_move), "(3) {range:?}");
        free_from = range.to + 1;
    }
    let of_ranges = || plan.ranges.iter().flat_map(|range| &runs[range.from..range.to]);
    assert_eq!(plan.blocks_unshared, of_ranges().map(|run| run.shared).sum::<u64>());
    assert_eq!(plan.blocks_moved, of_ranges().map(|run| run.blocks).sum::<u64>());
    assert!(plan.blocks_unshared <= rule.space_blocks, "(4)");
    let fewer: usize = plan.ranges.iter().map(|range| range.to - range.from - 1).sum();
    assert_eq!((plan.runs_before, plan.runs_after), (runs.len() as u64, (runs.len() - fewer) as u64));
}

#[test]
fn plans_keep_to_their_rule_and_are_the_best_where_the_space_suffices() {
    let seed = 5;
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let (mut gained, mut possible, mut cut_short) = (0, 0, 0);
    for case in 0..40_000 {
        let runs = random_file(&mut random);
        let run_blocks_min = 1 + random.below(60) as u32;
        let space_blocks_max = [2, 30, 600][random.below(3) as usize];
        let space_blocks = random.below(space_blocks_max);
        let rule = DefragRule { run_blocks_min, space_blocks };
        let plan = plan_defrag(&runs, &rule);
        check(&runs, &rule, &plan);
        let costs = cheapest(&runs, run_blocks_min);
        let best = costs.iter().rposition(|cost| *cost <= space_blocks).unwrap() as u64;
        let gain = plan.runs_before - plan.runs_after;
        let most = costs.len() as u64 - 1;
        assert!(gain <= best, "case {case}: a gain of {gain}, and the best is {best}");
        assert_eq!(plan.runs_left, most - gain, "case {case}");
        let is_enough = *costs.last().unwrap() <= space_blocks;
        assert!(!is_enough || gain == best, "case {case}: {gain} of {best}, and there is space for all");
        let free = costs.iter().rposition(|cost| *cost == 0).unwrap() as u64;
        assert!(gain >= free, "case {case}: {gain}, and {free} cost nothing");
        if !is_enough {
            cut_short += 1;
            gained += gain;
            possible += best;
        }
    }
    println!("too little space in {cut_short} cases: {gained} runs gained of {possible}");
    assert!(cut_short > 2_000, "the test has to come there");
    assert!(gained * 100 >= possible * 99, "{gained} of {possible}");
}

#[test]
fn short_runs_that_follow_each_other_become_one() {
    let plan = plan(&[(3, 0), (2, 0), (1, 0)], 8, 0);
    assert_eq!((moved(&plan), plan.runs_before, plan.runs_after), (vec![(0, 3)], 3, 1));
    assert_eq!((plan.blocks_moved, plan.blocks_unshared, plan.runs_left), (6, 0, 0));
}

#[test]
fn a_short_run_between_two_long_ones_stays() {
    assert_eq!(moved(&plan(&[(64, 0), (1, 0), (64, 0)], 64, 100)), []);
    assert_eq!(moved(&plan(&[(64, 0), (1, 0), (1, 0), (64, 0)], 64, 100)), [(1, 3)]);
}

#[test]
fn long_runs_stay_shared_or_not_and_so_does_what_must() {
    assert_eq!(moved(&plan(&[(8, 8), (8, 0), (8, 8)], 8, 100)), []);
    let mut runs = file(&[(1, 0), (1, 0), (1, 0)]);
    runs[1].must_stay = true;
    assert_eq!(plan_defrag(&runs, &DefragRule { run_blocks_min: 8, space_blocks: 9 }).ranges, []);
}

#[test]
fn without_space_nothing_that_is_shared_moves() {
    let plan = plan(&[(2, 1), (2, 0), (2, 0), (2, 2)], 8, 0);
    assert_eq!((moved(&plan), plan.runs_left), (vec![(1, 3)], 2));
}

#[test]
fn what_gains_the_most_for_a_block_comes_first() {
    // The second range gains one run for two blocks, the first one for twelve.
    assert_eq!(moved(&plan(&[(6, 6), (6, 6), (64, 0), (1, 1), (1, 1)], 64, 12)), [(3, 5)]);
    // A single shared block that joins two ranges is better than any other choice.
    assert_eq!(moved(&plan(&[(1, 1), (1, 1), (64, 0), (3, 0), (1, 1), (3, 0)], 64, 1)), [(3, 6)]);
}

#[test]
fn of_many_that_are_equally_good_as_many_are_taken_as_there_is_space_for() {
    let runs = vec![(1, 1); 100];
    let plan = plan(&runs, 64, 40);
    assert_eq!((moved(&plan), plan.runs_after, plan.runs_left), (vec![(0, 40)], 61, 60));
}

#[test]
fn holes_and_the_number_of_calls_do_not_make_runs() {
    let mut runs = Vec::new();
    for (first, pbn, blocks) in [(0, 100, 4), (4, 104, 2), (90, 106, 1), (91, 300, 5)] {
        FileRun::add(&mut runs, Lbn(first), Pbn(pbn), blocks);
    }
    let seen: Vec<_> = runs.iter().map(|run| (run.first.0, run.end.0, run.pbn.0, run.blocks)).collect();
    assert_eq!(seen, [(0, 91, 100, 7), (91, 96, 300, 5)]);
}

#[test]
fn a_large_file_in_single_blocks_is_planned_in_a_moment() {
    let runs: Vec<(u64, u64)> = (0..200_000).map(|n| (1 + n % 3, n % 2)).collect();
    let plan = plan(&runs, 64, 30_000);
    assert_eq!(plan.blocks_unshared, 30_000);
    assert!(plan.runs_before - plan.runs_after >= 59_000, "{}", plan.runs_after);
}
