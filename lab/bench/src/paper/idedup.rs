//! iDedup (latency-aware, inline data deduplication for primary storage): sections 3.1 and 5.7, figures 7 to 10.

use std::sync::LazyLock;

use super::experiment::Experiment;
use super::figure::{Claim, Field, Figure, Measure, POWERS_IN_KIB, Paper, Pick, Plot};
use Measure::{Difference, Of, Ratio};

static RESPONSE: Experiment = Experiment {
    name: "idedup-response",
    words: &[
        "fragmentation",
        "--parts=response",
        "--mixes=corporate",
        "--io=buffered,direct",
        "--thresholds=1,2,4,8,16,32,auto",
        "--throttled",
        "--replay-size={2048M:10M}",
        "--requests={200000:200}",
    ],
    minutes: 52.0,
};

static CACHE: Experiment = Experiment {
    name: "idedup-cache",
    words: &["fragmentation", "--parts=cache", "--replay-size={2048M:10M}", "--requests={200000:200}"],
    minutes: 8.0,
};

static BLOCKS: Experiment = Experiment {
    name: "idedup-blocks",
    words: &["selective", "--parts=blocks", "--desktop=/usr", "--bytes={20480M:16M}"],
    minutes: 3.0,
};

const SHARED: Field = Field::Per("/duplicates/1", "/duplicates/0");
/// Requests of up to 1, 2, 4 and 8 blocks.
const SMALL: Field = Field::PercentUpTo("/sizes/classes", 3);
const MEAN: Field = Field::At("/all/mean");
const TIMES: Field = Field::At("/all/percentiles");
const USED: Field = Field::Mean("/cpu_percents");
const SECONDS: Field = Field::At("/cpu_seconds");
const HITS: Field = Field::PercentUpTo("/lookups", 0);
const SHARES: [f64; 8] = [10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9];
const SIZES: [f64; 9] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

const PLACES: &str = "the replay repeats runs of files from anywhere, without Corporate's locality in time, so what a small \
                      memory has lost is not found";
const LAYOUT: &str = "half of the replay's reads are of the files written last, and every fourth block of those is a \
                      duplicate, so sharing breaks up more of what is read than in the paper's trace";
const NO_ENGINEERING: &str = "the replay has the duplicates of Corporate";

const MORE_BLOCKS: &str = "the paper says only that larger thresholds save too little";
const SAME: &str = "the same mount twice";
const LINES: [(&str, &str); 5] = [("no dedup", "off"), ("8", "8"), ("4", "4"), ("1", "1"), ("auto", "auto")];
const COVERED: [(&str, &str); 3] = [("all", "100"), ("half", "50"), ("a quarter", "25")];

/// What a mount showed: through the kernel's cache, or around it, where the daemon sees each request.
fn response(mount: &str, io: &str, field: Field) -> Pick {
    Pick::of(&RESPONSE, "/response", &[("mount", mount), ("io", io)], field)
}

fn buffered(mount: &str, field: Field) -> Pick {
    response(mount, "Buffered", field)
}

fn direct(mount: &str, field: Field) -> Pick {
    response(mount, "Direct", field)
}

/// What a mount with hints for so many percent of the blocks showed.
fn cache(threshold: &str, percent: &str, field: Field) -> Pick {
    Pick::of(&CACHE, "/cache", &[("mount", &format!("{threshold}, hints for {percent} %"))], field)
}

/// Thresholds 1 and 4, by the memory for hints.
fn by_memory(y_label: &'static str, field: Field) -> Plot {
    Plot::bars(y_label, &["threshold 1", "threshold 4"], &COVERED, |percent| {
        ["1", "4"].map(|threshold| Of(cache(threshold, percent, field))).to_vec()
    })
}

fn section_3_1() -> Figure {
    let duplicates =
        |kib: &str| Pick::of(&BLOCKS, "/chunks/counted", &[("block_kib", kib)], Field::At("/duplicate_bytes"));
    let claim = |kib: &'static str| {
        let what = format!("duplicates in blocks of {kib} KB, to 4 KB");
        Claim::told(what, "less than linear", Ratio(duplicates(kib), duplicates("4")), "it is a property of the files")
    };
    Figure {
        number: "Section 3.1",
        title: "Larger blocks",
        note: "The paper simulates larger blocks on its traces: what they save falls less than linearly. Blocks of oncefs have \
               4 KiB, so a program counts the duplicates of larger ones in files that were not made for it, `/usr` of the \
               machine. Linear is a half for twice the size.",
        claims: ["8", "16", "32", "64"].into_iter().map(claim).collect(),
        plot: Plot::bars("duplicates to those of 4 KB, by KiB of a block", &["to 4 KB"], &POWERS_IN_KIB, |kib| {
            vec![Ratio(duplicates(kib), duplicates("4"))]
        }),
    }
}

fn figure_7() -> Figure {
    let to_all = |threshold: &str, percent: &str| Ratio(cache(threshold, percent, SHARED), cache("1", "100", SHARED));
    let to_1 = |threshold: &str| Ratio(direct(threshold, SHARED), direct("1", SHARED));
    Figure {
        number: "7",
        title: "Duplicates shared, by threshold and cache",
        note: "Blocks that became references as they were written, over those that threshold 1 shares with hints for all \
               blocks: profile `idedup`, hints for 100, 50 and 25 % of the blocks.",
        claims: vec![
            Claim::at_least("threshold 4, hints for all", "74 %", 0.74, to_all("4", "100")),
            Claim::at_least("threshold 4, hints for a quarter", "66 %", 0.66, to_all("4", "25")).because(PLACES),
            Claim::told("threshold 2, hints for all", "-", to_1("2"), "the text gives none"),
            Claim::at_least("threshold 8, hints for all", "13 of 24 %", 0.54, to_1("8")),
            Claim::told("threshold 16, hints for all", "-", to_1("16"), MORE_BLOCKS),
            Claim::told("threshold 32, hints for all", "-", to_1("32"), MORE_BLOCKS),
            Claim::above("auto", "-", 0.74, to_1("auto")),
            Claim::absent("Engineering, threshold 4", "62 to 54 %", NO_ENGINEERING),
        ],
        plot: by_memory("shared, of all duplicates", SHARED),
    }
}

fn figure_8() -> Figure {
    let more = |mount: &str| Difference(buffered(mount, SMALL), buffered("off", SMALL));
    Figure {
        number: "8",
        title: "Sizes of requests to the disk",
        note: "The reads of the replay again, on a cold mount: by how many percentage points more of the requests to the \
               device are for up to 8 blocks than without deduplication.",
        claims: vec![
            Claim::at_most("threshold 1", "+11", 11.0, more("1")).because(LAYOUT),
            Claim::told("threshold 2", "-", more("2"), "the text gives none"),
            Claim::told("threshold 4", "-", more("4"), "the text gives none"),
            Claim::at_most("threshold 8", "+2", 2.0, more("8")).because(LAYOUT),
            Claim::told("threshold 16", "-", more("16"), "the paper has no such threshold"),
            Claim::told("threshold 32", "-", more("32"), "the paper has no such threshold"),
            Claim::told("auto", "-", more("auto"), "the paper has no such threshold"),
            Claim::absent("Engineering, threshold 1", "+12", NO_ENGINEERING),
        ],
        plot: Plot::curves(("up to so many blocks", "% of requests"), &SIZES, &LINES, |mount| buffered(mount, SMALL)),
    }
}

fn figure_9() -> Figure {
    let buffered = |mount: &str| Ratio(buffered(mount, MEAN), buffered("off", MEAN));
    let to_off = |mount: &str| Ratio(direct(mount, MEAN), direct("off", MEAN));
    Figure {
        number: "9",
        title: "Response times",
        note: "Mean time of a request of the replay over that without deduplication: through the kernel's cache, as a \
               client of a filer sees it, and around it. The last row shows how far two equal mounts are apart. The chart \
               has the paper's axes the other way round.",
        claims: vec![
            Claim::at_most("threshold 8", "+2 %", 1.02, buffered("8")),
            Claim::at_most("threshold 8, direct", "+2 %", 1.02, to_off("8")),
            Claim::at_most("threshold 1", "+13 %", 1.13, buffered("1")),
            Claim::at_most("threshold 1, direct", "+13 %", 1.13, to_off("1")),
            Claim::below("threshold 2, direct", "between 1 and 8", 1.13, to_off("2")),
            Claim::below("threshold 4, direct", "between 1 and 8", 1.13, to_off("4")),
            Claim::told("threshold 16, direct", "-", to_off("16"), "the paper has no such threshold"),
            Claim::told("threshold 32, direct", "-", to_off("32"), "the paper has no such threshold"),
            Claim::below("auto, direct", "-", 1.02, to_off("auto")),
            Claim::absent("Engineering, threshold 1 and 8", "+1.8 and +4 %", NO_ENGINEERING),
            Claim::told("no deduplication again, direct", "-", to_off("off again"), SAME),
        ],
        plot: Plot::curves(
            ("% of requests", "took at most so many us"),
            &SHARES,
            &[("no dedup", "off"), ("8", "8"), ("1", "1"), ("auto", "auto")],
            |mount| direct(mount, TIMES),
        ),
    }
}

fn figure_10() -> Figure {
    let seconds = |mount: &str| Ratio(direct(mount, SECONDS), direct("off", SECONDS));
    const MOUNTS: [(&str, &str); 9] = [
        ("off", "off"),
        ("32", "32"),
        ("16", "16"),
        ("8", "8"),
        ("4", "4"),
        ("2", "2"),
        ("1", "1"),
        ("auto", "auto"),
        ("again", "off again"),
    ];
    Figure {
        number: "10",
        title: "Processor",
        note: "The daemon's mean share of all processors, in percentage points more than without deduplication, and its \
               processor seconds over those. The paper says \"a difference of about 2 %\" of the mean utilisation, which \
               can be read both ways.",
        claims: vec![
            Claim::at_most("utilisation, threshold 8", "2 %", 2.0, Difference(direct("8", USED), direct("off", USED))),
            Claim::at_most("seconds, threshold 8", "2 %", 1.02, seconds("8")),
            Claim::told("seconds, no deduplication again", "-", seconds("off again"), SAME),
            Claim::absent("Engineering, threshold 8", "4 %", NO_ENGINEERING),
        ],
        plot: Plot::bars("daemon's share of the processors, %", &["mean"], &MOUNTS, |mount| {
            vec![Of(direct(mount, USED))]
        }),
    }
}

fn section_5_7() -> Figure {
    Figure {
        number: "Section 5.7",
        title: "Hits of the read cache, by memory for hints",
        note: "Profile `idedup`, the daemon with eight times the memory that hints for all blocks need, as in the paper. The \
               paper sees no effect of the hints' size: the bound is one percentage point.",
        claims: vec![
            Claim::below(
                "hints for all less hints for a quarter, threshold 4",
                "no effect",
                1.0,
                Difference(cache("4", "25", HITS), cache("4", "100", HITS)),
            ),
            Claim::told(
                "hits, threshold 4, hints for all, %",
                "93 %",
                Of(cache("4", "100", HITS)),
                "it is that of the replay's working set",
            ),
        ],
        plot: by_memory("hits, %", HITS),
    }
}

pub static PAPER: LazyLock<Paper> = LazyLock::new(|| Paper {
    name: "idedup",
    title: "iDedup's evaluation, and ours",
    about: "iDedup replays two traces of a filer on three disks of 10,000 rotations. The traces are not public: ours is a \
            replay with Corporate's means (five reads of 10 KB to one write of 20 KB, 24 % of duplicates), in runs that \
            were chosen so that thresholds 4 and 8 keep what the paper says. **So figure 7 is of a twin that was fitted to \
            it**: it shows that our thresholds find what is there, not that others' data have it. The device is limited to \
            the slow disk. Mounts have `run_blocks_min` 1 to 32 and `auto`, beside two that do not deduplicate and are equal.",
    figures: vec![section_3_1(), figure_7(), figure_8(), figure_9(), figure_10(), section_5_7()],
});
