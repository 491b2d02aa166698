//! iDedup (latency-aware, inline data deduplication for primary storage): figures 7 to 10 and section 5.7.

use super::experiment::Experiment;
use super::figure::{Claim, Field, Figure, Measure, Paper, Pick, Plot};
use Measure::{Difference, Of, Ratio};

static RESPONSE: Experiment = Experiment {
    name: "idedup-response",
    words: &[
        "fragmentation",
        "--parts=response",
        "--mixes=corporate",
        "--io=buffered,direct",
        "--thresholds=1,4,8,auto",
        "--throttled",
        "--replay-size={2048M:10M}",
        "--requests={200000:200}",
    ],
    minutes: 35.0,
};

static CACHE: Experiment = Experiment {
    name: "idedup-cache",
    words: &["fragmentation", "--parts=cache", "--replay-size={2048M:10M}", "--requests={200000:200}"],
    minutes: 8.0,
};

/// What a mount showed: through the kernel's cache, or around it, where the daemon sees each request.
macro_rules! buffered {
    ($mount:literal, $field:expr) => {
        Pick { experiment: &RESPONSE, list: "/response", keys: &[("mount", $mount), ("io", "Buffered")], field: $field }
    };
}

macro_rules! direct {
    ($mount:literal, $field:expr) => {
        Pick { experiment: &RESPONSE, list: "/response", keys: &[("mount", $mount), ("io", "Direct")], field: $field }
    };
}

macro_rules! cache {
    ($mount:literal, $field:expr) => {
        Pick { experiment: &CACHE, list: "/cache", keys: &[("mount", $mount)], field: $field }
    };
}

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

pub static PAPER: Paper = Paper {
    name: "idedup",
    title: "iDedup's evaluation, and ours",
    about: "iDedup replays two traces of a filer on three disks of 10,000 rotations. The traces are not public: ours is a \
            replay with Corporate's means (five reads of 10 KB to one write of 20 KB, 24 % of duplicates), in runs that \
            were chosen so that thresholds 4 and 8 keep what the paper says. **So figure 7 is of a twin that was fitted to \
            it**: it shows that our thresholds find what is there, not that others' data have it. The device is limited to \
            the slow disk. Mounts have `run_blocks_min` 1, 4, 8 and `auto`, beside two that do not deduplicate and are equal.",
    figures: &[
        Figure {
            number: "7",
            title: "Duplicates shared, by threshold and cache",
            note: "Blocks that became references as they were written, over those that threshold 1 shares with hints for all \
                   blocks: profile `idedup`, hints for 100, 50 and 25 % of the blocks.",
            claims: &[
                Claim::at_least(
                    "threshold 4, hints for all",
                    "74 %",
                    0.74,
                    Ratio(cache!("4, hints for 100 %", SHARED), cache!("1, hints for 100 %", SHARED)),
                ),
                Claim::at_least(
                    "threshold 4, hints for a quarter",
                    "66 %",
                    0.66,
                    Ratio(cache!("4, hints for 25 %", SHARED), cache!("1, hints for 100 %", SHARED)),
                )
                .because(PLACES),
                Claim::at_least(
                    "threshold 8, hints for all",
                    "13 of 24 %",
                    0.54,
                    Ratio(direct!("8", SHARED), direct!("1", SHARED)),
                ),
                Claim::above("auto", "-", 0.74, Ratio(direct!("auto", SHARED), direct!("1", SHARED))),
                Claim::absent("Engineering, threshold 4", "62 to 54 %", NO_ENGINEERING),
            ],
            plot: Plot::Bars {
                y_label: "shared, of all duplicates",
                names: &["threshold 1", "threshold 4"],
                groups: &[
                    ("all", &[Of(cache!("1, hints for 100 %", SHARED)), Of(cache!("4, hints for 100 %", SHARED))]),
                    ("half", &[Of(cache!("1, hints for 50 %", SHARED)), Of(cache!("4, hints for 50 %", SHARED))]),
                    ("a quarter", &[Of(cache!("1, hints for 25 %", SHARED)), Of(cache!("4, hints for 25 %", SHARED))]),
                ],
            },
        },
        Figure {
            number: "8",
            title: "Sizes of requests to the disk",
            note: "The reads of the replay again, on a cold mount: by how many percentage points more of the requests to the \
                   device are for up to 8 blocks than without deduplication.",
            claims: &[
                Claim::at_most("threshold 1", "+11", 11.0, Difference(buffered!("1", SMALL), buffered!("off", SMALL)))
                    .because(LAYOUT),
                Claim::at_most("threshold 8", "+2", 2.0, Difference(buffered!("8", SMALL), buffered!("off", SMALL)))
                    .because(LAYOUT),
                Claim::told(
                    "auto",
                    "-",
                    Difference(buffered!("auto", SMALL), buffered!("off", SMALL)),
                    "the paper has no such threshold",
                ),
                Claim::absent("Engineering, threshold 1", "+12", NO_ENGINEERING),
            ],
            plot: Plot::Curves {
                x_label: "up to so many blocks",
                y_label: "% of requests",
                xs: &SIZES,
                lines: &[
                    ("no dedup", buffered!("off", SMALL)),
                    ("8", buffered!("8", SMALL)),
                    ("4", buffered!("4", SMALL)),
                    ("1", buffered!("1", SMALL)),
                    ("auto", buffered!("auto", SMALL)),
                ],
            },
        },
        Figure {
            number: "9",
            title: "Response times",
            note: "Mean time of a request of the replay over that without deduplication: through the kernel's cache, as a \
                   client of a filer sees it, and around it. The last row shows how far two equal mounts are apart. The chart \
                   has the paper's axes the other way round.",
            claims: &[
                Claim::at_most("threshold 8", "+2 %", 1.02, Ratio(buffered!("8", MEAN), buffered!("off", MEAN))),
                Claim::at_most("threshold 8, direct", "+2 %", 1.02, Ratio(direct!("8", MEAN), direct!("off", MEAN))),
                Claim::at_most("threshold 1", "+13 %", 1.13, Ratio(buffered!("1", MEAN), buffered!("off", MEAN))),
                Claim::at_most("threshold 1, direct", "+13 %", 1.13, Ratio(direct!("1", MEAN), direct!("off", MEAN))),
                Claim::below("auto, direct", "-", 1.02, Ratio(direct!("auto", MEAN), direct!("off", MEAN))),
                Claim::absent("Engineering, threshold 1 and 8", "+1.8 and +4 %", NO_ENGINEERING),
                Claim::told(
                    "no deduplication again, direct",
                    "-",
                    Ratio(direct!("off again", MEAN), direct!("off", MEAN)),
                    "the same mount twice",
                ),
            ],
            plot: Plot::Curves {
                x_label: "% of requests",
                y_label: "took at most so many us",
                xs: &SHARES,
                lines: &[
                    ("no dedup", direct!("off", TIMES)),
                    ("8", direct!("8", TIMES)),
                    ("1", direct!("1", TIMES)),
                    ("auto", direct!("auto", TIMES)),
                ],
            },
        },
        Figure {
            number: "10",
            title: "Processor",
            note: "The daemon's mean share of all processors, in percentage points more than without deduplication, and its \
                   processor seconds over those. The paper says \"a difference of about 2 %\" of the mean utilisation, which \
                   can be read both ways.",
            claims: &[
                Claim::at_most(
                    "utilisation, threshold 8",
                    "2 %",
                    2.0,
                    Difference(direct!("8", USED), direct!("off", USED)),
                ),
                Claim::at_most(
                    "seconds, threshold 8",
                    "2 %",
                    1.02,
                    Ratio(direct!("8", SECONDS), direct!("off", SECONDS)),
                ),
                Claim::told(
                    "seconds, no deduplication again",
                    "-",
                    Ratio(direct!("off again", SECONDS), direct!("off", SECONDS)),
                    "the same mount twice",
                ),
                Claim::absent("Engineering, threshold 8", "4 %", NO_ENGINEERING),
            ],
            plot: Plot::Bars {
                y_label: "daemon's share of the processors, %",
                names: &["mean"],
                groups: &[
                    ("off", &[Of(direct!("off", USED))]),
                    ("8", &[Of(direct!("8", USED))]),
                    ("4", &[Of(direct!("4", USED))]),
                    ("1", &[Of(direct!("1", USED))]),
                    ("auto", &[Of(direct!("auto", USED))]),
                    ("again", &[Of(direct!("off again", USED))]),
                ],
            },
        },
        Figure {
            number: "Section 5.7",
            title: "Hits of the read cache, by memory for hints",
            note: "Profile `idedup`, the daemon with eight times the memory that hints for all blocks need, as in the paper. The \
                   paper sees no effect of the hints' size: the bound is one percentage point.",
            claims: &[
                Claim::below(
                    "hints for all less hints for a quarter, threshold 4",
                    "no effect",
                    1.0,
                    Difference(cache!("4, hints for 25 %", HITS), cache!("4, hints for 100 %", HITS)),
                ),
                Claim::told(
                    "hits, threshold 4, hints for all, %",
                    "93 %",
                    Of(cache!("4, hints for 100 %", HITS)),
                    "it is that of the replay's working set",
                ),
            ],
            plot: Plot::Bars {
                y_label: "hits, %",
                names: &["threshold 1", "threshold 4"],
                groups: &[
                    ("all", &[Of(cache!("1, hints for 100 %", HITS)), Of(cache!("4, hints for 100 %", HITS))]),
                    ("half", &[Of(cache!("1, hints for 50 %", HITS)), Of(cache!("4, hints for 50 %", HITS))]),
                    ("a quarter", &[Of(cache!("1, hints for 25 %", HITS)), Of(cache!("4, hints for 25 %", HITS))]),
                ],
            },
        },
    ],
};
