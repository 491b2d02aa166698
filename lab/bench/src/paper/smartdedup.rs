//! SmartDedup (smart in-line and out-of-line deduplication for smart devices): figures 3 to 12, beside ext4.

use std::sync::LazyLock;

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

/// Two whole phones more, for the board.
static BOARD_REPLAY: Experiment = Experiment {
    name: "smartdedup-board-replay",
    words: &["replay", "--twin=4,5", "--scale=1024", "--requests={1000000:400}", "--profiles=smartdedup"],
    minutes: 6.0,
};

static BATTERY: Experiment = Experiment {
    name: "smartdedup-battery",
    words: &["adaptive", "--battery", "--profiles=smartdedup", "--duplicate-size={1024M:32M}"],
    minutes: 6.0,
};

const SPEED: Field = Field::At("/mb_per_s");
const CPU: Field = Field::At("/cpu_machine_s");
const SETTLED: Field = Field::At("/device_written_settled");
const USED: Field = Field::At("/space/used_bytes");
const METADATA: Field = Field::Less("/device_written_settled", "/stored_bytes");

const FUSE: &str = "each request passes through FUSE to the daemon and back; SmartDedup is in the kernel's ext4";
const CACHE: &str = "a file's first read of each page passes through FUSE to the daemon also if the host has the block; \
                     SmartDedup finds it in the kernel";
const LOG: &str = "a new block costs 59 bytes of log and table, and a shared one about 15, by the format";
const APPEND: &str =
    "ext4 writes next to no metadata for three files that only grow, and ours has a record for each block";
const TWIN: &str = "a twin of a whole trace, not the paper's segment";
const FIXED: &str = "log, table and records have parts that do not grow with the data and weigh where there is little of it; the \
                     share of that is not measured";
const GROWS: &str = "grows with the duplicates";
const MORE: &str = "more than ext4";
const NO_METER: &str = "there is no meter for energy";

/// Charges of the made battery: the middles of five equal parts of the paper's way from 100 to 20 %.
const CHARGES: [&str; 5] = ["92 %", "76 %", "60 %", "44 %", "28 %"];

fn ours(experiment: &'static Experiment, workload: &str, field: Field) -> Pick {
    Pick::step(experiment, workload, ONCEFS, field)
}

fn ext4(experiment: &'static Experiment, workload: &str, field: Field) -> Pick {
    Pick::step(experiment, workload, EXT4, field)
}

/// Ours over ext4's.
fn to_ext4(experiment: &'static Experiment, workload: &str, field: Field) -> Measure {
    Ratio(ours(experiment, workload, field), ext4(experiment, workload, field))
}

/// Speeds of writes and reads of both sides, by the share of duplicates.
fn speeds(experiment: &'static Experiment, steps: &[(&'static str, &'static str)]) -> Plot {
    Plot::bars("MB/s", &["ext4", "oncefs"], steps, |workload| {
        vec![Of(ext4(experiment, workload, SPEED)), Of(ours(experiment, workload, SPEED))]
    })
}

fn figure_3() -> Figure {
    let step = |workload, field| to_ext4(&PHONE, workload, field);
    let p95 = Field::At("/latency/p95_us");
    Figure {
        number: "3",
        title: "FIO on the phone, to ext4",
        note: "Three threads write 2 GB of 4 KiB blocks at random, buffered; after a restart with empty caches they read \
               all of it at random. Hints for a tenth of the fingerprints, 0 to 75 % of duplicates. A duplicate repeats the last \
               new block of its thread, as with FIO's `dedupe_percentage`.",
        claims: vec![
            Claim::at_least("write speed, 0 %", "-3.8 %", 0.962, step("threads-write-0", SPEED)),
            Claim::at_least("write speed, 25 %", "+16.9 %", 1.169, step("threads-write-25", SPEED)),
            Claim::above("write speed, 50 %", GROWS, 1.169, step("threads-write-50", SPEED)),
            Claim::above("write speed, 75 %", GROWS, 1.169, step("threads-write-75", SPEED)),
            Claim::at_most("write p95, 0 %", "+1.1 %", 1.011, step("threads-write-0", p95)),
            Claim::at_most("write p95, 25 %", "-18.5 %", 0.815, step("threads-write-25", p95)),
            Claim::at_least("read speed, 0 %", "-0.6 %", 0.994, step("threads-read-0", SPEED)).because(FUSE),
            Claim::above("read speed, 25 %", MORE, 1.0, step("threads-read-25", SPEED)).because(CACHE),
            Claim::above("read speed, 50 %", MORE, 1.0, step("threads-read-50", SPEED)).because(CACHE),
            Claim::at_least("read speed, 75 %", "up to 14.4 times", 14.4, step("threads-read-75", SPEED))
                .because(CACHE),
            Claim::at_most("read p50, 0 %", "+2.7 %", 1.027, step("threads-read-0", Field::At("/latency/p50_us")))
                .because(FUSE),
            Claim::at_most("read p95, 75 %", "up to -93 %", 0.07, step("threads-read-75", p95)).because(CACHE),
            Claim::at_most("metadata written, 0 %", "+9 %", 1.09, step("threads-write-0", METADATA)).because(APPEND),
            Claim::at_most("device writes, 0 %", "less than 0.5 % more (3.4)", 1.005, step("threads-write-0", SETTLED))
                .because(LOG),
            Claim::absent("beside Dmdedup and CAFTL", "1.8 to 4.8 times Dmdedup", "both are in the simulator only"),
        ],
        plot: speeds(
            &PHONE,
            &[
                ("W 0 %", "threads-write-0"),
                ("W 25 %", "threads-write-25"),
                ("W 50 %", "threads-write-50"),
                ("W 75 %", "threads-write-75"),
                ("R 0 %", "threads-read-0"),
                ("R 25 %", "threads-read-25"),
                ("R 50 %", "threads-read-50"),
                ("R 75 %", "threads-read-75"),
            ],
        ),
    }
}

fn figure_4() -> Figure {
    let step = |workload, field| to_ext4(&BOARD, workload, field);
    let p995 = Field::At("/latency/p995_us");
    Figure {
        number: "4",
        title: "FIO on the small board, to ext4",
        note: "The same with 1 GB and hints for a fifth of the fingerprints. The paper's numbers are over F2FS.",
        claims: vec![
            Claim::at_least("write speed, 25 %", "+31.1 %", 1.311, step("threads-write-25", SPEED)),
            Claim::at_least("read speed, 25 %", "+32 %", 1.32, step("threads-read-25", SPEED)).because(CACHE),
            Claim::at_most("write p99.5, 25 %", "-30.4 %", 0.696, step("threads-write-25", p995)),
            Claim::at_most("read p99.5, 25 %", "-15.7 %", 0.843, step("threads-read-25", p995)).because(CACHE),
            Claim::absent("beside Dmdedup", "2.8 times when writing", "it is in the simulator only"),
        ],
        plot: speeds(
            &BOARD,
            &[
                ("W 0 %", "threads-write-0"),
                ("W 25 %", "threads-write-25"),
                ("W 75 %", "threads-write-75"),
                ("R 0 %", "threads-read-0"),
                ("R 25 %", "threads-read-25"),
                ("R 75 %", "threads-read-75"),
            ],
        ),
    }
}

fn figure_5() -> Figure {
    // Writes once, reads as often as the mix has them.
    let mix = |reads: usize| {
        let of = |side: &str| {
            let read = Pick::step(&PHONE, "threads-read-25", side, CPU);
            let write = Pick::step(&PHONE, "threads-write-25", side, CPU);
            [vec![write], vec![read; reads]].concat()
        };
        RatioOfSums(of(ONCEFS), of(EXT4))
    };
    let memory = Of(ours(&PHONE, "threads-write-25", Field::Megabytes("/daemon_peak_bytes")));
    Figure {
        number: "5",
        title: "Processor, memory and battery, to ext4",
        note: "Processor seconds of the whole machine for figure 3's writes and reads at 25 % of duplicates, once each (mix \
               1, half of it reads) and with the reads twice (mix 2, two thirds).",
        claims: vec![
            Claim::at_most("processor, mix 1", "+3.3 %", 1.033, mix(1)).if_quiet().because(FUSE),
            Claim::at_most("processor, mix 2", "+1.7 %", 1.017, mix(2)).if_quiet().because(FUSE),
            Claim::told(
                "memory of the daemon, MB",
                "3.5 MB",
                memory,
                "the paper's is for deduplication alone, ours of a whole file system; hints and skipped blocks keep to 3.5 MB",
            ),
            Claim::absent("battery", "+4 and -7.7 %", NO_METER),
        ],
        plot: Plot::bars(
            "processor seconds of the machine",
            &["ext4", "oncefs"],
            &[("writing", "threads-write-25"), ("reading", "threads-read-25")],
            |workload| vec![Of(ext4(&PHONE, workload, CPU)), Of(ours(&PHONE, workload, CPU))],
        ),
    }
}

/// Figures 6 and 7, which are of replayed traces: twins by their numbers.
fn replayed(
    (number, title, note): (&'static str, &'static str, &'static str),
    experiment: &'static Experiment,
    twins: &[(&'static str, &'static str)],
    (speed, writes): (&'static str, &'static str),
) -> Figure {
    let to_ext4 = |trace: &str, field| {
        let of = |mount: &str| Pick::of(experiment, "", &[("trace", trace), ("mount", mount)], field);
        Ratio(of("oncefs, smartdedup"), of(EXT4))
    };
    let claims = |what: &str, paper: &'static str, field| -> Vec<Claim> {
        let told =
            |(name, trace): &(&str, &str)| Claim::told(format!("{what}, {name}"), paper, to_ext4(trace, field), TWIN);
        twins.iter().map(told).collect()
    };
    const FIELDS: [Field; 3] = [Field::At("/seconds"), Field::At("/device_bytes"), Field::At("/used_bytes")];
    Figure {
        number,
        title,
        note,
        claims: [claims("time", speed, FIELDS[0]), claims("device writes", writes, FIELDS[1])].concat(),
        plot: Plot::bars("ours over ext4's", &["time", "device writes", "space"], twins, |trace| {
            FIELDS.map(|field| to_ext4(trace, field)).to_vec()
        }),
    }
}

fn figure_8() -> Figure {
    Figure {
        number: "8",
        title: "Traces in the simulator",
        note: "This figure is of a simulator in the paper too: `oncefs-sim twins` makes ours, on its [page](older/sim-smartdedup.md).",
        claims: vec![Claim::absent(
            "duplicates found beside LRU, CAFTL and Dmdedup",
            "3 % behind LRU, 41.8 and 35.7 % before the others",
            "another command measures it",
        )],
        plot: Plot::None,
    }
}

fn figure_9() -> Figure {
    let saved = |workload, field| Saved(ours(&IMAGES, workload, field), ext4(&IMAGES, workload, field));
    let step = |workload| to_ext4(&IMAGES, workload, SPEED);
    const IMAGES_BY_SHARE: [(&str, &str); 2] = [("46.1 %", "dedis-46.1-write"), ("19.4 %", "dedis-19.4-write")];
    let [(_, many), (_, few)] = IMAGES_BY_SHARE;
    Figure {
        number: "9",
        title: "DEDISbench's load with the duplicates of two images",
        note: "Four threads write 2 GB of 4 KiB blocks at hot spots as fast as they can, the worker does what is left, and \
               after a restart they read at random what was written. Hints for a fifth of the fingerprints. Copies are \
               spread over contents as in DEDISbench's own table, as the images' tables are not published. Savings are \
               net of all metadata.",
        claims: vec![
            Claim::at_least("space saved, 46.1 %", "up to 45.0 %", 45.0, saved(many, USED)).because(FIXED),
            Claim::at_least("device writes saved, 46.1 %", "up to 41.6 %", 41.6, saved(many, SETTLED)).because(FIXED),
            Claim::at_least("write speed, 46.1 %", "up to +54.4 %", 1.544, step(many)),
            Claim::at_least("read speed, 46.1 %", "up to +33.6 %", 1.336, step("dedis-46.1-read")).because(CACHE),
            Claim::above("space saved, 19.4 %", "follows the duplicates", 17.0, saved(few, USED)).because(FIXED),
            Claim::above("write speed, 19.4 %", MORE, 1.0, step(few)),
            Claim::above("read speed, 19.4 %", MORE, 1.0, step("dedis-19.4-read")).because(CACHE),
        ],
        plot: Plot::bars("percent saved", &["space", "device writes"], &IMAGES_BY_SHARE, |workload| {
            vec![saved(workload, USED), saved(workload, SETTLED)]
        }),
    }
}

fn figure_10() -> Figure {
    // The mount that adapts is the second of three, the one that does not deduplicate the first.
    let adapting = |one, other| Of(Pick::of(&ADAPTIVE, "", &[], Field::Per(one, other)));
    Figure {
        number: "10",
        title: "The rate that follows the duplicates",
        note: "Two files without duplicates are written at random; the share of requests that are looked up falls in the \
               first. Speed and processor time are over those of a mount that does not deduplicate.",
        claims: vec![
            Claim::told(
                "write speed at the floor",
                "-",
                adapting("/sides/1/halves/1", "/sides/0/halves/1"),
                "the paper gives none",
            ),
            Claim::told(
                "processor time of the machine",
                "-14 % of power for 8 % less found",
                adapting("/sides/1/cpu_seconds", "/sides/0/cpu_seconds"),
                NO_METER,
            ),
            Claim::told(
                "share of requests not looked up",
                "up to 0.7",
                adapting("/sides/1/requests/1", "/sides/1/requests/0"),
                "it depends on how soon the share falls",
            ),
        ],
        plot: Plot::None,
    }
}

fn figure_11() -> Figure {
    let of = |supply: &str, field| Pick::of(&BATTERY, "", &[("supply", supply)], field);
    const FOUND: Field = Field::At("/duplicates/1");
    const SECONDS: Field = Field::At("/cpu_seconds");
    let found = RatioOfSums(CHARGES.map(|charge| of(charge, FOUND)).to_vec(), vec![of("mains", FOUND); CHARGES.len()]);
    let processor = |supply: &str| Ratio(of(supply, SECONDS), of("ext4", SECONDS));
    let groups: Vec<(&'static str, &'static str)> =
        ["mains"].into_iter().chain(CHARGES).map(|supply| (supply, supply)).collect();
    Figure {
        number: "11",
        title: "The rate that follows the battery",
        note: "A made battery covers the machine's in a mount namespace, so the daemon reads its charge as always. A file with \
               51 % of duplicates is written at random at five charges on the way from 100 to 20 %, on which the paper replays \
               12 hours of a trace. Processor seconds stand in for energy, of which there is no meter.",
        claims: vec![
            Claim::at_least("found from 100 to 20 %, to found on mains", "32 of 51 %", 0.627, found),
            Claim::told(
                "found on mains, of all duplicates",
                "-",
                Of(of("mains", Field::Per("/duplicates/1", "/duplicates/0"))),
                "the paper gives none",
            ),
            Claim::told("processor on mains, to ext4", "+8 % of power", processor("mains"), NO_METER),
            Claim::told("processor at 28 %, to ext4", "+0.3 % of power at 20 %", processor("28 %"), NO_METER),
        ],
        plot: Plot::bars("share of the duplicates found", &["found"], &groups, |supply| {
            vec![Of(of(supply, Field::Per("/duplicates/1", "/duplicates/0")))]
        }),
    }
}

fn figure_12() -> Figure {
    Figure {
        number: "12",
        title: "Fragmentation by the shortest run",
        note: "This figure is of a simulator in the paper too; iDedup's [page](paper-idedup.md) has shortest runs on mounts, \
               the [simulator's](older/sim-smartdedup.md) has twins of the traces.",
        claims: vec![Claim::absent(
            "duplicates found, extents",
            "-6.0 %, 1.5 to 1.06 times",
            "another command measures it",
        )],
        plot: Plot::None,
    }
}

pub static PAPER: LazyLock<Paper> = LazyLock::new(|| Paper {
    name: "smartdedup",
    title: "SmartDedup's evaluation, and ours",
    about: "SmartDedup is compared with ext4 on a phone (eMMC) and with F2FS on a Raspberry Pi (an SD card); ours is oncefs \
            with profile `smartdedup`, whose parameters are the paper's, beside ext4. Both are on loop devices that are \
            limited to 40 MB/s and 3,000 requests a second of writes, 100 MB/s and 4,000 of reads. Hints have room for as \
            many fingerprints as in the paper. Numbers are ours over ext4's in the same repetition, unless they say \
            otherwise: 1.17 is 17 % more. The kernel lets a burst through where a limit begins, so files of less than 512 MiB \
            say little about writes.",
    figures: vec![
        figure_3(),
        figure_4(),
        figure_5(),
        replayed(
            (
                "6",
                "Traces replayed, to ext4",
                "The paper's traces are not public. Ours are [twins](../sim.md#twins-of-table-1) of three whole phones, \
                 writes only, at 1/1024 of their size, as fast as they are answered, on a device that nothing limits.",
            ),
            &REPLAY,
            &[("twin 1", "twin 1,*"), ("twin 2", "twin 2,*"), ("twin 3", "twin 3,*")],
            ("up to +51.1 % of speed", "up to -70.9 %"),
        ),
        replayed(
            (
                "7",
                "Traces replayed on the small board",
                "The paper took the requests of a map's program out of its traces, of which nothing is published. Ours are \
                 twins of two more whole phones, as for figure 6.",
            ),
            &BOARD_REPLAY,
            &[("twin 4", "twin 4,*"), ("twin 5", "twin 5,*")],
            ("up to +30.9 % of speed", "up to -47 %"),
        ),
        figure_8(),
        figure_9(),
        figure_10(),
        figure_11(),
        figure_12(),
    ],
});
