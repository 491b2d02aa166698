//! LRLFS (a low-read-latency file system for in-line deduplication): figures 2 to 4, beside ext2.
//!
//! The paper's text has no numbers: it says which of LRLFS, LessFS and ext2 is the fastest. LessFS's way, which asks a
//! fingerprint index before each read, is measured over the same store as LRLFS's.

use super::experiment::Experiment;
use super::figure::{Claim, Field, Figure, Measure, Paper, Pick, Plot};
use Measure::{Of, Ratio};

const EXT2: &str = "ext2";
/// As the profile is: blocks are checked against their checksum when they are read.
const VERIFYING: &str = "oncefs=-o profile=lrlfs";
const TRUSTING: &str = "oncefs=-o profile=lrlfs,verify=off";

static READS: Experiment = Experiment {
    name: "lrlfs-reads",
    words: &[
        "--workloads=read",
        "--side=ext2",
        "--side=oncefs=-o profile=lrlfs",
        "--side=oncefs=-o profile=lrlfs,verify=off",
        "--file-size={1024M:24M}",
        "--random-reads={20000:50}",
    ],
    minutes: 4.0,
};

static SLOW_READS: Experiment = Experiment {
    name: "lrlfs-reads-slow",
    words: &[
        "--throttled",
        "--workloads=read",
        "--side=ext2",
        "--side=oncefs=-o profile=lrlfs",
        "--side=oncefs=-o profile=lrlfs,verify=off",
        "--file-size={1024M:24M}",
        "--random-reads={20000:50}",
    ],
    minutes: 8.0,
};

static WRITES: Experiment = Experiment {
    name: "lrlfs-writes",
    words: &[
        "--workloads=sequential-write,random-write,nurand-write",
        "--duplicates=0",
        "--side=ext2",
        "--side=oncefs=-o profile=lrlfs",
        "--file-size={1024M:24M}",
    ],
    minutes: 6.0,
};

static INDEX: Experiment = Experiment {
    name: "lrlfs-index",
    words: &["--workloads=index-read", "--side=ext2", "--index-blocks={524288:8192}", "--index-reads={20000:500}"],
    minutes: 3.0,
};

/// A step on a side, as a constant.
macro_rules! step {
    ($experiment:ident, $workload:literal, $side:ident, $path:literal) => {
        Pick::row(&$experiment, &[("workload", $workload), ("side", $side)], Field::At($path))
    };
}

/// Time of a step over ext2's.
macro_rules! time {
    ($experiment:ident, $workload:literal, $side:ident) => {
        Ratio(step!($experiment, $workload, $side, "/seconds"), step!($experiment, $workload, EXT2, "/seconds"))
    };
}

/// Mean time of an operation, in microseconds.
macro_rules! mean {
    ($experiment:ident, $workload:literal, $side:ident) => {
        Of(step!($experiment, $workload, $side, "/latency/mean_us"))
    };
}

/// A way to read over LessFS's, as a share of its mean time.
macro_rules! by_map {
    ($order:literal) => {
        Ratio(by!("map", $order), by!("fingerprint index", $order))
    };
}

macro_rules! by {
    ($path:literal, $order:literal) => {
        Pick {
            experiment: &INDEX,
            list: "/read_paths",
            keys: &[("path", $path), ("order", $order)],
            field: Field::At("/latency/mean_us"),
        }
    };
}

const SMALLEST: &str = "LRLFS's is the smallest";
const SMALLEST_BEHIND: &str = "ext2's is the smallest; LRLFS's is higher";
const FUSE: &str = "a request passes through FUSE to the daemon and back, beside the kernel's own page cache and file system; \
                    on a device that is slower than that, it is hidden";
const AGAIN: &str = "a file read again is in the kernel's cache for ext2 and for us; what is longer is the kernel's own way \
                     through FUSE";
const WRITING: &str = "every block goes through FUSE, is hashed, looked up and logged";

pub static PAPER: Paper = Paper {
    name: "lrlfs",
    title: "LRLFS's evaluation, and ours",
    about: "LRLFS is compared with ext2 and LessFS; its figures have no numbers in the text, only an order. Times here are \
            of oncefs with profile `lrlfs`, over ext2's in the same repetition, with blocks verified as they are read \
            (the profile) and not (`verify=off`). LessFS itself is not here: its way of reading is measured over the same \
            store as LRLFS's. The paper's machine had 8 GB of memory and a disk. The kernel lets a burst through where a limit \
            begins, so on the slow device files of less than 512 MiB say little.",
    figures: &[
        Figure {
            number: "2",
            title: "Time of reads, in the time that ext2 takes",
            note: "A file of unique blocks is read 4 KiB at a time: in order, cold, and again; cold at random places; cold at \
                   TPC-C NURand places. At full speed and with the device limited to 100 MB/s and 4,000 requests a second, \
                   which is nearer to the paper's disk. Then the index's way: mean time of a cold read by the map of \
                   addresses over that by a fingerprint index.",
            claims: &[
                Claim::below("in order", SMALLEST, 1.0, time!(READS, "sequential-read-cold", VERIFYING)).because(FUSE),
                Claim::below("in order, verify=off", SMALLEST, 1.0, time!(READS, "sequential-read-cold", TRUSTING))
                    .because(FUSE),
                Claim::below(
                    "in order, slow device",
                    SMALLEST,
                    1.0,
                    time!(SLOW_READS, "sequential-read-cold", VERIFYING),
                )
                .because(FUSE),
                Claim::below("again", SMALLEST, 1.0, time!(READS, "sequential-reread", VERIFYING)).because(AGAIN),
                Claim::below("again, slow device", SMALLEST, 1.0, time!(SLOW_READS, "sequential-reread", VERIFYING))
                    .because(AGAIN),
                Claim::below("at random", SMALLEST, 1.0, time!(READS, "random-read-cold", VERIFYING)).because(FUSE),
                Claim::below("at random, verify=off", SMALLEST, 1.0, time!(READS, "random-read-cold", TRUSTING))
                    .because(FUSE),
                Claim::below("at random, slow device", SMALLEST, 1.0, time!(SLOW_READS, "random-read-cold", VERIFYING))
                    .because(FUSE),
                Claim::below("NURand", SMALLEST, 1.0, time!(READS, "nurand-read-cold", VERIFYING)).because(FUSE),
                Claim::below("NURand, slow device", SMALLEST, 1.0, time!(SLOW_READS, "nurand-read-cold", VERIFYING))
                    .because(FUSE),
                Claim::below(
                    "by map over by index, in order",
                    "the map saves the index's access",
                    1.0,
                    by_map!("sequential"),
                ),
                Claim::below(
                    "by map over by index, at random",
                    "the map saves the index's access",
                    1.0,
                    by_map!("random"),
                ),
            ],
            plot: Plot::Bars {
                y_label: "mean time of a read, us, slow device",
                names: &["ext2", "lrlfs", "verify=off"],
                groups: &[
                    (
                        "in order",
                        &[
                            mean!(SLOW_READS, "sequential-read-cold", EXT2),
                            mean!(SLOW_READS, "sequential-read-cold", VERIFYING),
                            mean!(SLOW_READS, "sequential-read-cold", TRUSTING),
                        ],
                    ),
                    (
                        "again",
                        &[
                            mean!(SLOW_READS, "sequential-reread", EXT2),
                            mean!(SLOW_READS, "sequential-reread", VERIFYING),
                            mean!(SLOW_READS, "sequential-reread", TRUSTING),
                        ],
                    ),
                    (
                        "random",
                        &[
                            mean!(SLOW_READS, "random-read-cold", EXT2),
                            mean!(SLOW_READS, "random-read-cold", VERIFYING),
                            mean!(SLOW_READS, "random-read-cold", TRUSTING),
                        ],
                    ),
                    (
                        "NURand",
                        &[
                            mean!(SLOW_READS, "nurand-read-cold", EXT2),
                            mean!(SLOW_READS, "nurand-read-cold", VERIFYING),
                            mean!(SLOW_READS, "nurand-read-cold", TRUSTING),
                        ],
                    ),
                ],
            },
        },
        Figure {
            number: "3",
            title: "Time of writes, in the time that ext2 takes",
            note: "4 KiB writes of unique blocks to a new file, and over every block of a full one in random order and at \
                   NURand places; the clock stops after fsync. The paper's LRLFS is slower than ext2 in all of them, so the \
                   bound asks for more than the paper reached.",
            claims: &[
                Claim::below("in order", SMALLEST_BEHIND, 1.0, time!(WRITES, "sequential-write-0", VERIFYING))
                    .because(WRITING),
                Claim::below("at random", SMALLEST_BEHIND, 1.0, time!(WRITES, "random-write-0", VERIFYING))
                    .because(WRITING),
                Claim::below(
                    "NURand",
                    "LRLFS's is higher than LessFS's",
                    1.0,
                    time!(WRITES, "nurand-write", VERIFYING),
                )
                .because(WRITING),
            ],
            plot: Plot::Bars {
                y_label: "mean time of a write, us",
                names: &["ext2", "lrlfs"],
                groups: &[
                    (
                        "in order",
                        &[mean!(WRITES, "sequential-write-0", EXT2), mean!(WRITES, "sequential-write-0", VERIFYING)],
                    ),
                    ("random", &[mean!(WRITES, "random-write-0", EXT2), mean!(WRITES, "random-write-0", VERIFYING)]),
                    ("NURand", &[mean!(WRITES, "nurand-write", EXT2), mean!(WRITES, "nurand-write", VERIFYING)]),
                ],
            },
        },
        Figure {
            number: "4",
            title: "Processor and memory",
            note: "Processor seconds of the whole machine while writing and reading in order, over ext2's, and the most \
                   memory that the daemon held. The paper's order has LessFS at its end, which is not here.",
            claims: &[
                Claim::told(
                    "processor time of writing",
                    "between ext2 and LessFS",
                    Ratio(
                        step!(WRITES, "sequential-write-0", VERIFYING, "/cpu_machine_s"),
                        step!(WRITES, "sequential-write-0", EXT2, "/cpu_machine_s"),
                    ),
                    "LessFS is not here",
                ),
                Claim::told(
                    "processor time of reading",
                    "between ext2 and LessFS",
                    Ratio(
                        step!(READS, "sequential-read-cold", VERIFYING, "/cpu_machine_s"),
                        step!(READS, "sequential-read-cold", EXT2, "/cpu_machine_s"),
                    ),
                    "LessFS is not here",
                ),
                Claim::told(
                    "memory of the daemon, MB",
                    "between ext2 and LessFS",
                    Of(Pick::row(
                        &WRITES,
                        &[("workload", "sequential-write-0"), ("side", VERIFYING)],
                        Field::Megabytes("/daemon_peak_bytes"),
                    )),
                    "LessFS is not here, and ext2 has no daemon",
                ),
            ],
            plot: Plot::Bars {
                y_label: "processor seconds of the machine",
                names: &["ext2", "lrlfs"],
                groups: &[
                    (
                        "writing",
                        &[
                            Of(step!(WRITES, "sequential-write-0", EXT2, "/cpu_machine_s")),
                            Of(step!(WRITES, "sequential-write-0", VERIFYING, "/cpu_machine_s")),
                        ],
                    ),
                    (
                        "reading",
                        &[
                            Of(step!(READS, "sequential-read-cold", EXT2, "/cpu_machine_s")),
                            Of(step!(READS, "sequential-read-cold", VERIFYING, "/cpu_machine_s")),
                        ],
                    ),
                ],
            },
        },
    ],
};
