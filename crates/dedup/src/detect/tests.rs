//! The detector on small examples.

use super::*;

/// Decides for blocks given as lists of holders, none mapped yet, and prints the outcome.
fn decided(holders: &[&[u64]], run_blocks_min: u32) -> String {
    with_current(holders, &[], run_blocks_min)
}

fn with_current(holders: &[&[u64]], current: &[u64], run_blocks_min: u32) -> String {
    let holders: Vec<Vec<Pbn>> = holders.iter().map(|pbns| pbns.iter().copied().map(Pbn).collect()).collect();
    let blocks: Vec<Candidates> = (holders.iter().enumerate())
        .map(|(place, holders)| Candidates { holders, current: current.get(place).copied().map(Pbn) })
        .collect();
    let rule = RunRule { run_blocks_min, may_go_on: false };
    let shown = detect(&blocks, rule).into_iter().map(|decision| match decision {
        Decision::Share(pbn) => pbn.to_string(),
        _ => "-".to_owned(),
    });
    shown.collect::<Vec<_>>().join(" ")
}

#[test]
fn blocks_without_holders_are_stored_anew() {
    assert_eq!(decided(&[&[], &[], &[]], 1), "- - -");
    assert_eq!(decided(&[], 1), "");
}

#[test]
fn a_run_is_followed_although_lower_holders_exist() {
    assert_eq!(decided(&[&[50], &[3, 51], &[1, 52], &[2]], 1), "50 51 52 2");
}

#[test]
fn the_longest_run_is_begun_before_the_lowest_holder() {
    assert_eq!(decided(&[&[3, 50], &[51], &[52]], 1), "50 51 52");
    assert_eq!(decided(&[&[50, 90]], 1), "50");
}

#[test]
fn what_the_map_has_already_goes_before_the_longest_run() {
    assert_eq!(with_current(&[&[3, 50], &[51]], &[3], 1), "3 51");
    assert_eq!(with_current(&[&[3, 50], &[51]], &[4], 1), "50 51");
}

#[test]
fn runs_below_the_minimum_are_refused() {
    let holders: [&[u64]; 6] = [&[10], &[11], &[], &[20], &[21], &[22]];
    assert_eq!(decided(&holders, 2), "10 11 - 20 21 22");
    assert_eq!(decided(&holders, 3), "- - - 20 21 22");
    assert_eq!(decided(&holders, 4), "- - - - - -");
}

#[test]
fn a_short_run_does_not_hide_a_long_one_that_starts_within_it() {
    assert_eq!(decided(&[&[10], &[11, 30], &[31], &[32]], 3), "- 30 31 32");
}

#[test]
fn any_number_of_holders_costs_no_more_than_the_bound() {
    let all: Vec<Pbn> = (0..100_000).map(Pbn).collect();
    let blocks = vec![Candidates { holders: &all, current: None }; 1_000];
    let decisions = detect(&blocks, RunRule::EVERY_BLOCK);
    for decision in decisions {
        let Decision::Share(pbn) = decision else { panic!("every block has holders") };
        assert!(pbn.0 < HOLDERS_MAX as u64, "{pbn} is beyond the bound");
    }
}
