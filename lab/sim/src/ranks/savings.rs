//! How many blocks files take if each is deduplicated in its own way, with every holder of every content known: what
//! rank and policy cost, and not what a small hint store does.

use hashbrown::{HashMap, HashSet};
use oncefs_dedup::{
    BIG_RUN_BLOCKS, Candidates, Decision, EffectivePolicy, HOLDERS_MAX, Pbn, RunRule, ShareLimit, detect,
};

use crate::contents::FileContents;
use crate::trace::Content;
use oncefs_toolbox::random::mix;

/// Blocks that are decided together, as the worker does.
const PORTION_BLOCKS: usize = 1_024;

/// Blocks in use when the files are deduplicated one after the other, each as `treat` says of its number. A file that
/// is left alone shares nothing and nothing is shared with it.
pub(super) fn stored_blocks(files: &[FileContents], treat: impl Fn(u64) -> EffectivePolicy) -> u64 {
    let mut store = Store::default();
    for file in files {
        let effective_policy = treat(file.file);
        let end_blocks = if effective_policy.shares_ends { file.end() % u64::from(BIG_RUN_BLOCKS) } else { 0 };
        for (first, contents) in &file.stretches {
            let is_last = first + contents.len() as u64 == file.end();
            let end_blocks = if is_last { end_blocks as usize } else { 0 };
            match effective_policy.limit {
                _ if !effective_policy.is_inline && !effective_policy.is_later => store.next += contents.len() as u64,
                ShareLimit::Runs(run_blocks_min) if run_blocks_min > 1 => {
                    store.place_runs(contents, run_blocks_min, end_blocks);
                }
                // The paper has no budgets.
                ShareLimit::Runs(_) | ShareLimit::Budget(_) => store.place_each(contents),
            }
        }
    }
    store.next
}

/// Blocks in use when files are cut into chunks of 64 blocks, the last of each as long as it is, and equal chunks are
/// kept once: the paper's big chunks.
pub(super) fn chunked_blocks(files: &[FileContents]) -> u64 {
    let mut known = HashSet::new();
    let mut stored = 0;
    for (first, contents) in files.iter().flat_map(|file| &file.stretches) {
        // Holes cut chunks, too.
        let to_border = (u64::from(BIG_RUN_BLOCKS) - first % u64::from(BIG_RUN_BLOCKS)) as usize;
        let (head, rest) = contents.split_at(to_border.min(contents.len()));
        for chunk in std::iter::once(head).chain(rest.chunks(BIG_RUN_BLOCKS as usize)) {
            if known.insert(identity(chunk)) {
                stored += chunk.len() as u64;
            }
        }
    }
    stored
}

/// Equal for equal contents in equal order.
fn identity(chunk: &[Content]) -> (u64, u64, usize) {
    let fold = |(high, low): (u64, u64), content: &Content| {
        (mix(high.rotate_left(1) ^ (content.0 >> 64) as u64), mix(low.rotate_left(1) ^ content.0 as u64))
    };
    let (high, low) = chunk.iter().fold((0, 0), fold);
    (high, low, chunk.len())
}

/// A data area that only grows.
#[derive(Default)]
struct Store {
    /// The next free pbn, and blocks in use.
    next: u64,
    /// Who holds a content, ascending, [`HOLDERS_MAX`] at most.
    holders: HashMap<Content, Vec<Pbn>>,
}

impl Store {
    fn store(&mut self, content: Content) -> Pbn {
        let pbn = Pbn(self.next);
        self.next += 1;
        let holders = self.holders.entry(content).or_default();
        if holders.len() < HOLDERS_MAX {
            holders.push(pbn);
        }
        pbn
    }

    /// Every block that has a holder is shared.
    fn place_each(&mut self, contents: &[Content]) {
        for content in contents {
            if !self.holders.contains_key(content) {
                self.store(*content);
            }
        }
    }

    /// Runs of at least so many blocks are shared, and the last `end_blocks` if all of them can be together.
    fn place_runs(&mut self, contents: &[Content], run_blocks_min: u32, end_blocks: usize) {
        let end = (end_blocks <= contents.len()).then(|| contents.len() - end_blocks);
        let shared_end = end.and_then(|at| self.whole_run(&contents[at..]));
        let (rest, end) = contents.split_at(shared_end.map_or(contents.len(), |blocks| contents.len() - blocks));
        debug_assert!(end.is_empty() || end.len() == end_blocks);
        // Where the blocks of this stretch lie so far.
        let mut placed: Vec<Pbn> = Vec::new();
        while placed.len() < rest.len() {
            let portion = &rest[placed.len()..rest.len().min(placed.len() + PORTION_BLOCKS)];
            let may_go_on = placed.len() + portion.len() < rest.len();
            let rule = RunRule { may_go_on, ..RunRule::of(run_blocks_min) };
            for (content, decision) in portion.iter().zip(self.decide(&placed, portion, rule)) {
                match decision {
                    Decision::Share(pbn) => placed.push(pbn),
                    Decision::Unknown | Decision::Refused => placed.push(self.store(*content)),
                    // It comes first in the next portion.
                    Decision::Open => break,
                }
            }
        }
    }

    /// The length of these contents, if they are there and lie together.
    fn whole_run(&self, contents: &[Content]) -> Option<usize> {
        if contents.is_empty() {
            return None;
        }
        let rule = RunRule::of(contents.len() as u32);
        let decisions = self.decide(&[], contents, rule);
        let is_shared = decisions.iter().all(|decision| matches!(decision, Decision::Share(_)));
        is_shared.then_some(contents.len())
    }

    /// What the detector says of a portion behind blocks that are placed already: a run that goes on behind them is as
    /// much longer.
    fn decide(&self, placed: &[Pbn], portion: &[Content], rule: RunRule) -> Vec<Decision> {
        let before = &placed[placed.len().saturating_sub(rule.run_blocks_min as usize - 1)..];
        let stays = before.iter().map(|pbn| Candidates { holders: std::slice::from_ref(pbn), current: Some(*pbn) });
        let holders = |content| self.holders.get(content).map_or(&[][..], Vec::as_slice);
        let found = portion.iter().map(|content| Candidates { holders: holders(content), current: None });
        let candidates: Vec<Candidates> = stays.chain(found).collect();
        detect(&candidates, rule).split_off(before.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncefs_toolbox::Random;

    const SMALL: EffectivePolicy =
        EffectivePolicy { is_inline: false, is_later: true, limit: ShareLimit::Runs(1), shares_ends: false };
    const BIG: EffectivePolicy = EffectivePolicy { limit: ShareLimit::Runs(64), shares_ends: true, ..SMALL };
    const ALONE: EffectivePolicy = EffectivePolicy { is_later: false, ..SMALL };

    fn file(file: u64, numbers: impl IntoIterator<Item = u64>) -> FileContents {
        let contents = numbers.into_iter().map(Content::numbered).collect();
        FileContents { file, stretches: vec![(0, contents)] }
    }

    fn stored(files: &[FileContents], effective_policy: EffectivePolicy) -> u64 {
        stored_blocks(files, |_| effective_policy)
    }

    #[test]
    fn small_chunks_keep_each_content_once() {
        let mut random = Random::mixed(3);
        let files: Vec<FileContents> =
            (0..50).map(|n| file(n, (0..100).map(|_| random.scaled(2_000)).collect::<Vec<_>>())).collect();
        let contents = files.iter().flat_map(|file| &file.stretches[0].1).collect::<HashSet<_>>();
        assert_eq!(stored(&files, SMALL), contents.len() as u64);
    }

    #[test]
    fn whole_files_and_ends_are_shared_whatever_their_length() {
        for blocks in [1, 10, 63, 64, 65, 100, 128, 5_000] {
            let files = [file(1, 0..blocks), file(2, 0..blocks)];
            assert_eq!((stored(&files, BIG), chunked_blocks(&files)), (blocks, blocks), "{blocks} blocks");
            let longer = [file(1, 0..blocks), file(2, (0..blocks).chain([9_999]))];
            assert_eq!(chunked_blocks(&longer), blocks + blocks % 64 + 1, "{blocks} blocks and one more");
        }
    }

    #[test]
    fn an_end_is_shared_as_a_whole_or_not() {
        let base = file(1, 0..100);
        let same_end = file(2, (1_000..1_064).chain(10..40));
        assert_eq!(stored(&[base.clone(), same_end], BIG), 164);
        let other_end = file(2, (1_000..1_064).chain(10..39).chain([5_000]));
        assert_eq!(stored(&[base, other_end], BIG), 194);
    }

    #[test]
    fn short_pieces_are_refused_and_long_runs_found_wherever_they_begin() {
        let base = file(1, 0..4_000);
        let pieces = file(2, (0..8).flat_map(|n| (n * 400..n * 400 + 16).chain([10_000 + n])).chain(20_000..20_056));
        assert_eq!(stored(&[base.clone(), pieces], BIG), 4_000 + 192);
        // Across the portions, and not at borders of 64.
        let shifted = file(2, [10_000].into_iter().chain(5..3_900).chain(20_000..20_056));
        assert_eq!(shifted.blocks() % 64, 48);
        assert_eq!(stored(&[base.clone(), shifted.clone()], BIG), 4_000 + 57);
        assert_eq!(chunked_blocks(&[base, shifted]), 4_000 + 1 + 3_895 + 56);
    }

    #[test]
    fn the_rest_of_a_run_that_portions_cut_is_shared_however_short() {
        let base = file(1, 0..2_000);
        let cut = file(2, (0..1_030).chain(10_000..10_058));
        assert_eq!(cut.blocks() % 64, 0);
        assert_eq!(stored(&[base, cut], BIG), 2_058);
    }

    #[test]
    fn a_file_that_is_left_alone_neither_shares_nor_is_shared_with() {
        let files = [file(1, 0..100), file(2, 0..100), file(3, 0..100)];
        let treat = |number| if number == 1 { ALONE } else { SMALL };
        assert_eq!(stored_blocks(&files, treat), 200);
        assert_eq!(stored(&files, ALONE), 300);
    }

    #[test]
    fn holes_cut_runs_and_chunks() {
        let contents = |numbers: std::ops::Range<u64>| numbers.map(Content::numbered).collect::<Vec<_>>();
        let holed =
            |number| FileContents { file: number, stretches: vec![(3, contents(0..40)), (100, contents(40..80))] };
        // The end, 12 blocks behind lbn 128, is shared; 28 before it and the 40 before the hole are not.
        assert_eq!(stored(&[holed(1), holed(2)], BIG), 80 + 40 + 28);
        assert_eq!(chunked_blocks(&[holed(1), holed(2)]), 80);
    }
}
