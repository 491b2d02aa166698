//! One volume in its final state: the blocks that it stores, and their places. All hints are known, and the worker's
//! backlog is empty.

use hashbrown::HashMap;
use oncefs_dedup::{
    Allowance, Blocks, Candidates, DecidedRun, Decision, FilePieces, HOLDERS_MAX, Pbn, PieceCost, RunRule, ShareLimit,
    Succession, Tag, detect, detect_within, runs_of,
};

use crate::contents::Content;

/// Stands for an earlier block of the same batch. Larger than any pbn, so that stored blocks come first.
const IN_BATCH: u64 = 1 << 62;
/// Blocks with this many references cost a reader nothing (`engine`, `policy/account_from_map.rs`).
const REFS_FREE_MIN: u32 = 256;
/// Bytes of a further holder of a content, with its part of the table.
const HOLDER_BYTES: u64 = 64;

/// The rule by which a volume shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// The limit on sharing in each file.
    pub limit: ShareLimit,
    /// The cost of a piece on its device.
    pub piece_cost: PieceCost,
    /// Hints name one content in this many, at most 64. Runs without a named content are missed.
    pub hint_sample: u32,
}

impl Rule {
    /// Whether every duplicate is shared, so that no decision is needed.
    pub fn shares_all(&self) -> bool {
        matches!(self.limit, ShareLimit::Runs(0 | 1)) && self.hint_sample == 1
    }
}

/// Blocks of one file in order, without zeros, as all models see them.
#[derive(Default)]
pub struct Batch {
    pub contents: Vec<Content>,
    pub tags: Vec<Tag>,
    /// The number of the first content that is new in this batch.
    pub first_new: u32,
    /// Earlier blocks of the batch with the same content; empty if none has one.
    twins: Vec<Vec<Pbn>>,
}

impl Batch {
    /// Begins an empty batch.
    pub fn begin(&mut self, first_new: u32) {
        self.contents.clear();
        self.tags.clear();
        self.twins.clear();
        self.first_new = first_new;
    }

    /// Finds blocks that repeat each other, after all blocks were added.
    pub fn find_twins(&mut self) {
        if self.contents.iter().all(|content| content.before == 0) {
            return;
        }
        let mut places: HashMap<u32, Vec<Pbn>> = HashMap::new();
        let mut new: Vec<u32> = Vec::new();
        self.twins.resize(self.contents.len(), Vec::new());
        for (at, content) in self.contents.iter().enumerate() {
            if content.before == 0 {
                new.push(at as u32);
                continue;
            }
            // A new content is noted only if it repeats, because most do not.
            let first = content.number.checked_sub(self.first_new).and_then(|place| new.get(place as usize));
            let first = first.map(|first| Pbn(IN_BATCH + u64::from(*first)));
            let places = places.entry(content.number).or_insert_with(|| first.into_iter().collect());
            self.twins[at].clone_from(places);
            if places.len() < HOLDERS_MAX {
                places.push(Pbn(IN_BATCH + at as u64));
            }
        }
    }

    fn has_twin_or_holder(&self) -> bool {
        !self.twins.is_empty()
    }
}

/// A volume.
pub struct Model {
    rule: Rule,
    /// The first place of each content.
    first: Vec<u32>,
    /// Further places of a content, ascending.
    more: HashMap<u32, Vec<u32>>,
    more_count: u64,
    /// The next free block.
    next: u32,
    /// The next free block at the beginning of the present file.
    next_of_file: u32,
    account: FilePieces,
    /// The block that the file's last block so far refers to, if it is shared.
    before: Option<Pbn>,
    shared: u64,
    /// The duplicates found by each set of contents that hints could name: those whose tags have one remainder.
    found: Vec<FoundBy>,
    /// Files so far.
    files: u64,
    /// The last write of each content, as the number of its block among all written ones. A sample misses duplicates
    /// and stores them again, so its files lie in this order.
    written_at: Vec<u32>,
    written: u32,
}

/// A shared run of a batch, and the remainders of its tags as bits.
struct NamedRun {
    first: usize,
    blocks: usize,
    named: u64,
}

/// The duplicates that one sample of hints finds.
#[derive(Clone, Default)]
struct FoundBy {
    /// Blocks shared.
    blocks: u64,
    succession: Succession,
    /// Blocks that may hold the next block, if it is the file's first.
    places: Vec<Pbn>,
}

impl FoundBy {
    /// Counts the runs of a batch that are found: those with a content that the hints name, and the first run of a file
    /// if an earlier write put it after the previous file's end. `written_at`: the last write of each block, if there
    /// was one; not known if there are no runs.
    fn count(&mut self, file: u64, blocks: Blocks, written_at: &[Option<Pbn>], runs: &[NamedRun], remainder: usize) {
        let mut shared_end = None;
        for NamedRun { first, blocks, named } in runs {
            let is_behind = || *first == 0 && written_at[0].is_some_and(|at| self.places.contains(&at));
            if named >> remainder & 1 == 1 || is_behind() {
                self.blocks += *blocks as u64;
                shared_end = written_at[first + blocks - 1].filter(|_| first + blocks == written_at.len());
            }
        }
        self.places.clear();
        self.succession.end(file, blocks, shared_end);
    }
}

impl Model {
    /// An empty volume.
    pub fn new(rule: Rule) -> Self {
        assert!((1..=64).contains(&rule.hint_sample), "one content in {}", rule.hint_sample);
        Self {
            rule,
            first: Vec::new(),
            more: HashMap::new(),
            more_count: 0,
            next: 1,
            next_of_file: 1,
            account: FilePieces::default(),
            before: None,
            shared: 0,
            found: vec![FoundBy::default(); rule.hint_sample as usize],
            files: 0,
            written_at: Vec::new(),
            written: 0,
        }
    }

    /// The rule of the volume.
    pub fn rule(&self) -> &Rule {
        &self.rule
    }

    /// Bytes of memory beyond each content's first place.
    pub fn bytes_beside(&self) -> u64 {
        self.more_count * HOLDER_BYTES
    }

    /// Whether block numbers are used up, after 8 TiB.
    pub fn is_full(&self) -> bool {
        self.next > u32::MAX / 2
    }

    /// Ends the model: keeps only the results.
    pub fn forget(&mut self) {
        (self.first, self.more, self.more_count) = (Vec::new(), HashMap::new(), 0);
        self.written_at = Vec::new();
    }

    /// Blocks shared, for each sample of contents that hints may name. One number if hints name all.
    pub fn found(&self) -> Vec<u64> {
        if self.rule.hint_sample == 1 { vec![self.shared] } else { self.found.iter().map(|by| by.blocks).collect() }
    }

    /// Blocks shared if hints name every content.
    pub fn shared(&self) -> u64 {
        self.shared
    }

    /// Begins a file of about `blocks` blocks.
    pub fn begin_file(&mut self, blocks: u64) {
        self.account = FilePieces::default();
        self.account.grow(blocks, 0);
        self.before = None;
        self.next_of_file = self.next;
        self.files += 1;
        if self.rule.hint_sample > 1 {
            self.found.iter_mut().for_each(|by| by.succession.begin_into(&mut by.places));
        }
    }

    /// Adds the file's next blocks. `is_end`: they are its last ones.
    pub fn add(&mut self, batch: &Batch, is_end: bool) {
        if !batch.has_twin_or_holder() {
            let next = self.next + batch.contents.len() as u32;
            self.first.extend(self.next..next);
            self.next = next;
            self.before = None;
            self.count_found(batch, &[]);
            return;
        }
        let decisions = self.decide(batch, is_end);
        self.count_found(batch, &decisions);
        let mut places: Vec<Pbn> = Vec::with_capacity(decisions.len());
        for (content, decision) in batch.contents.iter().zip(decisions) {
            let place = match decision {
                Decision::Share(pbn) if pbn.0 >= IN_BATCH => places[(pbn.0 - IN_BATCH) as usize],
                Decision::Share(pbn) => pbn,
                _ => {
                    places.push(self.store(content.number));
                    continue;
                }
            };
            self.shared += 1;
            places.push(place);
        }
        let is_shared = places.last().is_some_and(|last| last.0 + 1 != u64::from(self.next));
        self.before = places.last().copied().filter(|_| is_shared);
    }

    fn decide(&mut self, batch: &Batch, is_end: bool) -> Vec<Decision> {
        let before: &[Pbn] = self.before.as_slice();
        let mut holders: Vec<Pbn> = Vec::with_capacity(2 * batch.contents.len());
        let mut ends: Vec<usize> = Vec::with_capacity(batch.contents.len());
        for (content, twins) in batch.contents.iter().zip(&batch.twins) {
            let begin = holders.len();
            if content.number < batch.first_new {
                holders.push(Pbn(u64::from(self.first[content.number as usize])));
                let more = self.more.get(&content.number).into_iter().flatten();
                holders.extend(more.map(|pbn| Pbn(u64::from(*pbn))));
            }
            let room = HOLDERS_MAX.saturating_sub(holders.len() - begin);
            holders.extend(twins.iter().take(room));
            ends.push(holders.len());
        }
        let mut begin = 0;
        let of_batch = ends.iter().map(|end| {
            let holders = &holders[begin..*end];
            begin = *end;
            Candidates { holders, current: None }
        });
        let of_before = before.iter().map(|pbn| Candidates { holders: before, current: Some(*pbn) });
        let candidates: Vec<Candidates> = of_before.chain(of_batch).collect();
        let decisions = match self.rule.limit {
            ShareLimit::Runs(blocks) => detect(&candidates, RunRule::of(blocks)),
            ShareLimit::Budget(slowdown) => {
                let own = u64::from(self.next_of_file);
                let is_free = |at: usize, pbn: Pbn| {
                    let is_popular = |at: usize| batch.contents[at].before >= REFS_FREE_MIN;
                    pbn.0 >= own || at.checked_sub(before.len()).is_some_and(is_popular)
                };
                let within = detect_within(
                    &candidates,
                    &Allowance {
                        pieces_max: self.account.left_so_far(slowdown, self.rule.piece_cost),
                        gap_blocks_max: self.rule.piece_cost.gap_blocks_max(),
                        is_end,
                        is_free: &is_free,
                    },
                );
                self.account.grow(0, within.pieces);
                within.decisions
            }
        };
        decisions[before.len()..].to_vec()
    }

    fn store(&mut self, number: u32) -> Pbn {
        let place = self.next;
        self.next += 1;
        if number as usize == self.first.len() {
            self.first.push(place);
        } else {
            let more = self.more.entry(number).or_default();
            if more.len() + 1 < HOLDERS_MAX {
                more.push(place);
                self.more_count += 1;
            }
        }
        Pbn(u64::from(place))
    }

    /// A run is found if the hints name one of its contents. The named contents depend on the volume's secret: all
    /// remainders are equally likely, so each remainder stands for a volume.
    fn count_found(&mut self, batch: &Batch, decisions: &[Decision]) {
        let sample = u64::from(self.rule.hint_sample);
        if sample == 1 {
            return;
        }
        let runs = runs_of(decisions).into_iter().filter(|run| matches!(run.decision, Decision::Share(_)));
        let runs: Vec<NamedRun> = runs
            .map(|DecidedRun { first, blocks, .. }| {
                let tags = &batch.tags[first..first + blocks];
                NamedRun { first, blocks, named: tags.iter().fold(0, |named, tag| named | 1 << (tag.0 % sample)) }
            })
            .collect();
        let looked_at = if runs.is_empty() { &[] } else { &batch.contents[..] };
        let written_at: Vec<Option<Pbn>> = looked_at.iter().map(|content| self.written_at(content)).collect();
        let blocks = Blocks(batch.contents.len() as u64);
        for (remainder, by) in self.found.iter_mut().enumerate() {
            by.count(self.files, blocks, &written_at, &runs, remainder);
        }
        for content in &batch.contents {
            match self.written_at.get_mut(content.number as usize) {
                Some(at) => *at = self.written,
                None => self.written_at.push(self.written),
            }
            // Beyond 16 TiB the number wraps, and a wrong place is only a wrong guess.
            self.written = self.written.wrapping_add(1);
        }
    }

    fn written_at(&self, content: &Content) -> Option<Pbn> {
        self.written_at.get(content.number as usize).map(|at| Pbn(u64::from(*at)))
    }
}

#[cfg(test)]
mod tests {
    use oncefs_dedup::Slowdown;

    use super::*;
    use crate::contents::Contents;

    fn rule(limit: ShareLimit) -> Rule {
        Rule { limit, piece_cost: PieceCost::EXPECTED, hint_sample: 1 }
    }

    /// Blocks shared if files with these contents are written in sequence.
    fn found(rule: Rule, files: &[Vec<u64>]) -> Vec<u64> {
        let (mut model, mut contents, mut batch) = (Model::new(rule), Contents::new(1 << 20, 8), Batch::default());
        for file in files {
            model.begin_file(file.len() as u64);
            batch.begin(contents.known() as u32);
            batch.tags = file.iter().map(|tag| Tag(*tag)).collect();
            batch.contents = batch.tags.iter().map(|tag| contents.meet(*tag).unwrap()).collect();
            batch.find_twins();
            model.add(&batch, true);
        }
        model.found()
    }

    #[test]
    fn without_a_limit_every_content_is_stored_once() {
        let files = [vec![1, 2, 3, 2], vec![3, 9, 1], vec![9, 9, 9, 4]];
        assert_eq!(found(rule(ShareLimit::Runs(1)), &files), [1 + 2 + 3]);
    }

    #[test]
    fn short_runs_are_refused_and_a_copy_of_what_was_refused_is_shared_as_a_whole() {
        let scattered: Vec<u64> = (0..40).map(|n| if n % 2 == 0 { n } else { 1_000 + n }).collect();
        let files = [(0..40).collect(), scattered.clone(), scattered];
        assert_eq!(found(rule(ShareLimit::Runs(4)), &files), [40], "the third file is one run of the second");
        assert_eq!(found(rule(ShareLimit::Runs(1)), &files), [20 + 40]);
    }

    #[test]
    fn a_budget_pays_for_as_many_pieces_as_the_blocks_bring() {
        let scattered: Vec<u64> = (0..100).map(|n| if n % 2 == 0 { n } else { 1_000 + n }).collect();
        let files = [(0..100).collect(), scattered];
        let of_slowdown = |percent| found(rule(ShareLimit::Budget(Slowdown(percent))), &files)[0];
        assert_eq!(of_slowdown(100), 50);
        assert_eq!(of_slowdown(10), 10, "a tenth of 1 + 100 blocks");
    }

    #[test]
    fn of_a_sample_of_hints_each_remainder_is_a_volume() {
        let hints = Rule { hint_sample: 4, ..rule(ShareLimit::Runs(1)) };
        assert_eq!(found(hints, &[vec![4, 8, 1, 3], vec![1], vec![4, 8]]), [2, 1, 0, 0]);
    }

    #[test]
    fn a_file_is_found_behind_the_file_before_though_no_hint_names_it() {
        let hints = Rule { hint_sample: 4, ..rule(ShareLimit::Runs(1)) };
        let tree = [vec![1, 5], vec![2], vec![3, 7], vec![4]];
        let copied: Vec<Vec<u64>> = tree.iter().chain(&tree).cloned().collect();
        // Each volume finds the contents that its hints name, and the blocks after them.
        assert_eq!(found(hints, &copied), [1, 6, 4, 3]);
    }
}
