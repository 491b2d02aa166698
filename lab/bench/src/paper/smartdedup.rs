//! SmartDedup (smart in-line and out-of-line deduplication for smart devices): figures 3 to 12, beside ext4.

use super::experiment::Experiment;
use super::figure::{Claim, Field, Figure, Measure, Paper, Pick, Plot};
use Measure::{Of, Ratio, RatioOfSums, Saved};

const EXT4: &str = "ext4";
const ONCEFS: &str = "oncefs=*";

/// The phone: 2 GB, hints for a tenth of the fingerprints at 10 bytes each.
static PHONE: Experiment = Experiment {
    name: "smartdedup-phone",
    words: &[
        "--throttled",
        "--workloads=threaded-write",
        "--duplicates=0,25,50,75",
        "--side=ext4",
        "--side=oncefs=-o profile=smartdedup,hint_memory={525K:8K}",
        "--file-size={2048M:24M}",
    ],
    minutes: 47.0,
};

/// The small board: 1 GB, hints for a fifth.
static BOARD: Experiment = Experiment {
    name: "smartdedup-board",
    words: &[
        "--throttled",
        "--workloads=threaded-write",
        "--duplicates=0,25,75",
        "--side=ext4",
        "--side=oncefs=-o profile=smartdedup,hint_memory={525K:8K}",
        "--file-size={1024M:24M}",
    ],
    minutes: 18.0,
};

static IMAGES: Experiment = Experiment {
    name: "smartdedup-images",
    words: &[
        "--throttled",
        "--workloads=dedis",
        "--side=ext4",
        "--side=oncefs=-o profile=smartdedup,hint_memory={1050K:8K}",
        "--file-size={2048M:24M}",
    ],
    minutes: 24.0,
};

static REPLAY: Experiment = Experiment {
    name: "smartdedup-replay",
    words: &["replay", "--twin=1,2,3", "--scale=1024", "--requests={1000000:400}", "--profiles=smartdedup"],
    minutes: 8.0,
};

static ADAPTIVE: Experiment = Experiment {
    name: "smartdedup-adaptive",
    words: &[
        "adaptive",
        "--profiles=smartdedup",
        "--orders=random",
        "--size={4096M:64M}",
        "--duplicate-size={1024M:32M}",
    ],
    minutes: 4.0,
};

/// A step on a side.
macro_rules! step {
    ($experiment:ident, $workload:literal, $side:ident, $field:expr) => {
        Pick::row(&$experiment, &[("workload", $workload), ("side", $side)], $field)
    };
}

/// Ours over ext4's.
macro_rules! to_ext4 {
    ($experiment:ident, $workload:literal, $path:literal) => {
        Ratio(
            step!($experiment, $workload, ONCEFS, Field::At($path)),
            step!($experiment, $workload, EXT4, Field::At($path)),
        )
    };
}

/// Both sides, for a chart.
macro_rules! both {
    ($experiment:ident, $workload:literal, $path:literal) => {
        &[
            Of(step!($experiment, $workload, EXT4, Field::At($path))),
            Of(step!($experiment, $workload, ONCEFS, Field::At($path))),
        ]
    };
}

/// By how many percent ours is less than ext4's.
macro_rules! saved {
    ($workload:literal, $path:literal) => {
        Saved(step!(IMAGES, $workload, ONCEFS, Field::At($path)), step!(IMAGES, $workload, EXT4, Field::At($path)))
    };
}

/// Ours over ext4's for a replayed trace.
macro_rules! replayed {
    ($trace:literal, $path:literal) => {
        Ratio(
            Pick {
                experiment: &REPLAY,
                list: "",
                keys: &[("trace", $trace), ("mount", "oncefs, smartdedup")],
                field: Field::At($path),
            },
            Pick {
                experiment: &REPLAY,
                list: "",
                keys: &[("trace", $trace), ("mount", EXT4)],
                field: Field::At($path),
            },
        )
    };
}

/// A figure of the mount that adapts over that of the one which does not deduplicate.
macro_rules! adapting {
    ($one:literal, $other:literal) => {
        Of(Pick { experiment: &ADAPTIVE, list: "", keys: &[], field: Field::Per($one, $other) })
    };
}

const CPU: &str = "/cpu_machine_s";
/// Both sides' processor seconds of the machine for writing and reading at 25 %.
const WRITE_CPU: [Pick; 2] =
    [step!(PHONE, "threads-write-25", ONCEFS, Field::At(CPU)), step!(PHONE, "threads-write-25", EXT4, Field::At(CPU))];
const READ_CPU: [Pick; 2] =
    [step!(PHONE, "threads-read-25", ONCEFS, Field::At(CPU)), step!(PHONE, "threads-read-25", EXT4, Field::At(CPU))];
const METADATA: Field = Field::Less("/device_written_settled", "/stored_bytes");

const FUSE: &str = "each request passes through FUSE to the daemon and back; SmartDedup is in the kernel's ext4";
const CACHE: &str = "SmartDedup finds a duplicate in the kernel's page cache by its physical block; FUSE has no such index, so \
                     a duplicate that our cache has lost is read from the device again";
const LOG: &str = "a new block costs 59 bytes of log and table, and a shared one about 15, by the format";
const TWIN: &str = "a twin of a whole trace, not the paper's segment";
const FIXED: &str = "log, table and records have parts that do not grow with the data and weigh where there is little of it; the \
                     share of that is not measured";
const GROWS: &str = "grows with the duplicates";

pub static PAPER: Paper = Paper {
    name: "smartdedup",
    title: "SmartDedup's evaluation, and ours",
    about: "SmartDedup is compared with ext4 on a phone (eMMC) and with F2FS on a Raspberry Pi (an SD card); ours is oncefs \
            with profile `smartdedup`, whose parameters are the paper's, beside ext4. Both are on loop devices that are \
            limited to 40 MB/s and 3,000 requests a second of writes, 100 MB/s and 4,000 of reads. Hints have room for as \
            many fingerprints as in the paper. Numbers are ours over ext4's in the same repetition, unless they say \
            otherwise: 1.17 is 17 % more. The kernel lets a burst through where a limit begins, so files of less than 512 MiB \
            say little about writes.",
    figures: &[
        Figure {
            number: "3",
            title: "FIO on the phone, to ext4",
            note: "Three threads write 2 GB of 4 KiB blocks at random, buffered; after a restart with empty caches they read \
                   all of it at random. Hints for a tenth of the fingerprints, 0 to 75 % of duplicates.",
            claims: &[
                Claim::at_least("write speed, 0 %", "-3.8 %", 0.962, to_ext4!(PHONE, "threads-write-0", "/mb_per_s")),
                Claim::at_least("write speed, 25 %", "+16.9 %", 1.169, to_ext4!(PHONE, "threads-write-25", "/mb_per_s")),
                Claim::above("write speed, 50 %", GROWS, 1.169, to_ext4!(PHONE, "threads-write-50", "/mb_per_s")),
                Claim::above("write speed, 75 %", GROWS, 1.169, to_ext4!(PHONE, "threads-write-75", "/mb_per_s")),
                Claim::at_most("write p95, 0 %", "+1.1 %", 1.011, to_ext4!(PHONE, "threads-write-0", "/latency/p95_us")),
                Claim::at_most("write p95, 25 %", "-18.5 %", 0.815, to_ext4!(PHONE, "threads-write-25", "/latency/p95_us")),
                Claim::at_least("read speed, 0 %", "-0.6 %", 0.994, to_ext4!(PHONE, "threads-read-0", "/mb_per_s"))
                    .because(FUSE),
                Claim::above("read speed, 25 %", "more than ext4", 1.0, to_ext4!(PHONE, "threads-read-25", "/mb_per_s"))
                    .because(CACHE),
                Claim::above("read speed, 50 %", "more than ext4", 1.0, to_ext4!(PHONE, "threads-read-50", "/mb_per_s"))
                    .because(CACHE),
                Claim::at_least("read speed, 75 %", "up to 14.4 times", 14.4, to_ext4!(PHONE, "threads-read-75", "/mb_per_s"))
                    .because(CACHE),
                Claim::at_most("read p50, 0 %", "+2.7 %", 1.027, to_ext4!(PHONE, "threads-read-0", "/latency/p50_us"))
                    .because(FUSE),
                Claim::at_most("read p95, 75 %", "up to -93 %", 0.07, to_ext4!(PHONE, "threads-read-75", "/latency/p95_us"))
                    .because(CACHE),
                Claim::at_most(
                    "metadata written, 0 %",
                    "+9 %",
                    1.09,
                    Ratio(
                        step!(PHONE, "threads-write-0", ONCEFS, METADATA),
                        step!(PHONE, "threads-write-0", EXT4, METADATA),
                    ),
                )
                .because("ext4 writes next to no metadata for three files that only grow, and ours has a record for each block"),
                Claim::at_most(
                    "device writes, 0 %",
                    "less than 0.5 % more (3.4)",
                    1.005,
                    to_ext4!(PHONE, "threads-write-0", "/device_written_settled"),
                )
                .because(LOG),
                Claim::absent("beside Dmdedup and CAFTL", "1.8 to 4.8 times Dmdedup", "both are in the simulator only"),
            ],
            plot: Plot::Bars {
                y_label: "MB/s",
                names: &["ext4", "oncefs"],
                groups: &[
                    ("W 0 %", both!(PHONE, "threads-write-0", "/mb_per_s")),
                    ("W 25 %", both!(PHONE, "threads-write-25", "/mb_per_s")),
                    ("W 50 %", both!(PHONE, "threads-write-50", "/mb_per_s")),
                    ("W 75 %", both!(PHONE, "threads-write-75", "/mb_per_s")),
                    ("R 0 %", both!(PHONE, "threads-read-0", "/mb_per_s")),
                    ("R 25 %", both!(PHONE, "threads-read-25", "/mb_per_s")),
                    ("R 50 %", both!(PHONE, "threads-read-50", "/mb_per_s")),
                    ("R 75 %", both!(PHONE, "threads-read-75", "/mb_per_s")),
                ],
            },
        },
        Figure {
            number: "4",
            title: "FIO on the small board, to ext4",
            note: "The same with 1 GB and hints for a fifth of the fingerprints. The paper's numbers are over F2FS.",
            claims: &[
                Claim::at_least("write speed, 25 %", "+31.1 %", 1.311, to_ext4!(BOARD, "threads-write-25", "/mb_per_s")),
                Claim::at_least("read speed, 25 %", "+32 %", 1.32, to_ext4!(BOARD, "threads-read-25", "/mb_per_s"))
                    .because(CACHE),
                Claim::at_most("write p99.5, 25 %", "-30.4 %", 0.696, to_ext4!(BOARD, "threads-write-25", "/latency/p995_us")),
                Claim::at_most("read p99.5, 25 %", "-15.7 %", 0.843, to_ext4!(BOARD, "threads-read-25", "/latency/p995_us"))
                    .because(CACHE),
                Claim::absent("beside Dmdedup", "2.8 times when writing", "it is in the simulator only"),
            ],
            plot: Plot::Bars {
                y_label: "MB/s",
                names: &["ext4", "oncefs"],
                groups: &[
                    ("W 0 %", both!(BOARD, "threads-write-0", "/mb_per_s")),
                    ("W 25 %", both!(BOARD, "threads-write-25", "/mb_per_s")),
                    ("W 75 %", both!(BOARD, "threads-write-75", "/mb_per_s")),
                    ("R 0 %", both!(BOARD, "threads-read-0", "/mb_per_s")),
                    ("R 25 %", both!(BOARD, "threads-read-25", "/mb_per_s")),
                    ("R 75 %", both!(BOARD, "threads-read-75", "/mb_per_s")),
                ],
            },
        },
        Figure {
            number: "5",
            title: "Processor, memory and battery, to ext4",
            note: "Processor seconds of the whole machine for figure 3's writes and reads at 25 % of duplicates, once each (mix \
                   1, half of it reads) and with the reads twice (mix 2, two thirds).",
            claims: &[
                Claim::at_most("processor, mix 1", "+3.3 %", 1.033, RatioOfSums(&[WRITE_CPU[0], READ_CPU[0]], &[WRITE_CPU[1], READ_CPU[1]]))
                    .if_quiet().because(FUSE),
                Claim::at_most(
                    "processor, mix 2",
                    "+1.7 %",
                    1.017,
                    RatioOfSums(&[WRITE_CPU[0], READ_CPU[0], READ_CPU[0]], &[WRITE_CPU[1], READ_CPU[1], READ_CPU[1]]),
                )
                .if_quiet().because(FUSE),
                Claim::told(
                    "memory of the daemon, MB",
                    "3.5 MB",
                    Of(step!(PHONE, "threads-write-25", ONCEFS, Field::Megabytes("/daemon_peak_bytes"))),
                    "the paper's is for deduplication alone, ours of a whole file system; hints and skipped blocks keep to 3.5 MB",
                ),
                Claim::absent("battery", "+4 and -7.7 %", "there is no meter for energy"),
            ],
            plot: Plot::Bars {
                y_label: "processor seconds of the machine",
                names: &["ext4", "oncefs"],
                groups: &[
                    ("writing", &[Of(WRITE_CPU[1]), Of(WRITE_CPU[0])]),
                    ("reading", &[Of(READ_CPU[1]), Of(READ_CPU[0])]),
                ],
            },
        },
        Figure {
            number: "6",
            title: "Traces replayed, to ext4",
            note: "The paper's traces are not public. Ours are [twins](../sim.md#twins-of-table-1) of three whole phones, writes \
                   only, at 1/1024 of their size, as fast as they are answered, on a device that nothing limits.",
            claims: &[
                Claim::told("time, twin 1", "up to +51.1 % of speed", replayed!("twin 1*", "/seconds"), TWIN),
                Claim::told("time, twin 2", "up to +51.1 % of speed", replayed!("twin 2*", "/seconds"), TWIN),
                Claim::told("time, twin 3", "up to +51.1 % of speed", replayed!("twin 3*", "/seconds"), TWIN),
                Claim::told("device writes, twin 1", "up to -70.9 %", replayed!("twin 1*", "/device_bytes"), TWIN),
                Claim::told("device writes, twin 2", "up to -70.9 %", replayed!("twin 2*", "/device_bytes"), TWIN),
                Claim::told("device writes, twin 3", "up to -70.9 %", replayed!("twin 3*", "/device_bytes"), TWIN),
            ],
            plot: Plot::Bars {
                y_label: "ours over ext4's",
                names: &["time", "device writes", "space"],
                groups: &[
                    (
                        "twin 1",
                        &[
                            replayed!("twin 1*", "/seconds"),
                            replayed!("twin 1*", "/device_bytes"),
                            replayed!("twin 1*", "/used_bytes"),
                        ],
                    ),
                    (
                        "twin 2",
                        &[
                            replayed!("twin 2*", "/seconds"),
                            replayed!("twin 2*", "/device_bytes"),
                            replayed!("twin 2*", "/used_bytes"),
                        ],
                    ),
                    (
                        "twin 3",
                        &[
                            replayed!("twin 3*", "/seconds"),
                            replayed!("twin 3*", "/device_bytes"),
                            replayed!("twin 3*", "/used_bytes"),
                        ],
                    ),
                ],
            },
        },
        Figure {
            number: "7",
            title: "Traces replayed on the small board",
            note: "The paper took the requests of a map's program out of its traces; there is no twin of these.",
            claims: &[Claim::absent("speed and device writes", "up to +30.9 and -47 %", "no such trace")],
            plot: Plot::None,
        },
        Figure {
            number: "8",
            title: "Traces in the simulator",
            note: "This figure is of a simulator in the paper too: `oncefs-sim twins` makes ours, on its [page](older/sim-smartdedup.md).",
            claims: &[Claim::absent(
                "duplicates found beside LRU, CAFTL and Dmdedup",
                "3 % behind LRU, 41.8 and 35.7 % before the others",
                "another command measures it",
            )],
            plot: Plot::None,
        },
        Figure {
            number: "9",
            title: "DEDISbench's load with the duplicates of two images",
            note: "Four threads write 2 GB of 4 KiB blocks at hot spots as fast as they can, the worker does what is left, and \
                   after a restart they read at random what was written. Hints for a fifth of the fingerprints. Copies are \
                   spread over contents as in DEDISbench's own table, as the images' tables are not published. Savings are \
                   net of all metadata.",
            claims: &[
                Claim::at_least("space saved, 46.1 %", "up to 45.0 %", 45.0, saved!("dedis-46.1-write", "/space/used_bytes")).because(FIXED),
                Claim::at_least("device writes saved, 46.1 %", "up to 41.6 %", 41.6, saved!("dedis-46.1-write", "/device_written_settled")).because(FIXED),
                Claim::at_least("write speed, 46.1 %", "up to +54.4 %", 1.544, to_ext4!(IMAGES, "dedis-46.1-write", "/mb_per_s")),
                Claim::at_least("read speed, 46.1 %", "up to +33.6 %", 1.336, to_ext4!(IMAGES, "dedis-46.1-read", "/mb_per_s"))
                    .because(CACHE),
                Claim::above("space saved, 19.4 %", "follows the duplicates", 17.0, saved!("dedis-19.4-write", "/space/used_bytes")).because(FIXED),
                Claim::above("write speed, 19.4 %", "more than ext4", 1.0, to_ext4!(IMAGES, "dedis-19.4-write", "/mb_per_s")),
                Claim::above("read speed, 19.4 %", "more than ext4", 1.0, to_ext4!(IMAGES, "dedis-19.4-read", "/mb_per_s"))
                    .because(CACHE),
            ],
            plot: Plot::Bars {
                y_label: "percent saved",
                names: &["space", "device writes"],
                groups: &[
                    (
                        "46.1 %",
                        &[saved!("dedis-46.1-write", "/space/used_bytes"), saved!("dedis-46.1-write", "/device_written_settled")],
                    ),
                    (
                        "19.4 %",
                        &[saved!("dedis-19.4-write", "/space/used_bytes"), saved!("dedis-19.4-write", "/device_written_settled")],
                    ),
                ],
            },
        },
        Figure {
            number: "10",
            title: "The rate that follows the duplicates",
            note: "Two files without duplicates are written at random; the share of requests that are looked up falls in the \
                   first. Speed and processor time are over those of a mount that does not deduplicate.",
            claims: &[
                Claim::told("write speed at the floor", "-", adapting!("/sides/1/halves/1", "/sides/0/halves/1"), "the paper gives none"),
                Claim::told(
                    "processor time of the machine",
                    "-14 % of power for 8 % less found",
                    adapting!("/sides/1/cpu_seconds", "/sides/0/cpu_seconds"),
                    "there is no meter for energy",
                ),
                Claim::told(
                    "share of requests not looked up",
                    "up to 0.7",
                    adapting!("/sides/1/requests/1", "/sides/1/requests/0"),
                    "it depends on how soon the share falls",
                ),
            ],
            plot: Plot::None,
        },
        Figure {
            number: "11",
            title: "The rate that follows the battery",
            note: "A mount has no battery here.",
            claims: &[Claim::absent("power, duplicates found", "+8 to +0.3 %, 51 to 32 %", "there is no battery and no meter")],
            plot: Plot::None,
        },
        Figure {
            number: "12",
            title: "Fragmentation by the shortest run",
            note: "This figure is of a simulator in the paper too; iDedup's [page](paper-idedup.md) has shortest runs on mounts, \
                   the [simulator's](older/sim-smartdedup.md) has twins of the traces.",
            claims: &[Claim::absent("duplicates found, extents", "-6.0 %, 1.5 to 1.06 times", "another command measures it")],
            plot: Plot::None,
        },
    ],
};
