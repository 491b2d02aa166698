//! Selective (selective data deduplication by how files are used): figure 3, tables 4 and 6, figures 8 to 17.

use std::sync::LazyLock;

use super::experiment::Experiment;
use super::figure::{Claim, Field, Figure, Measure, POWERS_IN_KIB, Paper, Pick, Plot};
use Measure::{Of, Ratio};

static HIGH: Experiment = Experiment {
    name: "selective-high",
    words: &[
        "selective",
        "--parts=synthetic",
        "--workloads=high",
        "--sequential={90,75,50,25,10|90,10}",
        "--bytes={2560M:16M}",
    ],
    minutes: 45.0,
};

static LOW: Experiment = Experiment {
    name: "selective-low",
    words: &[
        "selective",
        "--parts=synthetic",
        "--workloads=low",
        "--sequential={90,75,50,25,10|90,10}",
        "--bytes={2560M:16M}",
    ],
    minutes: 45.0,
};

static DESKTOP: Experiment = Experiment {
    name: "selective-desktop",
    words: &["selective", "--parts=real", "--desktop=/usr", "--bytes={20480M:16M}"],
    minutes: 70.0,
};

static DEVELOPER: Experiment = Experiment {
    name: "selective-developer",
    words: &["selective", "--parts=real", "--users=developer", "--developer={developer}", "--bytes={20480M:16M}"],
    minutes: 6.0,
};

static CHUNKS: Experiment = Experiment {
    name: "selective-chunks",
    words: &["selective", "--parts=chunks", "--desktop=/usr", "--bytes={4096M:16M}", "--chunk-file={100M:10M}"],
    minutes: 16.0,
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

/// The mounts, by their names in charts and in readings.
const CASES: [(&str, &str); 4] = [("native", "None"), ("big", "Big"), ("selective", "Selective"), ("small", "Small")];
/// Shares of files read in order, as the paper's chart names them and in percent.
const ORDERED: [(&str, &str); 5] =
    [("90:10", "90"), ("75:25", "75"), ("50:50", "50"), ("25:75", "25"), ("10:90", "10")];

const ALL_TIME: Field = Field::At("/all/seconds");
const ORDERED_TIME: Field = Field::At("/sequential/seconds");
const SPEED: Field = Field::Per("/sequential/bytes", "/sequential/seconds");
const WITHIN: Field = Field::At("/sequential/percent_within");
const ALL_WITHIN: Field = Field::At("/all/percent_within");
const SAVED: Field = Field::Less("/saved/mapped_bytes", "/saved/used_bytes");
const TIMES_MS: [f64; 13] = [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1e3, 2e3, 5e3];
const SIZES_KIB: [f64; 9] = [4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 32768.0, 2097152.0];
const WITHIN_AXES: (&str, &str) = ("at most so many ms", "% of files");
const SIZES_AXES: (&str, &str) = ("KiB", "files up to this size");

const INPUT: &str = "it is an input of the generator";
const PIECES: &str = "a file that shares is read in pieces, also in big ones; the fewer duplicates there are, the more a single \
                      piece stands out";

/// A mount of a synthetic workload, by the share of files that are read in order.
fn synthetic(experiment: &'static Experiment, case: &str, percent: &str, field: Field) -> Pick {
    let keys = [("case", case), ("sequential_percent", percent)];
    Pick::of(experiment, "/synthetic/readings", &keys, field)
}

/// One case over another, for the same share.
fn over(experiment: &'static Experiment, cases: [&str; 2], percent: &str, field: Field) -> Measure {
    let [one, other] = cases.map(|case| synthetic(experiment, case, percent, field));
    Ratio(one, other)
}

/// What was counted in the files: the third member of an entry, after workload and repetition.
fn counted(experiment: &'static Experiment, field: Field) -> Pick {
    Pick::of(experiment, "/synthetic/counted", &[], field)
}

fn desktop(case: &str, field: Field) -> Pick {
    Pick::of(&DESKTOP, "/real/readings", &[("case", case)], field)
}

fn developer(case: &str, field: Field) -> Pick {
    Pick::of(&DEVELOPER, "/real/readings", &[("case", case)], field)
}

fn desktop_over(cases: [&str; 2], field: Field) -> Measure {
    let [one, other] = cases.map(|case| desktop(case, field));
    Ratio(one, other)
}

/// Time of a step on one mount over that on another: rates turned round.
fn longer(experiment: &'static Experiment, list: &'static str, step: &str, [slow, base]: [&str; 2]) -> Measure {
    let rate = |mount: &str| Pick::of(experiment, list, &[("step", step), ("mount", mount)], Field::At("/per_second"));
    Ratio(rate(base), rate(slow))
}

fn figure_3() -> Figure {
    let read = |kib: &str, field| Pick::of(&CHUNKS, "/chunks/reads", &[("chunk_kib", kib)], field);
    let saved = |kib: &str| Pick::of(&CHUNKS, "/chunks/saved", &[("chunk_kib", kib)], SAVED);
    Figure {
        number: "3",
        title: "Savings and reads by length of chunks",
        note: "A file of 100 MB whose chunks lie at random places of the disk is read in order, cold, on the slow device; the \
               real files of figure 12 are deduplicated in runs of at least so many blocks, so files that are shorter share \
               nothing; the paper has the files of a developer in chunks of a fixed length.",
        claims: vec![
            Claim::at_most(
                "time of chunks of 8 KB over 1,024 KB",
                "seven times",
                7.0,
                Ratio(read("8", Field::At("/seconds")), read("1024", Field::At("/seconds"))),
            ),
            Claim::told(
                "savings of 4 KB over 1,024 KB",
                "more than double",
                Ratio(saved("4"), saved("1024")),
                "it is a property of the files",
            ),
            Claim::told(
                "savings of 4 KB over 64 KB",
                "-",
                Ratio(saved("4"), saved("64")),
                "it is a property of the files",
            ),
        ],
        plot: Plot::bars("MB/s, by KiB of a chunk", &["read in order"], &POWERS_IN_KIB, |kib| {
            vec![Of(read(kib, Field::At("/mb_per_s")))]
        }),
    }
}

fn table_4() -> Figure {
    let told = |what, paper, experiment, field| Claim::told(what, paper, Of(counted(experiment, field)), INPUT);
    const SMALL: Field = Field::Per("/2/small_duplicate_bytes", "/2/bytes");
    const BIG: Field = Field::Per("/2/big_duplicate_bytes", "/2/bytes");
    let bytes = Of(counted(&HIGH, Field::Megabytes("/2/bytes")));
    Figure {
        number: "Table 4",
        title: "The synthetic workloads",
        note: "A program that does not know the generator counts the duplicates in the files.",
        claims: vec![
            told("duplicates in small chunks, #1", "70.3 %", &HIGH, SMALL),
            told("duplicates in big chunks, #1", "20 %", &HIGH, BIG),
            told("duplicates in small chunks, #2", "20.5 %", &LOW, SMALL),
            told("duplicates in big chunks, #2", "5.1 %", &LOW, BIG),
            Claim::told("bytes, MB", "2.5 GB", bytes, "it follows the scale"),
        ],
        plot: Plot::None,
    }
}

fn figure_8() -> Figure {
    let files = Of(counted(&HIGH, Field::At("/2/files")));
    Figure {
        number: "8",
        title: "Sizes of the synthetic files",
        note: "The paper's text gives the range, 4 KB to 32 MB, and about 5,000 files; the rest is a picture.",
        claims: vec![Claim::told("files", "about 5,000", files, "it follows the scale")],
        plot: Plot::curves(SIZES_AXES, &SIZES_KIB, &[("files", Field::At("/2/files_up_to"))], |field| {
            counted(&HIGH, field)
        }),
    }
}

/// Figures 9 and 10, which are of a workload each. The last claim is of the files read in order alone.
fn response_times(
    number: &'static str,
    title: &'static str,
    note: &'static str,
    experiment: &'static Experiment,
    (against, paper, case, limit): (&str, &'static str, &str, f64),
) -> Figure {
    let time = |other, percent, field| over(experiment, ["Selective", other], percent, field);
    let ordered = |against: &str| format!("files read in order, 10 %, to {against}");
    let claims = vec![
        Claim::below("all files, 90 % in order, to big chunks", "similar", 1.1, time("Big", "90", ALL_TIME)),
        Claim::below("all files, 10 % in order, to small chunks", "similar", 1.1, time("Small", "10", ALL_TIME)),
        Claim::below(ordered("small chunks"), "high performance", 1.0, time("Small", "10", ORDERED_TIME)),
        Claim::below(ordered(against), paper, limit, time(case, "10", ORDERED_TIME)),
    ];
    Figure {
        number,
        title,
        note,
        claims: claims.into_iter().map(|claim| claim.because(PIECES)).collect(),
        plot: Plot::curves(WITHIN_AXES, &TIMES_MS, &CASES, |case| synthetic(experiment, case, "10", WITHIN)),
    }
}

fn figure_11() -> Figure {
    let over = |other, percent, field| over(&HIGH, ["Selective", other], percent, field);
    Figure {
        number: "11",
        title: "Speed of files read in order, and savings",
        note: "Workload #1. The ideal savings are those of small chunks.",
        claims: vec![
            Claim::at_least("speed to native, 10 % in order", "97 %", 0.97, over("None", "10", SPEED)).because(PIECES),
            Claim::at_least("savings to the ideal, 10 % in order", "86 %", 0.86, over("Small", "10", SAVED)),
            Claim::above("savings to big chunks, 90 % in order", "more", 1.0, over("Big", "90", SAVED)),
            Claim::above("speed to small chunks, 10 % in order", "more", 1.0, over("Small", "10", SPEED))
                .because(PIECES),
        ],
        plot: Plot::bars("bytes a second, files read in order", &CASES.map(|(name, _)| name), &ORDERED, |percent| {
            CASES.map(|(_, case)| Of(synthetic(&HIGH, case, percent, SPEED))).to_vec()
        }),
    }
}

fn figure_12() -> Figure {
    let counted = |field| Pick::of(&DESKTOP, "/real/counted", &[], field);
    const WHY: &str = "other files, as many as the scale allows";
    Figure {
        number: "12",
        title: "Sizes of real files",
        note: "A desktop's programs and libraries (`/usr` of the machine), not the paper's 42 GB of a user's files.",
        claims: vec![Claim::told("files", "about 50,000", Of(counted(Field::At("/1/files"))), WHY)],
        plot: Plot::curves(SIZES_AXES, &SIZES_KIB, &[("files", Field::At("/1/files_up_to"))], counted),
    }
}

fn figure_13() -> Figure {
    let time = |other| desktop_over(["Selective", other], ALL_TIME);
    Figure {
        number: "13",
        title: "Response times of all real files",
        note: "All are read in order, cold.",
        claims: vec![
            Claim::below("to small chunks", "close", 1.1, time("Small")).because(PIECES),
            Claim::told("to native", "-", time("None"), "the text gives none"),
        ],
        plot: Plot::curves(WITHIN_AXES, &TIMES_MS, &CASES, |case| desktop(case, ALL_WITHIN)),
    }
}

fn table_6() -> Figure {
    let saved = |other| desktop_over(["Selective", other], SAVED);
    let saved_developer = |other| Ratio(developer("Selective", SAVED), developer(other, SAVED));
    Figure {
        number: "Table 6",
        title: "Savings on real files",
        note: "The paper's desktop: 14.3 % by rank, 16.1 % in small chunks, 11.2 % in big ones; its developer: 31.1, 32.8 and \
               17.2 %. Ours are other files, `/usr` and sources of crates in several versions, so their ratios are \
               compared.",
        claims: vec![
            Claim::at_least("to small chunks", "14.3 of 16.1 %", 0.888, saved("Small")),
            Claim::at_least("to big chunks", "14.3 of 11.2 %", 1.277, saved("Big")),
            Claim::at_least("developer, to small chunks", "31.1 of 32.8 %", 0.948, saved_developer("Small")),
            Claim::at_least("developer, to big chunks", "31.1 of 17.2 %", 1.808, saved_developer("Big")),
        ],
        plot: Plot::bars("bytes saved", &["big", "selective", "small"], &[("desktop", ())], |()| {
            ["Big", "Selective", "Small"].map(|case| Of(desktop(case, SAVED))).to_vec()
        }),
    }
}

fn figure_14() -> Figure {
    let time = desktop_over(["Selective", "Big"], ORDERED_TIME);
    Figure {
        number: "14",
        title: "Response times of real files read in order",
        note: "The files that were read in order before, which have rank 1.",
        claims: vec![Claim::below("to big chunks", "almost the same", 1.1, time).because(PIECES)],
        plot: Plot::curves(WITHIN_AXES, &TIMES_MS, &CASES, |case| desktop(case, WITHIN)),
    }
}

fn figure_15() -> Figure {
    /// Heading in the chart, name in the table, and where the readings are.
    const PROGRAMS: [(&str, &str, (&str, &str)); 5] = [
        ("tar", "tar", ("/utilities", "tar")),
        ("untar", "untar", ("/utilities", "untar")),
        ("grep", "grep", ("/utilities", "grep")),
        ("cp", "cp", ("/utilities", "cp")),
        ("web", "web server", ("/webserver", "webserver")),
    ];
    let with_ranks = |(list, step): (&'static str, &str)| longer(&OVERHEAD, list, step, ["on", "off"]);
    let mut claims: Vec<Claim> = PROGRAMS
        .iter()
        .map(|(_, name, place)| Claim::at_most(*name, "less than 7 %", 1.07, with_ranks(*place)))
        .collect();
    claims.push(Claim::absent("Netperf", "none", "it makes no request to a file system"));
    Figure {
        number: "15",
        title: "What ranks cost programs",
        note: "Time with ranks over time without, on mounts with no worker: the paper's programs on a generated source tree, \
               and a load like Filebench's web server.",
        claims,
        plot: Plot::bars(
            "time with ranks over time without",
            &["ranks"],
            &PROGRAMS.map(|(heading, _, place)| (heading, place)),
            |place| vec![with_ranks(place)],
        ),
    }
}

/// Figures 16 and 17, which are of a load each.
fn beside_the_worker(
    number: &'static str,
    title: &'static str,
    note: &'static str,
    (step, name): (&'static str, &'static str),
    (now, why_now): (&'static str, &'static str),
) -> Figure {
    let beside = |state: &str| longer(&BESIDE, "/beside", step, [state, "off"]);
    Figure {
        number,
        title,
        note,
        claims: vec![
            Claim::below("worker waits until idle", "negligible", 1.05, beside("idle")),
            Claim::told("worker told to work now", now, beside("now"), why_now),
        ],
        plot: Plot::bars(
            "time over that beside a paused worker",
            &[name],
            &[("idle", "idle"), ("now", "now")],
            |state| vec![beside(state)],
        ),
    }
}

pub static PAPER: LazyLock<Paper> = LazyLock::new(|| Paper {
    name: "selective",
    title: "Selective's evaluation, and ours",
    about: "Selective is a FUSE file system on ext2; it is compared with itself without deduplication, with big chunks (256 \
            KB) for all files and with small ones (4 KB). Ours is oncefs with profile `selective`, the same four ways \
            ([Selective](../selective.md) says how), on a device that is limited to the slow disk. Native is the mount that \
            does not deduplicate.",
    figures: vec![
        figure_3(),
        table_4(),
        figure_8(),
        response_times(
            "9",
            "Response times, many duplicates",
            "Times of whole files on workload #1: read all, 90 to 10 % of them in order, then those alone. The text says \
             what is alike; alike is taken as 10 % more at most. The chart is of the files read in order where they are \
             10 %.",
            &HIGH,
            ("big chunks", "as big chunks", "Big", 1.1),
        ),
        response_times(
            "10",
            "Response times, few duplicates",
            "The same on workload #2.",
            &LOW,
            ("native", "as native", "None", 1.031),
        ),
        figure_11(),
        figure_12(),
        figure_13(),
        table_6(),
        figure_14(),
        figure_15(),
        beside_the_worker(
            "16",
            "A web server beside the worker",
            "Time of the web server's load beside a worker that has something to do, over that beside a paused one. The \
             paper calls it negligible on several cores; the bound is 5 %.",
            ("webserver", "web server"),
            (
                "negligible with more cores than threads",
                "it was told not to give way, and two cores are fewer than the threads",
            ),
        ),
        beside_the_worker(
            "17",
            "A busy processor beside the worker",
            "A load that computes stands in for Netperf, which issues no request to a file system.",
            ("CPU-bound", "computing"),
            ("negligible with three or more cores", "it was told not to give way, and there are two cores"),
        ),
    ],
});
