//! LRLFS (a low-read-latency file system for in-line deduplication): figures 2 to 4, beside ext2.
//!
//! The paper's text has no numbers: it says which of LRLFS, LessFS and ext2 is the fastest. LessFS's way, which asks a
//! fingerprint index before each read, is measured over the same store as LRLFS's.

use std::sync::LazyLock;

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

const SECONDS: Field = Field::At("/seconds");
const MEAN: Field = Field::At("/latency/mean_us");
const CPU: Field = Field::At("/cpu_machine_s");

const SMALLEST: &str = "LRLFS's is the smallest";
const SMALLEST_BEHIND: &str = "ext2's is the smallest; LRLFS's is higher";
const FUSE: &str = "a request passes through FUSE to the daemon and back, beside the kernel's own page cache and file system; \
                    on a device that is slower than that, it is hidden";
const AGAIN: &str = "a file read again is in the kernel's cache for ext2 and for us; what is longer is the kernel's own way \
                     through FUSE";
const WRITING: &str = "every block goes through FUSE, is hashed, looked up and logged";
const NO_LESSFS: &str = "LessFS is not here";

/// The steps of figure 2: heading in the chart, name in the table, workload, whether `verify=off` is judged too, and why
/// ours may be longer.
const READ_STEPS: [(&str, &str, &str, bool, &str); 4] = [
    ("in order", "in order", "sequential-read-cold", true, FUSE),
    ("again", "again", "sequential-reread", false, AGAIN),
    ("random", "at random", "random-read-cold", true, FUSE),
    ("NURand", "NURand", "nurand-read-cold", false, FUSE),
];

/// The steps of figure 3: heading in the chart, name in the table, workload, and the paper's words.
const WRITE_STEPS: [(&str, &str, &str, &str); 3] = [
    ("in order", "in order", "sequential-write-0", SMALLEST_BEHIND),
    ("random", "at random", "random-write-0", SMALLEST_BEHIND),
    ("NURand", "NURand", "nurand-write", "LRLFS's is higher than LessFS's"),
];

/// Ours over ext2's.
fn to_ext2(experiment: &'static Experiment, workload: &str, side: &str, field: Field) -> Measure {
    Ratio(Pick::step(experiment, workload, side, field), Pick::step(experiment, workload, EXT2, field))
}

/// The claims of a step of figure 2.
fn reads(&(_, name, workload, has_trusting, cause): &(&str, &'static str, &str, bool, &'static str)) -> Vec<Claim> {
    let time = |experiment, side| to_ext2(experiment, workload, side, SECONDS);
    let claim = |what, ours| Claim::below(what, SMALLEST, 1.0, ours).because(cause);
    let mut claims = vec![claim(name.to_owned(), time(&READS, VERIFYING))];
    if has_trusting {
        claims.push(claim(format!("{name}, verify=off"), time(&READS, TRUSTING)));
    }
    claims.push(claim(format!("{name}, slow device"), time(&SLOW_READS, VERIFYING)));
    claims
}

/// A way to read over LessFS's, as a share of its mean time.
fn by_map(what: &str, order: &str) -> Claim {
    let by = |path: &str| Pick::of(&INDEX, "/read_paths", &[("path", path), ("order", order)], MEAN);
    let what = format!("by map over by index, {what}");
    Claim::below(what, "the map saves the index's access", 1.0, Ratio(by("map"), by("fingerprint index")))
}

fn figure_2() -> Figure {
    let by_index = [by_map("in order", "sequential"), by_map("at random", "random")];
    let groups = READ_STEPS.map(|(heading, _, workload, ..)| (heading, workload));
    Figure {
        number: "2",
        title: "Time of reads, in the time that ext2 takes",
        note: "A file of unique blocks is read 4 KiB at a time: in order, cold, and again; cold at random places; cold at \
               TPC-C NURand places. At full speed and with the device limited to 100 MB/s and 4,000 requests a second, \
               which is nearer to the paper's disk. Then the index's way: mean time of a cold read by the map of \
               addresses over that by a fingerprint index.",
        claims: READ_STEPS.iter().flat_map(reads).chain(by_index).collect(),
        plot: Plot::bars(
            "mean time of a read, us, slow device",
            &["ext2", "lrlfs", "verify=off"],
            &groups,
            |workload| {
                [EXT2, VERIFYING, TRUSTING].map(|side| Of(Pick::step(&SLOW_READS, workload, side, MEAN))).to_vec()
            },
        ),
    }
}

fn figure_3() -> Figure {
    let claim = |(_, name, workload, paper): (&str, &'static str, &str, &'static str)| {
        Claim::below(name, paper, 1.0, to_ext2(&WRITES, workload, VERIFYING, SECONDS)).because(WRITING)
    };
    let groups = WRITE_STEPS.map(|(heading, _, workload, _)| (heading, workload));
    Figure {
        number: "3",
        title: "Time of writes, in the time that ext2 takes",
        note: "4 KiB writes of unique blocks to a new file, and over every block of a full one in random order and at \
               NURand places; the clock stops after fsync. The paper's LRLFS is slower than ext2 in all of them, so the \
               bound asks for more than the paper reached.",
        claims: WRITE_STEPS.into_iter().map(claim).collect(),
        plot: Plot::bars("mean time of a write, us", &["ext2", "lrlfs"], &groups, |workload| {
            [EXT2, VERIFYING].map(|side| Of(Pick::step(&WRITES, workload, side, MEAN))).to_vec()
        }),
    }
}

fn figure_4() -> Figure {
    let steps: [(&str, (&'static Experiment, &str)); 2] =
        [("writing", (&WRITES, "sequential-write-0")), ("reading", (&READS, "sequential-read-cold"))];
    const PAPER: &str = "between ext2 and LessFS";
    let cpu = steps.map(|(name, (experiment, workload))| {
        let ours = to_ext2(experiment, workload, VERIFYING, CPU);
        Claim::told(format!("processor time of {name}"), PAPER, ours, NO_LESSFS)
    });
    let memory = Claim::told(
        "memory of the daemon, MB",
        PAPER,
        Of(Pick::step(&WRITES, "sequential-write-0", VERIFYING, Field::Megabytes("/daemon_peak_bytes"))),
        "LessFS is not here, and ext2 has no daemon",
    );
    Figure {
        number: "4",
        title: "Processor and memory",
        note: "Processor seconds of the whole machine while writing and reading in order, over ext2's, and the most \
               memory that the daemon held. The paper's order has LessFS at its end, which is not here.",
        claims: cpu.into_iter().chain([memory]).collect(),
        plot: Plot::bars("processor seconds of the machine", &["ext2", "lrlfs"], &steps, |(experiment, workload)| {
            [EXT2, VERIFYING].map(|side| Of(Pick::step(experiment, workload, side, CPU))).to_vec()
        }),
    }
}

pub static PAPER: LazyLock<Paper> = LazyLock::new(|| Paper {
    name: "lrlfs",
    title: "LRLFS's evaluation, and ours",
    about: "LRLFS is compared with ext2 and LessFS; its figures have no numbers in the text, only an order. Times here are \
            of oncefs with profile `lrlfs`, over ext2's in the same repetition, with blocks verified as they are read \
            (the profile) and not (`verify=off`). LessFS itself is not here: its way of reading is measured over the same \
            store as LRLFS's. The paper's machine had 8 GB of memory and a disk. The kernel lets a burst through where a limit \
            begins, so on the slow device files of less than 512 MiB say little.",
    figures: vec![figure_2(), figure_3(), figure_4()],
});
