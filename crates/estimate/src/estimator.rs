//! Combines the parts: takes blocks, file by file, and estimates the saving of a volume.

use oncefs_dedup::{BLOCK_BYTES, Tag};

use crate::compression::Compression;
use crate::contents::{Content, Contents};
use crate::estimate::{Duplicates, Estimate, Found, Read};
use crate::file_shares::FileShares;
use crate::hint_memory::HintMemories;
use crate::model::{Batch, Model, Rule};
use crate::run_lengths::RunLengths;

/// Blocks of a file that are decided together, as in the worker.
const BATCH_BLOCKS: usize = 8_192;
/// One part in this many of the memory is for contents that a model stores more than once.
const MORE_SHARE: u64 = 4;
const MORE_BYTES_MIN: u64 = 1 << 20;
/// Bytes of a content in a list of a model, which may have as much spare room.
const LIST_BYTES: u64 = 6;
/// The error is the range in which 95 of 100 samples lie.
const DEVIATIONS: f64 = 1.96;

/// Options of an estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Bytes of memory for the contents seen.
    pub memory_bytes_max: u64,
    /// The approximate number of blocks. Only the sizes of samples depend on it.
    pub blocks_expected: u64,
    /// The volumes to estimate.
    pub rules: Vec<Rule>,
}

/// A volume that takes blocks and stores none.
pub struct Estimator {
    read: Read,
    contents: Contents,
    /// A volume for each rule that may refuse a duplicate, as long as every content is known.
    models: Vec<Model>,
    memory_bytes_max: u64,
    more_bytes_max: u64,
    batch: Batch,
    runs: RunLengths,
    /// Blocks seen, and duplicates among them, while every content was known.
    run_blocks: u64,
    run_duplicates: u64,
    is_exact: bool,
    file_duplicates: u64,
    file_shares: FileShares,
    hint_memories: HintMemories,
    compression: Compression,
}

impl Estimator {
    /// An estimator without blocks.
    pub fn new(options: &Options) -> Self {
        let more_bytes_max = (options.memory_bytes_max / MORE_SHARE).max(MORE_BYTES_MIN);
        let bytes = options.memory_bytes_max.saturating_sub(more_bytes_max);
        let mut rules: Vec<Rule> = Vec::new();
        for rule in options.rules.iter().filter(|rule| !rule.shares_all()) {
            if !rules.contains(rule) {
                rules.push(*rule);
            }
        }
        Self {
            read: Read::default(),
            contents: Contents::new(bytes, bytes_per_content(rules.iter())),
            models: rules.into_iter().map(Model::new).collect(),
            memory_bytes_max: options.memory_bytes_max,
            more_bytes_max,
            batch: Batch::default(),
            runs: RunLengths::default(),
            run_blocks: 0,
            run_duplicates: 0,
            is_exact: true,
            file_duplicates: 0,
            file_shares: FileShares::default(),
            hint_memories: HintMemories::new(options.blocks_expected),
            compression: Compression::new(options.blocks_expected),
        }
    }

    /// Begins a file of about `blocks` blocks.
    pub fn begin_file(&mut self, blocks: u64) {
        self.read.files += 1;
        self.file_duplicates = 0;
        self.batch.begin(self.contents.known() as u32);
        self.models.iter_mut().for_each(|model| model.begin_file(blocks));
    }

    /// Adds the file's next block, which is not all zeros.
    pub fn add(&mut self, tag: Tag, block: &[u8]) {
        assert_eq!(block.len(), BLOCK_BYTES, "bytes of a block");
        self.read.blocks += 1;
        self.hint_memories.add(tag);
        let content = self.contents.meet(tag);
        if self.is_exact && self.contents.sample() > 1 {
            self.end_exact();
        }
        let Some(content) = content else { return };
        if content.before == 0 {
            self.compression.add(tag, self.contents.sample(), block);
        } else {
            self.file_duplicates += u64::from(self.contents.sample());
        }
        if self.is_exact {
            self.follow(content, tag);
        }
    }

    /// Adds blocks that are holes or zeros.
    pub fn add_zeros(&mut self, blocks: u64) {
        self.read.zero_blocks += blocks;
    }

    /// Ends the file. Returns the number of its duplicates, as far as they are known.
    pub fn end_file(&mut self) -> u64 {
        if self.is_exact {
            self.decide(true);
            self.runs.end_run();
        }
        self.file_shares.add(self.file_duplicates);
        self.file_duplicates
    }

    fn follow(&mut self, content: Content, tag: Tag) {
        self.run_blocks += 1;
        self.run_duplicates += u64::from(content.before > 0);
        self.runs.add(content);
        self.batch.contents.push(content);
        self.batch.tags.push(tag);
        if self.batch.contents.len() == BATCH_BLOCKS {
            self.decide(false);
        }
    }

    fn decide(&mut self, is_end: bool) {
        self.batch.find_twins();
        self.models.iter_mut().for_each(|model| model.add(&self.batch, is_end));
        self.batch.begin(self.contents.known() as u32);
        let more_bytes: u64 = self.models.iter().map(Model::bytes_beside).sum();
        if more_bytes > self.more_bytes_max || self.models.iter().any(Model::is_full) {
            self.end_exact();
        }
    }

    /// Stops following runs, because memory cannot hold every content.
    fn end_exact(&mut self) {
        self.is_exact = false;
        self.runs.end_run();
        self.batch = Batch::default();
        self.models.iter_mut().for_each(Model::forget);
    }

    /// The saving with one of the rules.
    ///
    /// # Panics
    ///
    /// The rule is not in the [`Options`].
    pub fn found(&self, rule: &Rule) -> Found {
        let duplicates = self.duplicates();
        if rule.shares_all() {
            let percent = duplicates.percent;
            return Found {
                percent,
                percent_min: percent,
                percent_max: percent,
                percent_all_hints: percent,
                is_of_all_blocks: true,
            };
        }
        let model = self.models.iter().find(|model| model.rule() == rule).expect("there is a model for each rule");
        if !self.is_exact {
            // The runs are not known, so the rule may refuse any of them.
            let percent = duplicates.percent;
            let percents = Found {
                percent,
                percent_min: 0.0,
                percent_max: percent,
                percent_all_hints: percent,
                is_of_all_blocks: false,
            };
            return percents;
        }
        let of_duplicates = |found: f64| duplicates.percent * found / self.run_duplicates.max(1) as f64;
        let mut found = model.found();
        found.sort_unstable();
        let at = |place: usize| found[place] as f64;
        // A few samples may name nothing of the contents that repeat most. They say little about the others, so the figure
        // is the median and not the mean.
        let middle = (at((found.len() - 1) / 2) + at(found.len() / 2)) / 2.0;
        Found {
            percent: of_duplicates(middle),
            percent_min: of_duplicates(at(0)),
            percent_max: of_duplicates(at(found.len() - 1)),
            percent_all_hints: of_duplicates(model.shared() as f64),
            is_of_all_blocks: true,
        }
    }

    fn duplicates(&self) -> Duplicates {
        let blocks = self.read.blocks.max(1) as f64;
        let (known, sample) = (self.contents.known() as f64, f64::from(self.contents.sample()));
        let distinct = (known * sample).min(self.read.blocks as f64);
        // Each content is in the sample with the same probability, independent of the others.
        let error = DEVIATIONS * (known * (1.0 - 1.0 / sample)).sqrt() * sample;
        let duplicates = self.read.blocks as f64 - distinct;
        Duplicates {
            blocks: duplicates.round() as u64,
            percent: 100.0 * duplicates / blocks,
            error_points: 100.0 * error / blocks,
            sample: self.contents.sample(),
        }
    }

    /// About the memory that holds all contents so far.
    fn exact_memory_bytes(&self, contents: u64) -> u64 {
        let bytes = Contents::bytes_for(contents, bytes_per_content(self.models.iter().map(Model::rule)));
        let with_more = (bytes + bytes / (MORE_SHARE - 1)).max(bytes + MORE_BYTES_MIN);
        if self.is_exact { with_more } else { with_more.max(2 * self.memory_bytes_max) }
    }

    /// The estimate so far.
    pub fn estimate(&self) -> Estimate {
        let duplicates = self.duplicates();
        Estimate {
            read: self.read,
            duplicates,
            exact_memory_bytes: self.exact_memory_bytes(self.read.blocks - duplicates.blocks),
            hint_memory: self.hint_memories.result(),
            run_lengths: self.runs.classes(),
            run_blocks: self.run_blocks,
            files_with_duplicates: self.file_shares.with_duplicates(),
            file_shares: self.file_shares.shares(),
            compression: self.compression.result(self.read.blocks - duplicates.blocks, self.read.blocks),
            compressed_contents: self.compression.contents(),
        }
    }
}

/// Bytes that the models keep for each content: where it is stored and, if hints are a sample, when it was written.
fn bytes_per_content<'a>(rules: impl Iterator<Item = &'a Rule>) -> u64 {
    rules.map(|rule| if rule.hint_sample == 1 { LIST_BYTES } else { 2 * LIST_BYTES }).sum()
}

#[cfg(test)]
mod tests {
    use oncefs_dedup::{PieceCost, ShareLimit, Slowdown};
    use oncefs_toolbox::Random;
    use oncefs_toolbox::counts::gate_or_drill;

    use super::*;

    const BUDGET: Rule =
        Rule { limit: ShareLimit::Budget(Slowdown(100)), piece_cost: PieceCost::EXPECTED, hint_sample: 1 };
    const ALL: Rule = Rule { limit: ShareLimit::Runs(1), ..BUDGET };
    const BLOCK: [u8; BLOCK_BYTES] = [7; BLOCK_BYTES];

    fn estimator(memory_bytes_max: u64, blocks_expected: u64) -> Estimator {
        Estimator::new(&Options { memory_bytes_max, blocks_expected, rules: vec![BUDGET, ALL, BUDGET] })
    }

    /// Files of 1 to 200 blocks: parts of earlier data, new data, and single contents that repeat often. Returns the
    /// numbers of blocks and contents.
    fn add_files(estimator: &mut Estimator, files: u64, random: &mut Random) -> (u64, u64) {
        let (mut stored, mut popular): (Vec<u64>, Vec<u64>) = (Vec::new(), Vec::new());
        (0..50).for_each(|_| popular.push(random.word()));
        let mut blocks = 0;
        for _ in 0..files {
            let len = 1 + random.below(200);
            estimator.begin_file(len);
            let repeats = random.one_in(3) && stored.len() > 200;
            let from = random.index(stored.len().max(201) - 200);
            for at in 0..len as usize {
                let tag = match repeats {
                    true => stored[from + at],
                    false if random.one_in(10) => random.pick(&popular),
                    false => random.word(),
                };
                estimator.add(Tag(tag), &BLOCK);
                if !repeats {
                    stored.push(tag);
                }
            }
            estimator.end_file();
            blocks += len;
        }
        stored.sort_unstable();
        stored.dedup();
        (blocks, stored.len() as u64)
    }

    #[test]
    fn with_enough_memory_every_duplicate_is_counted() {
        let mut estimator = estimator(64 << 20, 40_000);
        let (blocks, contents) = add_files(&mut estimator, 400, &mut Random::new(5));
        let estimate = estimator.estimate();
        assert_eq!((estimate.read.blocks, estimate.duplicates.blocks), (blocks, blocks - contents));
        assert_eq!((estimate.duplicates.error_points, estimate.duplicates.sample), (0.0, 1));
        let of_runs: u64 = estimate.run_lengths.iter().map(|class| class.blocks).sum();
        assert_eq!((of_runs, estimate.run_blocks), (blocks - contents, blocks));
        assert_eq!(estimator.models.len(), 1, "one model for equal rules, and none where nothing is refused");
        let (budget, all) = (estimator.found(&BUDGET), estimator.found(&ALL));
        assert!(budget.is_of_all_blocks && budget.percent <= all.percent && budget.percent > 0.9 * all.percent);
        assert_eq!(estimate.compression.len(), 2);
    }

    #[test]
    fn with_little_memory_the_estimate_is_within_its_error_and_within_two_points() {
        // The drill uses 100 GB.
        let files = gate_or_drill(4_000, 245_000);
        for seed in 0..4 {
            let mut estimator = estimator(1 << 20, 100 * files);
            let (blocks, contents) = add_files(&mut estimator, files, &mut Random::new(seed));
            let Duplicates { percent, error_points, sample, .. } = estimator.estimate().duplicates;
            let exact = 100.0 * (blocks - contents) as f64 / blocks as f64;
            println!(
                "{blocks} blocks, one content in {sample}: {percent:.3} % +-{error_points:.3}, exact {exact:.3} %"
            );
            assert!(sample >= 16, "one in {sample}");
            let off = (percent - exact).abs();
            assert!(off <= 2.0 && off <= 1.5 * error_points, "{percent} +-{error_points}, not {exact}");
            let budget = estimator.found(&BUDGET);
            assert!(
                !budget.is_of_all_blocks && budget.percent_min == 0.0 && (budget.percent - exact).abs() <= 2.0,
                "{budget:?}, not {exact}"
            );
            let classes = estimator.estimate().run_lengths;
            assert!(classes.iter().all(|class| class.percent_of_duplicates <= 100.0));
        }
    }

    #[test]
    fn a_sample_that_names_nothing_of_what_repeats_does_not_change_the_figure() {
        let sample = Rule { hint_sample: 64, ..ALL };
        let mut estimator =
            Estimator::new(&Options { memory_bytes_max: 1 << 20, blocks_expected: 0, rules: vec![sample] });
        // Copies of the same 63 blocks, none of which one of the 64 samples names.
        for _ in 0..100 {
            estimator.begin_file(63);
            (1..64).for_each(|tag| estimator.add(Tag(tag), &BLOCK));
            estimator.end_file();
        }
        let found = estimator.found(&sample);
        assert_eq!((found.percent, found.percent_max, found.percent_min), (99.0, 99.0, 0.0));
    }

    #[test]
    fn what_a_model_stores_more_than_once_has_its_own_bound_within_a_file_too() {
        let long_runs = Rule { limit: ShareLimit::Runs(4), ..BUDGET };
        let options = Options { memory_bytes_max: 1 << 20, blocks_expected: 0, rules: vec![long_runs, ALL] };
        let mut estimator = Estimator::new(&options);
        let mut random = Random::new(1);
        let blocks = 4 * BATCH_BLOCKS as u64;
        estimator.begin_file(1);
        // Single duplicates that are not adjacent.
        for at in 0..blocks {
            estimator
                .add(Tag(if at % 2 == 0 { (at * 7_919) % 10_000 * 2 } else { random.below(4_000) * 2 + 1 }), &BLOCK);
        }
        let more_bytes: u64 = estimator.models.iter().map(Model::bytes_beside).sum();
        assert!(!estimator.is_exact && more_bytes == 0, "{more_bytes} bytes");
        estimator.end_file();
        let Duplicates { blocks: duplicates, sample, .. } = estimator.estimate().duplicates;
        assert!(sample == 1 && blocks - duplicates <= 9_000, "{duplicates} of {blocks}, one in {sample}");
        assert!(!estimator.found(&long_runs).is_of_all_blocks && estimator.found(&ALL).is_of_all_blocks);
    }

    #[test]
    fn nothing_at_all_is_nothing_saved() {
        let mut estimator = estimator(1 << 20, 0);
        estimator.begin_file(8);
        estimator.add_zeros(8);
        assert_eq!(estimator.end_file(), 0);
        let estimate = estimator.estimate();
        assert_eq!((estimate.read.zero_blocks, estimate.duplicates.percent), (8, 0.0));
        assert!(estimate.compression.is_empty() && estimate.file_shares.is_empty());
        assert_eq!(estimator.found(&BUDGET).percent, 0.0);
    }
}
