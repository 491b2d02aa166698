//! Two detectors that are obviously right and slow, and the agreement of the real one with both.
//!
//! [`quadratic`] tries every run for every end; [`achieved_at_most`] tries every choice there is.

use std::cmp::Reverse;

use super::check::{check, holds, looked_at, stays};
use super::random::Case;
use super::*;
use crate::counts::{gate_or_drill, seed};
use crate::random::Random;

/// Random cases. Ten mutations of the detector were tried: each differs within the first 215 cases.
const CASES: (u64, u64) = (100_000, 10_000_000);
/// Small cases of which every choice is tried.
const SMALL_CASES: (u64, u64) = (4_000, 20_000);

/// A choice for the first blocks up to some number: shared blocks, runs, and the last run's first block and pbn.
#[derive(Clone, Copy, Default)]
struct Choice {
    shared: usize,
    runs: usize,
    run: Option<(usize, Pbn)>,
}

/// The runs that end before `end`, from the latest first block to the earliest, each from the lowest pbn on.
fn runs_before<'a>(blocks: &'a [Candidates], end: usize) -> impl DoubleEndedIterator<Item = (usize, Pbn)> + 'a {
    let from = move |first: usize| {
        let all_hold = move |pbn: &Pbn| (first..end).all(|at| holds(blocks, at, pbn.plus((at - first) as u64)));
        looked_at(&blocks[first]).iter().copied().filter(all_hold).map(move |pbn| (first, pbn))
    };
    (0..end).rev().flat_map(from)
}

/// The first of the greatest, as `max_by_key` gives the last.
fn first_max<T, K: Ord>(all: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Option<T> {
    all.into_iter().reduce(|best, next| if key(&next) > key(&best) { next } else { best })
}

/// Whether a run is worth sharing, judging by its length and place.
fn is_long_enough(blocks: &[Candidates], rule: RunRule, first: usize, end: usize) -> bool {
    let is_last = end == blocks.len() && rule.end_blocks_min.is_some_and(|min| end - first >= min.max(1) as usize);
    is_last || end - first >= rule.run_blocks_min.max(1) as usize || blocks[first..end].iter().all(stays)
}

fn best_choices(blocks: &[Candidates], rule: RunRule) -> Vec<Choice> {
    let mut best = vec![Choice::default()];
    for end in 1..=blocks.len() {
        let is_allowed = |&(first, _): &(usize, Pbn)| is_long_enough(blocks, rule, first, end);
        let with_run = |(first, pbn)| {
            let Choice { shared, runs, .. } = best[first];
            Choice { shared: shared + end - first, runs: runs + 1, run: Some((first, pbn)) }
        };
        let not_shared = (!stays(&blocks[end - 1])).then(|| Choice { run: None, ..best[end - 1] });
        let all = runs_before(blocks, end).filter(is_allowed).map(with_run).chain(not_shared);
        let chosen = first_max(all, |choice| (choice.shared, Reverse(choice.runs)));
        best.push(chosen.expect("a block that stays is a run"));
    }
    best
}

/// Where open blocks begin, by the runs that reach the end.
fn open_from(blocks: &[Candidates], best: &[Choice], blocks_min: usize) -> Option<usize> {
    let end = blocks.len();
    let is_open = |&(first, pbn): &(usize, Pbn)| {
        let goes_back = |n: &usize| pbn.0 >= *n as u64 && holds(blocks, first - n, Pbn(pbn.0 - *n as u64));
        let before = (1..=first).take_while(goes_back).count();
        before + end - first < blocks_min && !blocks[first..].iter().any(stays)
    };
    let runs = runs_before(blocks, end).rev().filter(is_open);
    let with_open = |first: usize| best[first].shared + end - first;
    let first = first_max(runs.map(|(first, _)| first), |first| with_open(*first))?;
    (with_open(first) > best[end].shared).then_some(first)
}

/// The rule of the detector, by trying every run for every end.
fn quadratic(blocks: &[Candidates], rule: RunRule) -> Vec<Decision> {
    let blocks_min = rule.run_blocks_min.max(1) as usize;
    let best = best_choices(blocks, rule);
    let is_unknown = |block: &Candidates| block.holders.is_empty();
    let not_shared = |block| if is_unknown(block) { Decision::Unknown } else { Decision::Refused };
    let mut decisions: Vec<Decision> = blocks.iter().map(not_shared).collect();
    let open = rule.may_go_on.then(|| open_from(blocks, &best, blocks_min)).flatten();
    let mut end = open.unwrap_or(blocks.len());
    decisions[end..].fill(Decision::Open);
    while end > 0 {
        match best[end].run {
            Some((first, pbn)) => {
                (first..end).for_each(|at| decisions[at] = Decision::Share(pbn.plus((at - first) as u64)));
                end = first;
            }
            None => end -= 1,
        }
    }
    decisions
}

/// The most blocks that any choice shares, and in how few runs. Tries each holder of each block, and none.
fn achieved_at_most(blocks: &[Candidates], rule: RunRule, chosen: &mut Vec<Decision>) -> (usize, Reverse<usize>) {
    let Some(block) = blocks.get(chosen.len()) else {
        let allowed = achieved(blocks, rule, chosen);
        return allowed.unwrap_or((0, Reverse(usize::MAX)));
    };
    let not_shared = (!stays(block)).then_some(Decision::Refused);
    let all = looked_at(block).iter().copied().map(Decision::Share).chain(not_shared);
    let with = |decision| {
        chosen.push(decision);
        let achieved = achieved_at_most(blocks, rule, chosen);
        chosen.pop();
        achieved
    };
    all.map(with).max().expect("a block is shared or not")
}

/// The result of a choice, if all its runs are allowed. Neighbours on one run are one run.
fn achieved(blocks: &[Candidates], rule: RunRule, decisions: &[Decision]) -> Option<(usize, Reverse<usize>)> {
    let (mut shared, mut runs) = (0, 0);
    for DecidedRun { first, blocks: len, decision } in runs_of(decisions) {
        if let Decision::Share(_) = decision {
            if !is_long_enough(blocks, rule, first, first + len) {
                return None;
            }
            (shared, runs) = (shared + len, runs + 1);
        }
    }
    Some((shared, Reverse(runs)))
}

#[test]
fn the_quadratic_reference_agrees_on_random_cases() {
    let cases = gate_or_drill(CASES.0, CASES.1);
    let (mut shared, mut open, mut short_ends) = (0_u64, 0_u64, 0_u64);
    let seed = seed();
    let mut numbers = Random::new(seed);
    for number in 0..cases {
        let case = Case::random(&mut numbers);
        let (blocks, rule) = (case.blocks(), case.rule);
        let decisions = detect(&blocks, rule);
        assert_eq!(decisions, quadratic(&blocks, rule), "seed {seed} case {number}: {blocks:?} {rule:?}");
        check(&blocks, rule, &decisions);
        shared += decisions.iter().filter(|decision| matches!(decision, Decision::Share(_))).count() as u64;
        open += u64::from(decisions.last() == Some(&Decision::Open));
        short_ends += u64::from(has_short_end(&blocks, rule, &decisions));
    }
    println!(
        "{cases} cases, {shared} blocks shared, {open} with open blocks, {short_ends} with a short run at the end"
    );
    assert!(shared > cases && open > cases / 100, "the cases have to share and to leave open");
    assert!(short_ends > cases / 100, "and to end in short runs");
}

fn has_short_end(blocks: &[Candidates], rule: RunRule, decisions: &[Decision]) -> bool {
    let is_short = |run: &DecidedRun| {
        let is_shared = matches!(run.decision, Decision::Share(_)) && run.blocks < rule.run_blocks_min as usize;
        is_shared && !blocks[run.first..].iter().all(stays)
    };
    runs_of(decisions).last().is_some_and(is_short)
}

#[test]
fn no_choice_shares_more_blocks_or_as_many_in_fewer_runs() {
    let mut numbers = Random::new(seed());
    for number in 0..gate_or_drill(SMALL_CASES.0, SMALL_CASES.1) {
        let case = Case::small(&mut numbers);
        let (blocks, rule) = (case.blocks(), RunRule { may_go_on: false, ..case.rule });
        let found = achieved(&blocks, rule, &detect(&blocks, rule)).expect("its runs are allowed");
        let most = achieved_at_most(&blocks, rule, &mut Vec::new());
        assert_eq!(found, most, "case {number}: {blocks:?} {rule:?}");
    }
}
