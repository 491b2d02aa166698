//! The detector: small examples, the invariants of every answer, and its cost. [`reference`] compares it with two
//! others that are obviously right. Not covered: whether a shared run is read faster, which only a device can tell.

mod check;
mod paper;
pub mod random;
mod reference;

use super::*;

/// Blocks as lists of holders, and the map's pbn at each place. Places beyond that list are not mapped.
fn blocks<'a>(holders: &'a [Vec<Pbn>], current: &[u64]) -> Vec<Candidates<'a>> {
    let current = current.iter().copied().map(Pbn).map(Some).chain(std::iter::repeat(None));
    holders.iter().zip(current).map(|(holders, current)| Candidates { holders, current }).collect()
}

fn pbns(holders: &[&[u64]]) -> Vec<Vec<Pbn>> {
    holders.iter().map(|pbns| pbns.iter().copied().map(Pbn).collect()).collect()
}

/// Decides and prints: a pbn, `.` unknown, `-` refused, `?` open.
fn shown(holders: &[&[u64]], current: &[u64], run_blocks_min: u32, may_go_on: bool) -> String {
    shown_by(holders, current, RunRule { may_go_on, ..RunRule::of(run_blocks_min) })
}

fn shown_by(holders: &[&[u64]], current: &[u64], rule: RunRule) -> String {
    let holders = pbns(holders);
    let blocks = blocks(&holders, current);
    let decisions = detect(&blocks, rule);
    check::check(&blocks, rule, &decisions);
    let word = |decision: &Decision| match decision {
        Decision::Share(pbn) => pbn.to_string(),
        Decision::Unknown => ".".to_owned(),
        Decision::Refused => "-".to_owned(),
        Decision::Open => "?".to_owned(),
    };
    decisions.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn decided(holders: &[&[u64]], run_blocks_min: u32) -> String {
    shown(holders, &[], run_blocks_min, false)
}

fn with_current(holders: &[&[u64]], current: &[u64], run_blocks_min: u32) -> String {
    shown(holders, current, run_blocks_min, false)
}

fn going_on(holders: &[&[u64]], run_blocks_min: u32) -> String {
    shown(holders, &[], run_blocks_min, true)
}

#[test]
fn blocks_without_holders_are_unknown() {
    assert_eq!(decided(&[&[], &[], &[]], 1), ". . .");
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
fn a_block_that_the_file_has_is_never_refused() {
    assert_eq!(with_current(&[&[3, 50], &[51], &[52]], &[3], 4), "3 - -");
    let many: Vec<u64> = (100..140).collect();
    assert_eq!(with_current(&[&many, &[]], &[139], 4), "139 .", "also beyond the holders that are looked at");
}

#[test]
fn a_run_counts_from_where_the_file_has_it_already() {
    assert_eq!(with_current(&[&[10], &[11], &[12], &[13]], &[10, 11], 4), "10 11 12 13");
    assert_eq!(with_current(&[&[10], &[11], &[12]], &[10, 11], 4), "10 11 -");
}

#[test]
fn runs_below_the_minimum_are_refused() {
    let holders: [&[u64]; 6] = [&[10], &[11], &[], &[20], &[21], &[22]];
    assert_eq!(decided(&holders, 0), "10 11 . 20 21 22");
    assert_eq!(decided(&holders, 2), "10 11 . 20 21 22");
    assert_eq!(decided(&holders, 3), "- - . 20 21 22");
    assert_eq!(decided(&holders, 4), "- - . - - -");
}

fn at_the_end(holders: &[&[u64]], current: &[u64], run_blocks_min: u32, end_blocks_min: u32) -> String {
    shown_by(holders, current, RunRule { end_blocks_min: Some(end_blocks_min), ..RunRule::of(run_blocks_min) })
}

#[test]
fn at_the_file_s_end_a_run_of_the_last_chunk_is_enough() {
    let holders: [&[u64]; 6] = [&[10], &[11], &[], &[20], &[21], &[22]];
    assert_eq!(at_the_end(&holders, &[], 4, 3), "- - . 20 21 22", "and nowhere else");
    assert_eq!(at_the_end(&holders, &[], 4, 2), "- - . 20 21 22", "as long as it can be");
    assert_eq!(at_the_end(&holders, &[], 8, 4), "- - . - - -");
    assert_eq!(at_the_end(&holders[..2], &[], 64, 2), "10 11", "a file as a whole");
    assert_eq!(at_the_end(&holders[..3], &[], 64, 1), "- - .", "what has no holder is no end");
}

#[test]
fn a_run_at_the_end_leaves_to_another_what_makes_that_long_enough_and_goes_on_with_what_stays() {
    let overlapping: [&[u64]; 5] = [&[10], &[11], &[12, 52], &[13, 53], &[54]];
    assert_eq!(at_the_end(&overlapping, &[], 4, 1), "10 11 12 13 54");
    assert_eq!(at_the_end(&overlapping, &[], 3, 2), "10 11 12 53 54");
    assert_eq!(at_the_end(&overlapping, &[], 4, 3), "10 11 12 13 -", "four blocks are more than three");
    assert_eq!(at_the_end(&[&[10], &[11], &[12]], &[9, 11], 64, 2), "10 11 12");
    assert_eq!(at_the_end(&[&[10], &[11], &[12, 32]], &[9, 11], 64, 1), "10 11 12");
}

#[test]
fn the_last_chunk_of_a_file_has_the_blocks_behind_its_last_whole_one() {
    let blocks = |blocks: u64| RunRule::end_chunk(Lbn(blocks - 1));
    assert_eq!([1, 2, 63, 64, 65, 128, 200].map(blocks), [1, 2, 63, 64, 1, 64, 8]);
}

#[test]
fn a_short_run_does_not_hide_a_long_one_that_starts_within_it() {
    assert_eq!(decided(&[&[10], &[11, 30], &[31], &[32]], 3), "- 30 31 32");
}

#[test]
fn the_four_cases_of_a_pair_are_found() {
    assert_eq!(decided(&[&[10], &[11]], 2), "10 11");
    assert_eq!(decided(&[&[10], &[5, 11, 17]], 2), "10 11");
    assert_eq!(decided(&[&[5, 10, 17], &[11]], 2), "10 11");
    // The paper's figure 6: 10 continues with 11, 67 with 68.
    let (first, second): (&[u64], &[u64]) = (&[6, 10, 25, 67], &[11, 38, 47, 68]);
    assert_eq!(decided(&[first, second], 2), "10 11");
    assert_eq!(decided(&[first, second, &[69]], 3), "67 68 69");
}

/// The paper's figure 3, threshold 4: S1 ends after six blocks, S2 and S3 overlap it.
const FIGURE_3: [&[u64]; 8] = [&[10], &[11], &[12, 42], &[13, 43, 73], &[14, 44, 74], &[15, 45, 75], &[46, 76], &[47]];

#[test]
fn a_sequence_leaves_to_another_what_makes_that_long_enough() {
    // The paper's rule refuses S1, because S2 and S3 leave it two blocks. Four each of S1 and S2 are better.
    assert_eq!(decided(&FIGURE_3, 4), "10 11 12 13 44 45 46 47");
    assert_eq!(decided(&FIGURE_3[..7], 4), "10 11 12 13 14 15 -", "three blocks for the other are too few");
}

#[test]
fn an_open_run_is_neither_shared_nor_refused() {
    assert_eq!(going_on(&[&[10], &[], &[20], &[21]], 3), "- . ? ?");
    assert_eq!(going_on(&[&[], &[20], &[21], &[22]], 3), ". 20 21 22");
    assert_eq!(going_on(&[&[10], &[11], &[]], 3), "- - .", "its sequence ended");
    assert_eq!(going_on(&[&[10]], 1), "10", "a minimum of one leaves nothing open");
}

#[test]
fn an_open_run_gets_what_a_shared_one_can_spare() {
    let ended_after_six: [&[u64]; 8] = [&[10], &[11], &[12], &[13], &[14, 54], &[15, 55], &[56], &[]];
    assert_eq!(going_on(&ended_after_six[..7], 4), "10 11 12 13 ? ? ?");
    assert_eq!(going_on(&ended_after_six, 4), "10 11 12 13 14 15 - .");
    let ended_after_four: [&[u64]; 5] = [&[10], &[11, 51], &[12, 52], &[13, 53], &[54]];
    assert_eq!(going_on(&ended_after_four, 5), "- ? ? ? ?");
    assert_eq!(going_on(&ended_after_four, 4), "- 51 52 53 54", "of equals the one that can go on");
}

/// Blocks that are hard for the detector: all equal, with any number of holders, and neighbours that never match,
/// although each holder lies between two of the next block.
fn adversaries() -> [Vec<Vec<Pbn>>; 3] {
    let equal = vec![(0..100_000).map(Pbn).collect(); 500];
    let interleaved = |block: u64| (0..100).map(|n| Pbn(10 * n + 5 * (block % 2))).collect();
    let joined = |block: u64| (0..HOLDERS_MAX as u64).map(|n| Pbn(100_000 * n + block)).collect();
    [equal, (0..2_000).map(interleaved).collect(), (0..2_000).map(joined).collect()]
}

#[test]
fn the_cost_of_a_block_is_bounded() {
    for holders in adversaries() {
        let mut sequences = sequences::Sequences::default();
        for block in blocks(&holders, &[]) {
            let searches = sequences.step(block.choice());
            assert!(searches <= 2 * HOLDERS_MAX, "{searches} searches");
            assert!(sequences.open().len() <= HOLDERS_MAX, "{} open sequences", sequences.open().len());
        }
    }
}

#[test]
fn holders_beyond_the_bound_are_not_looked_at() {
    for holders in adversaries() {
        for decision in detect(&blocks(&holders, &[]), RunRule::EVERY_BLOCK) {
            let Decision::Share(pbn) = decision else { panic!("every block has holders") };
            let is_looked_at = |holders: &Vec<Pbn>| holders.iter().take(HOLDERS_MAX).any(|holder| *holder == pbn);
            assert!(holders.iter().any(is_looked_at), "{pbn} is beyond the bound");
        }
    }
}

#[test]
fn decisions_are_grouped_into_runs() {
    use Decision::{Open, Refused, Share, Unknown};
    let decisions = [Share(Pbn(5)), Share(Pbn(6)), Share(Pbn(9)), Unknown, Unknown, Refused, Open];
    let shown: Vec<String> = runs_of(&decisions).iter().map(DecidedRun::to_string).collect();
    assert_eq!(shown, ["0+2: 5", "2+1: 9", "3+2: unknown", "5+1: refused", "6+1: open"]);
    assert_eq!(runs_of(&[]), []);
}
