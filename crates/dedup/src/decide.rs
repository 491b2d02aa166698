//! Decide: which blocks of a batch share a stored block, which are stored anew.
//!
//! Owns the choice among candidates and the refusal of short runs (iDedup). Leaves to others
//! where candidates come from, whether they hold what they promise (confirm), and blocks equal to
//! what the map holds already, which are dropped on receipt. Runs end with their batch.

use crate::{HOLDERS_MAX, Pbn};

/// One block of a batch: what may hold its content already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Candidates<'a> {
    /// Pbns that may hold the content, ascending. The first [`HOLDERS_MAX`] are looked at.
    pub holders: &'a [Pbn],
    /// The pbn that the file's map has at this place now.
    pub current: Option<Pbn>,
}

/// What becomes of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Becomes a reference to this pbn, if confirmed.
    Share(Pbn),
    /// Is stored in a block of its own.
    Anew,
}

/// For each block and each of its holders: how many blocks the run that starts there has.
type RunLengths = Vec<[u32; HOLDERS_MAX]>;

/// Decides for blocks that are adjacent in one file, in file order.
///
/// A run is a stretch of blocks shared with adjacent pbns. One that was begun is followed to its
/// end. One is begun only if it reaches `run_blocks_min` blocks; the map's own pbn goes first
/// (nothing changes on disk), then the longest run, then the lowest pbn. The time is proportional
/// to the blocks, however many holders they have.
pub fn decide(blocks: &[Candidates], run_blocks_min: u32) -> Vec<Decision> {
    let lengths = run_lengths(blocks);
    let mut decisions = Vec::with_capacity(blocks.len());
    let mut next = None;
    for (block, lengths) in blocks.iter().zip(&lengths) {
        let followed = next.filter(|&pbn| place_of(block, pbn).is_some());
        let chosen = followed.or_else(|| best_start(block, lengths, run_blocks_min));
        decisions.push(chosen.map_or(Decision::Anew, Decision::Share));
        next = chosen.map(|pbn| pbn.plus(1));
    }
    decisions
}

/// From the last block to the first: a run is one longer than the run of the next pbn in the next block.
fn run_lengths(blocks: &[Candidates]) -> RunLengths {
    let mut lengths = vec![[0; HOLDERS_MAX]; blocks.len()];
    for (place, block) in blocks.iter().enumerate().rev() {
        let following = blocks.get(place + 1).zip(lengths.get(place + 1).copied());
        for (holder, &pbn) in holders(block).iter().enumerate() {
            let rest = following.and_then(|(block, lengths)| Some(lengths[place_of(block, pbn.plus(1))?]));
            lengths[place][holder] = 1 + rest.unwrap_or(0);
        }
    }
    lengths
}

fn best_start(block: &Candidates, lengths: &[u32; HOLDERS_MAX], run_blocks_min: u32) -> Option<Pbn> {
    let starts = holders(block).iter().copied().zip(lengths.iter().copied());
    let long_enough = starts.filter(|&(_, length)| length >= run_blocks_min);
    let best = long_enough.max_by_key(|&(pbn, length)| (block.current == Some(pbn), length, std::cmp::Reverse(pbn)));
    best.map(|(pbn, _)| pbn)
}

fn holders<'a>(block: &Candidates<'a>) -> &'a [Pbn] {
    debug_assert!(block.holders.is_sorted(), "holders come in ascending order: {block:?}");
    &block.holders[..block.holders.len().min(HOLDERS_MAX)]
}

fn place_of(block: &Candidates, pbn: Pbn) -> Option<usize> {
    holders(block).binary_search(&pbn).ok()
}

#[cfg(test)]
mod tests {
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
        let shown = decide(&blocks, run_blocks_min).into_iter().map(|decision| match decision {
            Decision::Share(pbn) => pbn.to_string(),
            Decision::Anew => "-".to_owned(),
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
        let decisions = decide(&blocks, 1);
        for decision in decisions {
            let Decision::Share(pbn) = decision else { panic!("every block has holders") };
            assert!(pbn.0 < HOLDERS_MAX as u64, "{pbn} is beyond the bound");
        }
    }

    struct Numbers(u64);

    impl Numbers {
        fn below(&mut self, end: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 16) % end
        }
    }

    /// Few pbns, so that runs meet, overlap and end often.
    fn random_holders(numbers: &mut Numbers) -> Vec<Vec<Pbn>> {
        let block = |numbers: &mut Numbers| {
            let count = numbers.below(5);
            let mut pbns: Vec<Pbn> = (0..count).map(|_| Pbn(numbers.below(8))).collect();
            pbns.sort_unstable();
            pbns.dedup();
            pbns
        };
        (0..numbers.below(30)).map(|_| block(numbers)).collect()
    }

    #[test]
    fn every_share_is_a_candidate_every_run_is_long_enough_and_none_that_could_be_is_left() {
        let mut numbers = Numbers(0x1234_5678_9ABC_DEF1);
        let mut shared = 0;
        for case in 0..100_000 {
            let holders = random_holders(&mut numbers);
            let run_blocks_min = 1 + numbers.below(5) as u32;
            let blocks: Vec<Candidates> =
                (holders.iter()).map(|holders| Candidates { holders, current: Some(Pbn(numbers.below(8))) }).collect();
            let decisions = decide(&blocks, run_blocks_min);
            shared += assert_valid(&blocks, &decisions, run_blocks_min, case);
        }
        assert!(shared > 100_000, "the test has to share");
    }

    fn assert_valid(blocks: &[Candidates], decisions: &[Decision], run_blocks_min: u32, case: u32) -> u32 {
        assert_eq!(blocks.len(), decisions.len());
        let (mut place, mut shared) = (0, 0);
        while place < decisions.len() {
            let Decision::Share(first) = decisions[place] else {
                assert_no_run_starts(&blocks[place..], run_blocks_min, case);
                place += 1;
                continue;
            };
            let mut run = 0;
            while decisions.get(place) == Some(&Decision::Share(first.plus(run))) {
                assert!(blocks[place].holders.contains(&first.plus(run)), "case {case} block {place}");
                (place, run) = (place + 1, run + 1);
            }
            assert!(run >= u64::from(run_blocks_min), "case {case}: {run} before block {place}");
            shared += run as u32;
        }
        shared
    }

    fn assert_no_run_starts(blocks: &[Candidates], run_blocks_min: u32, case: u32) {
        for start in blocks[0].holders {
            let holds = |n: usize| blocks.get(n).is_some_and(|b| b.holders.contains(&start.plus(n as u64)));
            assert!(!(0..run_blocks_min as usize).all(holds), "case {case}: a run from {start} was missed");
        }
    }
}
