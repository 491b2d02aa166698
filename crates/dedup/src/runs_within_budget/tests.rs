//! What a budget is spent on: examples, and a quadratic reference that tries every choice.

use std::collections::BTreeMap;

use super::*;
use crate::counts::gate_or_drill;
use crate::detect::tests::random::Case;
use crate::random::Random;

fn pbns(list: &[&[u64]]) -> Vec<Vec<Pbn>> {
    list.iter().map(|holders| holders.iter().copied().map(Pbn).collect()).collect()
}

fn new(holders: &[Vec<Pbn>]) -> Vec<Candidates<'_>> {
    holders.iter().map(|holders| Candidates { holders, current: None }).collect()
}

fn allowance(pieces_max: u64) -> Allowance<'static> {
    Allowance { pieces_max, gap_blocks_max: 0, is_end: false, is_free: &|_, _| false }
}

/// The pbns shared, 0 for none.
fn shared_with(within: &Within) -> Vec<u64> {
    let shared = |decision: &Decision| if let Decision::Share(pbn) = decision { pbn.0 } else { 0 };
    within.decisions.iter().map(shared).collect()
}

#[test]
fn the_longest_pieces_are_shared_and_the_first_of_equals() {
    let holders = pbns(&[&[10], &[], &[20], &[21], &[], &[30], &[31], &[32], &[], &[40], &[41]]);
    let within = |pieces_max| detect_within(&new(&holders), &allowance(pieces_max));
    assert_eq!(shared_with(&within(0)), [0; 11]);
    assert_eq!(shared_with(&within(1)), [0, 0, 0, 0, 0, 30, 31, 32, 0, 0, 0]);
    assert_eq!(shared_with(&within(2)), [0, 0, 20, 21, 0, 30, 31, 32, 0, 0, 0]);
    assert_eq!((within(2).pieces, within(2).refused), (2, 2));
    assert_eq!(shared_with(&within(9)), [10, 0, 20, 21, 0, 30, 31, 32, 0, 40, 41]);
    assert_eq!((within(9).pieces, within(9).refused), (4, 0));
}

#[test]
fn whole_files_and_ends_of_any_length_cost_nothing() {
    let end = |holders: &[Vec<Pbn>]| {
        let within = detect_within(&new(holders), &Allowance { is_end: true, ..allowance(0) });
        assert_eq!(within.pieces, 0);
        shared_with(&within)
    };
    assert_eq!(end(&pbns(&[&[10], &[11], &[12]])), [10, 11, 12]);
    assert_eq!(end(&pbns(&[&[10], &[], &[30]])), [0, 0, 30]);
    assert_eq!(end(&pbns(&[&[10], &[], &[]])), [0, 0, 0]);
}

#[test]
fn a_run_that_goes_on_from_a_piece_costs_nothing_and_over_a_small_gap_neither() {
    let holders = pbns(&[&[10], &[11], &[], &[13]]);
    let mut blocks = new(&holders);
    let with_gap = |gap_blocks_max| Allowance { gap_blocks_max, ..allowance(1) };
    assert_eq!(shared_with(&detect_within(&blocks, &with_gap(0))), [10, 11, 0, 0]);
    assert_eq!(shared_with(&detect_within(&blocks, &with_gap(1))), [10, 11, 0, 13]);
    blocks[0].current = Some(Pbn(10));
    let within = detect_within(&blocks, &Allowance { pieces_max: 0, ..with_gap(1) });
    assert_eq!((shared_with(&within), within.pieces), (vec![10, 11, 0, 13], 0));
}

#[test]
fn blocks_that_a_reader_has_without_them_cost_nothing_and_stay_shared_where_their_piece_is_refused() {
    let holders = pbns(&[&[10], &[], &[20], &[21], &[22], &[], &[30], &[31], &[32]]);
    let is_free = |_: usize, pbn: Pbn| [10, 21].contains(&pbn.0);
    let within = detect_within(&new(&holders), &Allowance { is_free: &is_free, ..allowance(1) });
    assert_eq!(shared_with(&within), [10, 0, 0, 21, 0, 0, 30, 31, 32]);
    assert_eq!(within.pieces, 1);
}

#[test]
fn a_long_run_is_not_given_up_for_the_ends_of_others() {
    // Three sequences cover all thirty blocks ten by ten, and the one in the middle has twenty.
    let mut holders = vec![Vec::new(); 30];
    for (pbn, blocks) in [(100, 0..10), (205, 5..25), (320, 20..30)] {
        let first = blocks.start;
        blocks.for_each(|at| holders[at].push(Pbn(pbn + (at - first) as u64)));
    }
    let within = |pieces| detect_within(&new(&holders), &allowance(pieces));
    assert_eq!(shared(&within(1)), 20);
    assert_eq!(shared(&within(3)), 30);
}

/// The most blocks that any choice of so many pieces shares: for each block, each number of pieces and each block that
/// the last piece may have come to, the best of all ways there.
fn most_shared(blocks: &[Candidates], pieces_max: usize) -> usize {
    // By pieces: the last block shared, and the most blocks shared with it.
    let mut best: Vec<BTreeMap<Option<Pbn>, usize>> = vec![BTreeMap::from([(None, 0)]); pieces_max + 1];
    for block in blocks {
        let mut next = best.clone();
        for (pieces, ways) in best.iter().enumerate() {
            for ((last, shared), pbn) in ways.iter().flat_map(|way| block.holders.iter().map(move |pbn| (way, *pbn))) {
                let goes_on = last.is_some_and(|last| last.plus(1) == pbn);
                let Some(ways) = next.get_mut(pieces + usize::from(!goes_on)) else { continue };
                let most = ways.entry(Some(pbn)).or_default();
                *most = (*most).max(shared + 1);
            }
        }
        best = next;
    }
    best.iter().flat_map(BTreeMap::values).copied().max().unwrap_or(0)
}

#[test]
fn where_runs_do_not_overlap_no_choice_within_the_budget_shares_more() {
    let mut random = Random::new(7);
    for case in 0..gate_or_drill(600, 3_000) {
        let mut holders: Vec<Vec<Pbn>> = Vec::new();
        for run in 0..1 + random.below(12) {
            holders.extend((0..random.below(4)).map(|_| Vec::new()));
            holders.extend((0..1 + random.below(9)).map(|at| vec![Pbn(1_000 * (run + 1) + at)]));
        }
        let blocks = new(&holders);
        for pieces in 0..14 {
            let within = detect_within(&blocks, &allowance(pieces));
            assert_eq!(shared(&within), most_shared(&blocks, pieces as usize), "case {case}, {pieces} pieces");
            assert!(within.pieces <= pieces);
        }
    }
}

#[test]
fn where_runs_overlap_at_least_95_of_100_blocks_of_the_best_choice_are_shared() {
    let mut random = Random::new(8);
    let (mut all, mut best) = (0, 0);
    for case in 0..100_000 {
        let case_blocks = Case::random(&mut random);
        let blocks: Vec<Candidates> =
            case_blocks.blocks().into_iter().map(|block| Candidates { current: None, ..block }).collect();
        let pieces = random.below(5);
        let within = detect_within(&blocks, &allowance(pieces));
        let most = most_shared(&blocks, pieces as usize);
        assert!(within.pieces <= pieces && shared(&within) <= most, "case {case}: {blocks:?} {pieces}: {within:?}");
        (all, best) = (all + shared(&within), best + most);
    }
    println!("{all} of {best} blocks");
    assert!(best > 100_000 && all * 100 >= best * 95, "{all} of {best}");
}

#[test]
fn every_piece_that_is_paid_for_is_counted() {
    let mut random = Random::new(9);
    for case in 0..50_000 {
        let case_blocks = Case::random(&mut random);
        let blocks = case_blocks.blocks();
        let (gap_blocks_max, is_end) = (random.below(3), random.below(2) == 0);
        let free = random.below(12);
        let is_free = |_: usize, pbn: Pbn| pbn.0 == free;
        let allowance = Allowance { pieces_max: random.below(4), gap_blocks_max, is_end, is_free: &is_free };
        let within = detect_within(&blocks, &allowance);
        let (_, pieces) = pieces_of(&blocks, &within.decisions, &allowance);
        let paid = pieces.iter().filter(|piece| !piece.is_free).count() as u64;
        assert!(paid <= allowance.pieces_max, "case {case}: {within:?} of {blocks:?} has {paid} pieces");
        let is_kept = |(block, decision): (&Candidates, &Decision)| {
            !block.stays() || matches!(decision, Decision::Share(pbn) if Some(*pbn) == block.current)
        };
        assert!(blocks.iter().zip(&within.decisions).all(is_kept), "case {case}: what stays stays");
    }
}
