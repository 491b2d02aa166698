//! The detector's verdict on a file that is seen as a whole: for each block that is not shared, whether a run with
//! equal blocks goes through it, and how long the longest is. Pure.

use oncefs_dedup::{Candidates, Decision, HOLDERS_MAX, RunRule, detect};

use crate::layout::run_states::Equal;
use crate::{Lbn, Pbn};

/// A block, and the possible holders of its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its place in the file.
    pub lbn: Lbn,
    /// The block that the map names, if it may be shared. None: no run goes through this place.
    pub own: Option<Pbn>,
    /// Whether it is shared already.
    pub is_shared: bool,
    /// Blocks with its content, ascending. Its own block only if it is shared.
    pub holders: Vec<Pbn>,
}

/// The known equal blocks of each block. Blocks that are shared, or that no run goes through, get `Equal::None`. `end`:
/// the file's last block, and the shortest run worth sharing there, if that differs.
pub fn verdicts(blocks: &[Known], run_blocks_min: u32, end: Option<(Lbn, u32)>) -> Vec<Equal> {
    let are_neighbours = |a: &Known, b: &Known| a.lbn.plus(1) == b.lbn && a.own.is_some() && b.own.is_some();
    let rule_of = |stretch: &[Known]| {
        let end = end.filter(|(last, _)| stretch.last().is_some_and(|block| block.lbn == *last));
        RunRule { end_blocks_min: end.map(|(_, min)| min), ..RunRule::of(run_blocks_min) }
    };
    blocks.chunk_by(are_neighbours).flat_map(|stretch| of_stretch(stretch, rule_of(stretch))).collect()
}

fn of_stretch(stretch: &[Known], rule: RunRule) -> Vec<Equal> {
    let candidates: Vec<Candidates<'_>> = stretch
        .iter()
        .map(|block| Candidates { holders: &block.holders, current: block.own.filter(|_| block.is_shared) })
        .collect();
    let longest = longest_runs(&candidates);
    let decisions = detect(&candidates, rule);
    assert_eq!(decisions.len(), stretch.len(), "a decision for each block");
    assert_eq!(longest.len(), stretch.len(), "the longest run through each block");
    let verdict = |((block, decision), longest): ((&Known, Decision), Option<(Pbn, u32)>)| match (decision, longest) {
        _ if block.is_shared => Equal::None,
        (Decision::Share(pbn), _) => Equal::LongEnough { equal_pbn: pbn.0 },
        (_, Some((pbn, longest_run_blocks))) => Equal::TooShort { equal_pbn: pbn.0, longest_run_blocks },
        (_, None) => Equal::None,
    };
    stretch.iter().zip(decisions).zip(longest).map(verdict).collect()
}

/// For each block, the longest run through it, with the run's block there. Of equal lengths, the one with the lowest
/// pbn.
fn longest_runs(blocks: &[Candidates<'_>]) -> Vec<Option<(Pbn, u32)>> {
    let onward = run_lengths(blocks.len(), |place| blocks.get(place), |pbn| Some(pbn.plus(1)));
    let last = blocks.len().wrapping_sub(1);
    let mut before = run_lengths(
        blocks.len(),
        |n| last.checked_sub(n).map(|place| &blocks[place]),
        |pbn| pbn.0.checked_sub(1).map(Pbn),
    );
    before.reverse();
    let longest = |(block, (onward, before)): (&Candidates<'_>, (&Lengths, &Lengths))| {
        let lengths = held(block).iter().zip(onward.iter().zip(before));
        let runs = lengths.map(|(pbn, (onward, before))| (*pbn, onward + before - 1));
        runs.max_by_key(|(pbn, blocks)| (*blocks, std::cmp::Reverse(*pbn)))
    };
    blocks.iter().zip(onward.iter().zip(&before)).map(longest).collect()
}

/// For each holder of a block, the length of the run that begins there.
type Lengths = [u32; HOLDERS_MAX];

/// Lengths of the runs that begin at each of `count` blocks, from the last to the first. `block` returns them in the
/// direction of the runs, and `next` the pbn that follows in it.
fn run_lengths<'a>(
    count: usize,
    block: impl Fn(usize) -> Option<&'a Candidates<'a>>,
    next: impl Fn(Pbn) -> Option<Pbn>,
) -> Vec<Lengths> {
    let mut lengths = vec![[0; HOLDERS_MAX]; count];
    for place in (0..count).rev() {
        let Some(here) = block(place) else { continue };
        for (n, &pbn) in held(here).iter().enumerate() {
            let following = block(place + 1).zip(next(pbn));
            let found = following.and_then(|(block, pbn)| held(block).binary_search(&pbn).ok());
            lengths[place][n] = 1 + found.map_or(0, |at| lengths[place + 1][at]);
        }
    }
    lengths
}

/// The holders that the detector considers.
fn held<'a>(block: &Candidates<'a>) -> &'a [Pbn] {
    &block.holders[..block.holders.len().min(HOLDERS_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_is_long_enough_at_the_file_s_end_and_nowhere_else() {
        let known = |lbn: u64| Known {
            lbn: Lbn(lbn),
            own: Some(Pbn(10 + lbn)),
            is_shared: false,
            holders: vec![Pbn(20 + lbn)],
        };
        let blocks: Vec<Known> = [0, 1, 5, 6].map(known).into();
        let is_long_enough = |end| -> Vec<bool> {
            verdicts(&blocks, 64, end).iter().map(|equal| matches!(equal, Equal::LongEnough { .. })).collect()
        };
        assert_eq!(is_long_enough(None), [false; 4]);
        assert_eq!(is_long_enough(Some((Lbn(6), 2))), [false, false, true, true]);
        assert_eq!(is_long_enough(Some((Lbn(6), 3))), [false; 4], "the last chunk has three blocks");
        assert_eq!(is_long_enough(Some((Lbn(9), 2))), [false; 4], "the file ends elsewhere");
    }
}
