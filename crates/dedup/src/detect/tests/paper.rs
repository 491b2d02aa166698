//! The paper's rule to the letter (sections 3.4.2 and 4.2.2), beside ours.
//!
//! When a sequence that is long enough ends, its blocks are shared, except those that an open sequence also has, if the
//! rest forms a run that is long enough. Otherwise the sequence is dropped.

use super::check::{check, holds, looked_at};
use super::random::Case;
use super::*;
use crate::random::Random;

#[derive(Clone, Copy, Debug)]
struct Sequence {
    first: usize,
    end: usize,
    pbn: Pbn,
}

fn sequences(blocks: &[Candidates]) -> Vec<Sequence> {
    let mut found = Vec::new();
    for (first, block) in blocks.iter().enumerate() {
        for &pbn in looked_at(block) {
            let goes_back = first > 0 && pbn.0 > 0 && holds(blocks, first - 1, Pbn(pbn.0 - 1));
            if !goes_back {
                let len = (first..).take_while(|at| holds(blocks, *at, pbn.plus((at - first) as u64))).count();
                found.push(Sequence { first, end: first + len, pbn });
            }
        }
    }
    found
}

fn by_the_paper(blocks: &[Candidates], blocks_min: usize) -> Vec<Option<Pbn>> {
    let sequences = sequences(blocks);
    let mut shared = vec![None; blocks.len()];
    for now in 1..=blocks.len() {
        let mut ended: Vec<Sequence> = sequences.iter().copied().filter(|sequence| sequence.end == now).collect();
        ended.sort_by_key(|sequence| (sequence.first, sequence.pbn));
        let is_open =
            |at: usize| sequences.iter().any(|other| other.first <= at && other.first < now && other.end > now);
        for Sequence { first, end, pbn } in ended {
            let is_free: Vec<bool> = (first..end).map(|at| shared[at].is_none() && !is_open(at)).collect();
            let mut from = first;
            for range in is_free.chunk_by(|a, b| a == b) {
                if range[0] && range.len() >= blocks_min {
                    (from..from + range.len()).for_each(|at| shared[at] = Some(pbn.plus((at - first) as u64)));
                }
                from += range.len();
            }
        }
    }
    shared
}

#[test]
fn figure_3_rejects_the_first_sequence() {
    let holders = pbns(&FIGURE_3);
    let shared = by_the_paper(&blocks(&holders, &[]), 4);
    let shown: Vec<u64> = shared.into_iter().flatten().map(|pbn| pbn.0).collect();
    assert_eq!(shown, [42, 43, 44, 45, 46, 47]);
}

#[test]
fn the_paper_never_shares_more_blocks() {
    let mut numbers = Random::new(7);
    let (mut by_paper, mut by_us, mut held) = (0, 0, 0);
    for number in 0..100_000 {
        let case = Case::random(&mut numbers);
        let rule = RunRule::of(case.rule.run_blocks_min);
        let blocks: Vec<Candidates> =
            case.blocks().into_iter().map(|block| Candidates { current: None, ..block }).collect();
        let decisions = detect(&blocks, rule);
        check(&blocks, rule, &decisions);
        let ours = decisions.iter().filter(|decision| matches!(decision, Decision::Share(_))).count();
        let papers = by_the_paper(&blocks, rule.run_blocks_min as usize).iter().flatten().count();
        assert!(papers <= ours, "case {number}: {papers} > {ours} of {blocks:?} {rule:?}");
        (by_paper, by_us) = (by_paper + papers, by_us + ours);
        held += blocks.iter().filter(|block| !block.holders.is_empty()).count();
    }
    println!("of {held} blocks with holders the paper's rule shares {by_paper}, ours {by_us}");
    assert!(by_paper * 100 > by_us * 80, "the paper's rule is meant to be a good one: {by_paper} of {by_us}");
}
