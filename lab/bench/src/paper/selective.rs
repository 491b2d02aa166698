//! Selective (selective data deduplication by how files are used): tables 4 and 6, figures 8 to 17.

use super::experiment::Experiment;
use super::figure::{Claim, Field, Figure, Measure, Paper, Pick, Plot};
use Measure::{Of, Ratio};

static HIGH: Experiment = Experiment {
    name: "selective-high",
    words: &["selective", "--parts=synthetic", "--workloads=high", "--bytes={2560M:16M}"],
    minutes: 45.0,
};

static LOW: Experiment = Experiment {
    name: "selective-low",
    words: &["selective", "--parts=synthetic", "--workloads=low", "--bytes={2560M:16M}"],
    minutes: 45.0,
};

static DESKTOP: Experiment = Experiment {
    name: "selective-desktop",
    words: &["selective", "--parts=real", "--desktop=/usr", "--bytes={20480M:16M}"],
    minutes: 70.0,
};

static OVERHEAD: Experiment = Experiment {
    name: "selective-overhead",
    words: &["overhead", "--parts=utilities,webserver", "--tree-files={20000:60}", "--seconds={20:1}"],
    minutes: 12.0,
};

static BESIDE: Experiment = Experiment {
    name: "selective-beside",
    words: &["overhead", "--parts=beside", "--backlog={2560M:16M}", "--seconds={20:1}"],
    minutes: 8.0,
};

/// A mount of a synthetic workload, by the share of files that are read in order.
macro_rules! synthetic {
    ($experiment:ident, $case:literal, $percent:literal, $field:expr) => {
        Pick {
            experiment: &$experiment,
            list: "/synthetic/readings",
            keys: &[("case", $case), ("sequential_percent", $percent)],
            field: $field,
        }
    };
}

macro_rules! counted {
    ($experiment:ident, $field:expr) => {
        Pick { experiment: &$experiment, list: "/synthetic/counted", keys: &[], field: $field }
    };
}

macro_rules! desktop {
    ($case:literal, $field:expr) => {
        Pick { experiment: &DESKTOP, list: "/real/readings", keys: &[("case", $case)], field: $field }
    };
}

/// Time of a program with ranks over that without.
macro_rules! longer {
    ($list:literal, $step:literal) => {
        Ratio(
            Pick {
                experiment: &OVERHEAD,
                list: $list,
                keys: &[("step", $step), ("mount", "off")],
                field: Field::At("/per_second"),
            },
            Pick {
                experiment: &OVERHEAD,
                list: $list,
                keys: &[("step", $step), ("mount", "on")],
                field: Field::At("/per_second"),
            },
        )
    };
}

/// Time of a load beside the worker at work over that without.
macro_rules! beside {
    ($step:literal, $state:literal) => {
        Ratio(
            Pick {
                experiment: &BESIDE,
                list: "/beside",
                keys: &[("step", $step), ("mount", "off")],
                field: Field::At("/per_second"),
            },
            Pick {
                experiment: &BESIDE,
                list: "/beside",
                keys: &[("step", $step), ("mount", $state)],
                field: Field::At("/per_second"),
            },
        )
    };
}

/// One case over another, for the same share.
macro_rules! over {
    ($experiment:ident, $one:literal, $other:literal, $percent:literal, $field:expr) => {
        Ratio(synthetic!($experiment, $one, $percent, $field), synthetic!($experiment, $other, $percent, $field))
    };
}

/// Speed of files read in order, for a chart.
macro_rules! speeds {
    ($percent:literal) => {
        &[
            Of(synthetic!(HIGH, "None", $percent, SPEED)),
            Of(synthetic!(HIGH, "Big", $percent, SPEED)),
            Of(synthetic!(HIGH, "Selective", $percent, SPEED)),
            Of(synthetic!(HIGH, "Small", $percent, SPEED)),
        ]
    };
}

const ALL_TIME: Field = Field::At("/all/seconds");
const ORDERED_TIME: Field = Field::At("/sequential/seconds");
const SPEED: Field = Field::Per("/sequential/bytes", "/sequential/seconds");
const WITHIN: Field = Field::At("/sequential/percent_within");
const SAVED: Field = Field::Less("/saved/mapped_bytes", "/saved/used_bytes");
const TIMES_MS: [f64; 13] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3];
const SIZES_KIB: [f64; 9] = [4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 32768.0, 2097152.0];
const INPUT: &str = "it is an input of the generator";
const PIECES: &str = "a file that shares is read in pieces, also in big ones; the fewer duplicates there are, the more a single \
                      piece stands out";

pub static PAPER: Paper = Paper {
    name: "selective",
    title: "Selective's evaluation, and ours",
    about: "Selective is a FUSE file system on ext2; it is compared with itself without deduplication, with big chunks (256 \
            KB) for all files and with small ones (4 KB). Ours is oncefs with profile `selective`, the same four ways \
            ([Selective](../selective.md) says how), on a device that is limited to the slow disk. Native is the mount that \
            does not deduplicate.",
    figures: &[
        Figure {
            number: "Table 4",
            title: "The synthetic workloads",
            note: "A program that does not know the generator counts the duplicates in the files.",
            claims: &[
                Claim::told(
                    "duplicates in small chunks, #1",
                    "70.3 %",
                    Of(counted!(HIGH, Field::Per("/2/small_duplicate_bytes", "/2/bytes"))),
                    INPUT,
                ),
                Claim::told(
                    "duplicates in big chunks, #1",
                    "20 %",
                    Of(counted!(HIGH, Field::Per("/2/big_duplicate_bytes", "/2/bytes"))),
                    INPUT,
                ),
                Claim::told(
                    "duplicates in small chunks, #2",
                    "20.5 %",
                    Of(counted!(LOW, Field::Per("/2/small_duplicate_bytes", "/2/bytes"))),
                    INPUT,
                ),
                Claim::told(
                    "duplicates in big chunks, #2",
                    "5.1 %",
                    Of(counted!(LOW, Field::Per("/2/big_duplicate_bytes", "/2/bytes"))),
                    INPUT,
                ),
                Claim::told(
                    "bytes, MB",
                    "2.5 GB",
                    Of(counted!(HIGH, Field::Megabytes("/2/bytes"))),
                    "it follows the scale",
                ),
            ],
            plot: Plot::None,
        },
        Figure {
            number: "8",
            title: "Sizes of the synthetic files",
            note: "The paper's text gives the range, 4 KB to 32 MB, and about 5,000 files; the rest is a picture.",
            claims: &[Claim::told(
                "files",
                "about 5,000",
                Of(counted!(HIGH, Field::At("/2/files"))),
                "it follows the scale",
            )],
            plot: Plot::Curves {
                x_label: "KiB",
                y_label: "files up to this size",
                xs: &SIZES_KIB,
                lines: &[("files", counted!(HIGH, Field::At("/2/files_up_to")))],
            },
        },
        Figure {
            number: "9",
            title: "Response times, many duplicates",
            note: "Times of whole files on workload #1: read all, 90 to 10 % of them in order, then those alone. The text says \
                   what is alike; alike is taken as 10 % more at most. The chart is of the files read in order where they are \
                   10 %.",
            claims: &[
                Claim::below(
                    "all files, 90 % in order, to big chunks",
                    "similar",
                    1.1,
                    over!(HIGH, "Selective", "Big", "90", ALL_TIME),
                )
                .because(PIECES),
                Claim::below(
                    "all files, 10 % in order, to small chunks",
                    "similar",
                    1.1,
                    over!(HIGH, "Selective", "Small", "10", ALL_TIME),
                )
                .because(PIECES),
                Claim::below(
                    "files read in order, 10 %, to small chunks",
                    "high performance",
                    1.0,
                    over!(HIGH, "Selective", "Small", "10", ORDERED_TIME),
                )
                .because(PIECES),
                Claim::below(
                    "files read in order, 10 %, to big chunks",
                    "as big chunks",
                    1.1,
                    over!(HIGH, "Selective", "Big", "10", ORDERED_TIME),
                )
                .because(PIECES),
            ],
            plot: Plot::Curves {
                x_label: "at most so many ms",
                y_label: "% of files",
                xs: &TIMES_MS,
                lines: &[
                    ("native", synthetic!(HIGH, "None", "10", WITHIN)),
                    ("big", synthetic!(HIGH, "Big", "10", WITHIN)),
                    ("selective", synthetic!(HIGH, "Selective", "10", WITHIN)),
                    ("small", synthetic!(HIGH, "Small", "10", WITHIN)),
                ],
            },
        },
        Figure {
            number: "10",
            title: "Response times, few duplicates",
            note: "The same on workload #2.",
            claims: &[
                Claim::below(
                    "all files, 90 % in order, to big chunks",
                    "similar",
                    1.1,
                    over!(LOW, "Selective", "Big", "90", ALL_TIME),
                )
                .because(PIECES),
                Claim::below(
                    "all files, 10 % in order, to small chunks",
                    "similar",
                    1.1,
                    over!(LOW, "Selective", "Small", "10", ALL_TIME),
                )
                .because(PIECES),
                Claim::below(
                    "files read in order, 10 %, to small chunks",
                    "high performance",
                    1.0,
                    over!(LOW, "Selective", "Small", "10", ORDERED_TIME),
                )
                .because(PIECES),
                Claim::below(
                    "files read in order, 10 %, to native",
                    "as native",
                    1.031,
                    over!(LOW, "Selective", "None", "10", ORDERED_TIME),
                )
                .because(PIECES),
            ],
            plot: Plot::Curves {
                x_label: "at most so many ms",
                y_label: "% of files",
                xs: &TIMES_MS,
                lines: &[
                    ("native", synthetic!(LOW, "None", "10", WITHIN)),
                    ("big", synthetic!(LOW, "Big", "10", WITHIN)),
                    ("selective", synthetic!(LOW, "Selective", "10", WITHIN)),
                    ("small", synthetic!(LOW, "Small", "10", WITHIN)),
                ],
            },
        },
        Figure {
            number: "11",
            title: "Speed of files read in order, and savings",
            note: "Workload #1. The ideal savings are those of small chunks.",
            claims: &[
                Claim::at_least(
                    "speed to native, 10 % in order",
                    "97 %",
                    0.97,
                    over!(HIGH, "Selective", "None", "10", SPEED),
                )
                .because(PIECES),
                Claim::at_least(
                    "savings to the ideal, 10 % in order",
                    "86 %",
                    0.86,
                    over!(HIGH, "Selective", "Small", "10", SAVED),
                ),
                Claim::above(
                    "savings to big chunks, 90 % in order",
                    "more",
                    1.0,
                    over!(HIGH, "Selective", "Big", "90", SAVED),
                ),
                Claim::above(
                    "speed to small chunks, 10 % in order",
                    "more",
                    1.0,
                    over!(HIGH, "Selective", "Small", "10", SPEED),
                )
                .because(PIECES),
            ],
            plot: Plot::Bars {
                y_label: "bytes a second, files read in order",
                names: &["native", "big", "selective", "small"],
                groups: &[
                    ("90:10", speeds!("90")),
                    ("75:25", speeds!("75")),
                    ("50:50", speeds!("50")),
                    ("25:75", speeds!("25")),
                    ("10:90", speeds!("10")),
                ],
            },
        },
        Figure {
            number: "12",
            title: "Sizes of real files",
            note: "A desktop's programs and libraries (`/usr` of the machine), not the paper's 42 GB of a user's files.",
            claims: &[Claim::told(
                "files",
                "about 50,000",
                Of(Pick { experiment: &DESKTOP, list: "/real/counted", keys: &[], field: Field::At("/1/files") }),
                "other files, as many as the scale allows",
            )],
            plot: Plot::Curves {
                x_label: "KiB",
                y_label: "files up to this size",
                xs: &SIZES_KIB,
                lines: &[(
                    "files",
                    Pick { experiment: &DESKTOP, list: "/real/counted", keys: &[], field: Field::At("/1/files_up_to") },
                )],
            },
        },
        Figure {
            number: "13",
            title: "Response times of all real files",
            note: "All are read in order, cold.",
            claims: &[
                Claim::below(
                    "to small chunks",
                    "close",
                    1.1,
                    Ratio(desktop!("Selective", ALL_TIME), desktop!("Small", ALL_TIME)),
                )
                .because(PIECES),
                Claim::told(
                    "to native",
                    "-",
                    Ratio(desktop!("Selective", ALL_TIME), desktop!("None", ALL_TIME)),
                    "the text gives none",
                ),
            ],
            plot: Plot::Curves {
                x_label: "at most so many ms",
                y_label: "% of files",
                xs: &TIMES_MS,
                lines: &[
                    ("native", desktop!("None", Field::At("/all/percent_within"))),
                    ("big", desktop!("Big", Field::At("/all/percent_within"))),
                    ("selective", desktop!("Selective", Field::At("/all/percent_within"))),
                    ("small", desktop!("Small", Field::At("/all/percent_within"))),
                ],
            },
        },
        Figure {
            number: "Table 6",
            title: "Savings on real files",
            note: "The paper's desktop: 14.3 % by rank, 16.1 % in small chunks, 11.2 % in big ones. Ours are other files, so their \
                   ratios are compared.",
            claims: &[
                Claim::at_least(
                    "to small chunks",
                    "14.3 of 16.1 %",
                    0.888,
                    Ratio(desktop!("Selective", SAVED), desktop!("Small", SAVED)),
                ),
                Claim::at_least(
                    "to big chunks",
                    "14.3 of 11.2 %",
                    1.277,
                    Ratio(desktop!("Selective", SAVED), desktop!("Big", SAVED)),
                ),
                Claim::absent("developer", "31.1 of 32.8 %", "there are no files of a developer's"),
            ],
            plot: Plot::Bars {
                y_label: "bytes saved",
                names: &["big", "selective", "small"],
                groups: &[(
                    "desktop",
                    &[Of(desktop!("Big", SAVED)), Of(desktop!("Selective", SAVED)), Of(desktop!("Small", SAVED))],
                )],
            },
        },
        Figure {
            number: "14",
            title: "Response times of real files read in order",
            note: "The files that were read in order before, which have rank 1.",
            claims: &[Claim::below(
                "to big chunks",
                "almost the same",
                1.1,
                Ratio(desktop!("Selective", ORDERED_TIME), desktop!("Big", ORDERED_TIME)),
            )
            .because(PIECES)],
            plot: Plot::Curves {
                x_label: "at most so many ms",
                y_label: "% of files",
                xs: &TIMES_MS,
                lines: &[
                    ("native", desktop!("None", WITHIN)),
                    ("big", desktop!("Big", WITHIN)),
                    ("selective", desktop!("Selective", WITHIN)),
                    ("small", desktop!("Small", WITHIN)),
                ],
            },
        },
        Figure {
            number: "15",
            title: "What ranks cost programs",
            note: "Time with ranks over time without, on mounts with no worker: the paper's programs on a generated source tree, \
                   and a load like Filebench's web server.",
            claims: &[
                Claim::at_most("tar", "less than 7 %", 1.07, longer!("/utilities", "tar")),
                Claim::at_most("untar", "less than 7 %", 1.07, longer!("/utilities", "untar")),
                Claim::at_most("grep", "less than 7 %", 1.07, longer!("/utilities", "grep")),
                Claim::at_most("cp", "less than 7 %", 1.07, longer!("/utilities", "cp")),
                Claim::at_most("web server", "less than 7 %", 1.07, longer!("/webserver", "webserver")),
                Claim::absent("Netperf", "none", "it makes no request to a file system"),
            ],
            plot: Plot::Bars {
                y_label: "time with ranks over time without",
                names: &["ranks"],
                groups: &[
                    ("tar", &[longer!("/utilities", "tar")]),
                    ("untar", &[longer!("/utilities", "untar")]),
                    ("grep", &[longer!("/utilities", "grep")]),
                    ("cp", &[longer!("/utilities", "cp")]),
                    ("web", &[longer!("/webserver", "webserver")]),
                ],
            },
        },
        Figure {
            number: "16",
            title: "A web server beside the worker",
            note: "Time of the web server's load beside a worker that has something to do, over that beside a paused one. The \
                   paper calls it negligible on several cores; the bound is 5 %.",
            claims: &[
                Claim::below("worker waits until idle", "negligible", 1.05, beside!("webserver", "idle")),
                Claim::told(
                    "worker told to work now",
                    "negligible with more cores than threads",
                    beside!("webserver", "now"),
                    "it was told not to give way, and two cores are fewer than the threads",
                ),
            ],
            plot: Plot::Bars {
                y_label: "time over that beside a paused worker",
                names: &["web server"],
                groups: &[("idle", &[beside!("webserver", "idle")]), ("now", &[beside!("webserver", "now")])],
            },
        },
        Figure {
            number: "17",
            title: "A busy processor beside the worker",
            note: "A load that computes stands in for Netperf, which issues no request to a file system.",
            claims: &[
                Claim::below("worker waits until idle", "negligible", 1.05, beside!("CPU-bound", "idle")),
                Claim::told(
                    "worker told to work now",
                    "negligible with three or more cores",
                    beside!("CPU-bound", "now"),
                    "it was told not to give way, and there are two cores",
                ),
            ],
            plot: Plot::Bars {
                y_label: "time over that beside a paused worker",
                names: &["computing"],
                groups: &[("idle", &[beside!("CPU-bound", "idle")]), ("now", &[beside!("CPU-bound", "now")])],
            },
        },
    ],
};
