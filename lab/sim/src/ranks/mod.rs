//! Ranks and savings of a corpus in the shape of Selective's Table 6.

mod queues;
mod savings;

use std::time::Duration;

use oncefs_dedup::{
    BIG_RUN_BLOCKS, EffectivePolicy, FilePolicy, MountPolicy, Rank, RankRule, Ranks, ShareLimit, effective_policy,
};

use crate::contents::{FileContents, contents_of};
use crate::trace::{Recording, Source};
use oncefs_toolbox::Table;
use queues::Queues;
use savings::{chunked_blocks, stored_blocks};

const BLOCK_BYTES: f64 = 4_096.0;

/// The paper's mount: as in profile `selective`.
const PAPER: MountPolicy = MountPolicy { ranks: Ranks::Paper, run_blocks_min: Some(1), slowdown: None };
/// All files alike.
const SMALL: EffectivePolicy =
    EffectivePolicy { is_inline: false, is_later: true, limit: ShareLimit::Runs(1), shares_ends: false };
const BIG: EffectivePolicy = EffectivePolicy { limit: ShareLimit::Runs(BIG_RUN_BLOCKS), shares_ends: true, ..SMALL };

/// Shortest runs that are compared: iDedup's thresholds, and up to the paper's big chunk.
const RUNS: [u32; 6] = [1, 2, 4, 8, 16, BIG_RUN_BLOCKS];

/// A row of the paper's.
struct PaperRow {
    name: &'static str,
    files: u64,
    gb: f64,
    /// Percent of the files, by rank.
    ranks: [f64; 4],
    /// Percent saved: selective, small chunks, big chunks.
    saved: [f64; 3],
}

/// Tables 5 and 6.
const PAPER_ROWS: [PaperRow; 2] = [
    PaperRow {
        name: "Desktop (paper)",
        files: 50_000,
        gb: 42.0,
        ranks: [2.8, 5.9, 4.1, 87.2],
        saved: [14.3, 16.1, 11.2],
    },
    PaperRow {
        name: "Developer (paper)",
        files: 120_000,
        gb: 90.0,
        ranks: [0.9, 2.2, 1.2, 95.7],
        saved: [31.1, 32.8, 17.2],
    },
];

/// How files are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RanksOptions {
    /// The ranker's parameters.
    pub rule: RankRule,
    /// Time between the trace's last request and the moment whose ranks are told.
    pub after: Duration,
}

/// One corpus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankedCorpus {
    /// What it is called.
    pub name: String,
    /// Files that hold something, by rank.
    pub files: [u64; 4],
    /// Blocks that they hold, by rank.
    pub blocks: [u64; 4],
    /// Blocks in use, of that many.
    pub stored: Stored,
    /// The same by shortest run, all files alike.
    pub stored_by_run: Vec<StoredByRun>,
}

/// Blocks in use when all files share runs of a length and more, wherever they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredByRun {
    /// The shortest run that is shared.
    pub run_blocks_min: u32,
    /// Nothing shorter is shared.
    pub stored: u64,
    /// Whole files, and ends after the last full 64 blocks, are shared too.
    pub stored_with_ends: u64,
}

/// Blocks in use after dedup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Each file by its rank.
    pub selective: u64,
    /// The same, had all that was read been read at random.
    pub selective_at_random: u64,
    /// All files block by block.
    pub small: u64,
    /// All files in chunks of 64 blocks, as the paper cuts them.
    pub big: u64,
    /// All files in runs of 64 blocks and more, wherever they begin, and ends.
    pub runs: u64,
}

impl RankedCorpus {
    /// Ranks the files of a trace and deduplicates what they hold at its end.
    pub fn of(name: String, recording: &Recording, options: &RanksOptions) -> Self {
        let queues = ranked(recording, options);
        let contents = contents_of(recording);
        let (mut files, mut blocks) = ([0; 4], [0; 4]);
        for file in &contents {
            let rank = usize::from(queues.rank(file.file).number());
            files[rank] += 1;
            blocks[rank] += file.blocks();
        }
        let stored = Stored::of(&contents, &queues);
        let stored_by_run = RUNS.map(|run_blocks_min| StoredByRun::of(&contents, run_blocks_min)).to_vec();
        Self { name, files, blocks, stored, stored_by_run }
    }

    /// Percent of the blocks that are saved when so many are in use.
    fn saved_percent(&self, stored: u64) -> f64 {
        let all: u64 = self.blocks.iter().sum();
        100.0 * (1.0 - stored as f64 / all.max(1) as f64)
    }
}

impl Stored {
    fn of(contents: &[FileContents], queues: &Queues) -> Self {
        let treated = |rank| effective_policy(FilePolicy { rank, ..FilePolicy::default() }, PAPER);
        let at_random = |rank| if rank == Rank::Sequential { Rank::Random } else { rank };
        Self {
            selective: stored_blocks(contents, |file| treated(queues.rank(file))),
            selective_at_random: stored_blocks(contents, |file| treated(at_random(queues.rank(file)))),
            small: stored_blocks(contents, |_| SMALL),
            big: chunked_blocks(contents),
            runs: stored_blocks(contents, |_| BIG),
        }
    }
}

impl StoredByRun {
    fn of(contents: &[FileContents], run_blocks_min: u32) -> Self {
        let stored = |shares_ends| {
            let effective_policy = EffectivePolicy { limit: ShareLimit::Runs(run_blocks_min), shares_ends, ..SMALL };
            stored_blocks(contents, |_| effective_policy)
        };
        Self { run_blocks_min, stored: stored(false), stored_with_ends: stored(true) }
    }
}

/// Monitor and ranker, to the moment whose ranks are told.
fn ranked(recording: &Recording, options: &RanksOptions) -> Queues {
    let mut queues = Queues::new(options.rule);
    let mut source = recording.replay();
    let mut last = Duration::ZERO;
    while let Some(event) = source.next().expect("a recording has no bad line") {
        last = last.max(event.time());
        queues.note(&event);
    }
    queues.run_to(last + options.after);
    queues
}

/// One row per corpus, and the paper's below.
pub fn ranks_table(corpora: &[RankedCorpus]) -> Table {
    let head = [
        "corpus",
        "files",
        "GB",
        "files of rank 0 %",
        "1 %",
        "2 %",
        "3 %",
        "blocks of rank 0 %",
        "1 %",
        "2 %",
        "3 %",
        "saved: selective %",
        "small %",
        "big %",
        "runs of 64 %",
        "selective, all at random %",
    ];
    let mut table = Table::new(&head);
    for corpus in corpora {
        let Stored { selective, selective_at_random, small, big, runs } = corpus.stored;
        let (files, blocks): (u64, u64) = (corpus.files.iter().sum(), corpus.blocks.iter().sum());
        let of = |part: u64, all: u64| format!("{:.1}", 100.0 * part as f64 / all.max(1) as f64);
        let mut row = vec![corpus.name.clone(), files.to_string(), format!("{:.2}", blocks as f64 * BLOCK_BYTES / 1e9)];
        row.extend(corpus.files.map(|part| of(part, files)));
        row.extend(corpus.blocks.map(|part| of(part, blocks)));
        let saved = [selective, small, big, runs, selective_at_random];
        row.extend(saved.map(|stored| format!("{:.1}", corpus.saved_percent(stored))));
        table.row(row);
    }
    for PaperRow { name, files, gb, ranks, saved } in PAPER_ROWS {
        let mut row = vec![name.to_owned(), files.to_string(), format!("{gb:.2}")];
        row.extend(ranks.map(|percent| format!("{percent:.1}")));
        row.extend(std::iter::repeat_n("-".to_owned(), 4));
        row.extend(saved.map(|percent| format!("{percent:.1}")));
        row.extend(std::iter::repeat_n("-".to_owned(), 2));
        table.row(row);
    }
    table
}

/// Savings by shortest run, without and with ends.
pub fn runs_table(corpora: &[RankedCorpus]) -> Table {
    let runs = RUNS.map(|blocks| format!("runs of {blocks}"));
    let head: Vec<&str> = ["corpus", "shared"].into_iter().chain(runs.iter().map(String::as_str)).collect();
    let mut table = Table::new(&head);
    for corpus in corpora {
        let mut row = |what: &str, stored: fn(&StoredByRun) -> u64| {
            let saved = |by_run| format!("{:.2}", corpus.saved_percent(stored(by_run)));
            let cells = [corpus.name.clone(), what.to_owned()];
            table.row(cells.into_iter().chain(corpus.stored_by_run.iter().map(saved)).collect());
        };
        row("runs", |by_run| by_run.stored);
        row("and ends", |by_run| by_run.stored_with_ends);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Content, Event, Place, Read, Write};

    const DAY: u64 = 86_400;

    fn at(day: u64) -> Duration {
        Duration::from_secs(day * DAY)
    }

    /// Files 1 to 4 hold the same 200 blocks, file 5 only pieces of them, which ends in something new.
    fn recording() -> Recording {
        let mut recording = Recording::default();
        let whole: Vec<Content> = (0..200).map(Content::numbered).collect();
        let pieces: Vec<Content> =
            (0..20).flat_map(|n| (n * 10..n * 10 + 9).chain([1_000 + n])).map(Content::numbered).collect();
        let mut write = |day, file, contents: &[Content]| {
            recording.push(&Event::Write(Write { time: at(day), place: Place { file, lbn: 0 }, contents }));
        };
        (1..=3).for_each(|file| write(1, file, &whole));
        write(2, 5, &pieces);
        write(99, 4, &whole);
        for file in [2, 5] {
            let place = Place { file, lbn: 0 };
            recording.push(&Event::Read(Read { time: at(100), place, blocks: 200 }));
        }
        recording
    }

    fn ranked_after(days: u64) -> RankedCorpus {
        let options = RanksOptions { rule: RankRule::default(), after: at(days) };
        RankedCorpus::of("test".to_owned(), &recording(), &options)
    }

    #[test]
    fn ranks_are_those_of_the_moment_that_is_asked_for() {
        assert_eq!(ranked_after(0).files, [3, 0, 0, 2], "read and written lately: not judged yet");
        let later = ranked_after(2);
        assert_eq!((later.files, later.blocks), ([1, 2, 0, 2], [200, 400, 0, 400]));
        assert_eq!(ranked_after(14).files, [0, 0, 0, 5]);
    }

    #[test]
    fn savings_are_those_of_the_ranks() {
        let Stored { selective, selective_at_random, small, big, runs } = ranked_after(2).stored;
        // One copy of the whole, the new blocks of the pieces; file 4 is left alone, file 5 shares no piece of 9.
        assert_eq!((small, big, runs), (220, 400, 400));
        assert_eq!((selective, selective_at_random), (200 + 200 + 200, 200 + 20 + 200));
        let cold = ranked_after(14).stored;
        assert_eq!((cold.selective, cold.selective_at_random), (220, 220));
    }

    #[test]
    fn savings_fall_with_the_shortest_run_and_ends_keep_whole_files() {
        let by_run = ranked_after(2).stored_by_run;
        // Four files of 200 blocks, and one of pieces of 9 with something new behind each.
        assert_eq!(by_run.iter().map(|run| run.stored).collect::<Vec<_>>(), [220, 220, 220, 220, 400, 400]);
        assert_eq!(by_run.iter().map(|run| run.stored_with_ends).collect::<Vec<_>>(), [220, 220, 220, 220, 400, 400]);
        let mut recording = Recording::default();
        for file in [1, 2] {
            let contents: Vec<Content> = (0..3).map(Content::numbered).collect();
            recording.push(&Event::Write(Write { time: at(1), place: Place { file, lbn: 0 }, contents: &contents }));
        }
        let options = RanksOptions { rule: RankRule::default(), after: at(2) };
        let small = RankedCorpus::of("small".to_owned(), &recording, &options);
        let (four, table) = (small.stored_by_run[2], runs_table(&[small]).to_string());
        assert_eq!((four.run_blocks_min, four.stored, four.stored_with_ends), (4, 6, 3));
        assert!(table.contains("| small  |     runs |     50.00 |     50.00 |      0.00 |"), "{table}");
    }

    #[test]
    fn the_table_has_the_papers_rows_below_ours() {
        let table = ranks_table(&[ranked_after(2)]).to_string();
        let row = table.lines().nth(2).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        assert_eq!(cells[1..8], ["test", "5", "0.00", "20.0", "40.0", "0.0", "40.0"]);
        assert_eq!(cells[12..17], ["40.0", "78.0", "60.0", "60.0", "58.0"]);
        assert!(table.lines().nth(4).unwrap().starts_with("| Developer (paper)"));
    }
}
