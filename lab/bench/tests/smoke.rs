//! The whole benchmark at its smallest: that it measures every workload, checks contents and cleans up.
//!
//! Needs root, /dev/fuse and loop devices, and fails without them. Asserts no speed. Those of
//! subcommands need oncefs beside the benchmark's program, where `scripts/lab` builds it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const TINY: [&str; 10] = [
    "--quick",
    "--side",
    "ext4",
    "--side",
    "flat",
    "--file-size=24M",
    "--synced-writes=20",
    "--random-reads=50",
    "--tree-files=60",
    "--duplicates=0,25",
];

fn bench(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncefs-bench"));
    command.args(TINY).arg("--dir").arg(directory).stdin(Stdio::null());
    command
}

fn assert_nothing_is_left_in(directory: &Path) {
    let left: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let named = directory.to_str().unwrap();
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(named), "still mounted: {mounts}");
    let loops = Command::new("losetup").arg("--list").output().unwrap();
    assert!(!String::from_utf8_lossy(&loops.stdout).contains(named), "a loop device is still attached");
}

#[test]
fn a_tiny_run_measures_every_workload_on_every_side_and_leaves_nothing() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let rows_directory = tempfile::tempdir().unwrap();
    let rows_file = rows_directory.path().join("rows.json");
    let output = bench(directory.path()).arg("--json").arg(&rows_file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_nothing_is_left_in(directory.path());

    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&rows_file).unwrap()).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let workloads = |side: &str| -> BTreeSet<&str> {
        rows.iter().filter(|row| row["side"] == side).map(|row| row["workload"].as_str().unwrap()).collect()
    };
    assert_eq!(workloads("ext4"), workloads("flat"));
    let expected = [
        "fdatasync-append",
        "fdatasync-rewrite",
        "nurand-read-cold",
        "nurand-write",
        "random-read-cold",
        "random-write-0",
        "random-write-25",
        "read-of-copy-cold",
        "sequential-read-cold",
        "sequential-reread",
        "sequential-write-0",
        "sequential-write-25",
        "tree-copy",
        "tree-copy-2-clients",
        "tree-copy-4-clients",
        "tree-copy-again",
        "tree-delete",
        "tree-read-cold",
        "tree-read-cold-2-clients",
        "tree-read-cold-4-clients",
        "tree-walk-cold",
        "tree-walk-warm",
    ];
    let missing: Vec<_> = expected.iter().filter(|name| !workloads("ext4").contains(*name)).collect();
    assert!(missing.is_empty(), "not measured: {missing:?}");
    assert_eq!(report["read_paths"].as_array().unwrap().len(), 4);
    for row in rows.iter().filter(|row| row["workload"] == "sequential-write-25") {
        assert!(row["device_written_settled"].as_u64().unwrap() >= 24 << 20, "all data reaches the device: {row}");
    }
}

#[test]
fn a_tiny_run_over_fragmentation_tells_every_part_on_every_mount_and_leaves_nothing() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let readings_directory = tempfile::tempdir().unwrap();
    let readings_file = readings_directory.path().join("readings.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncefs-bench"));
    command.args(["fragmentation", "--size=10M", "--write-size=10M", "--replay-size=10M", "--requests=200"]);
    command.args(["--scattered-size=10M"]);
    command.args(["--thresholds=8", "--stitched=1,4", "--readers=own", "--mixes=corporate"]);
    command.args(["--io=buffered", "--repetitions=1", "--dir"]).arg(directory.path());
    let output = command.arg("--json").arg(&readings_file).stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_nothing_is_left_in(directory.path());

    let readings: serde_json::Value = serde_json::from_slice(&std::fs::read(&readings_file).unwrap()).unwrap();
    let counts =
        ["stitched", "scattered", "detector", "response", "cache"].map(|part| readings[part].as_array().unwrap().len());
    assert_eq!(counts, [2 * 3, 2, 3, 3, 6]);
    let stitched = readings["stitched"].as_array().unwrap();
    let of = |mount: &str, file: &str| stitched.iter().find(|r| r["mount"] == mount && r["file"] == file).unwrap();
    let shared = |mount, file| of(mount, file)["blocks"][1].as_u64().unwrap();
    assert_eq!((shared("1", "pieces of 1-3"), shared("1", "fresh")), (2_560, 0));
    assert!(shared("4", "pieces of 1-3") < 256 && shared("4", "pieces of 16-64") > 2_304);
}

/// Runs a subcommand at its smallest in a directory that is empty again afterwards. Gives its readings.
fn readings_of(words: &[&str]) -> serde_json::Value {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let readings_directory = tempfile::tempdir().unwrap();
    let readings_file = readings_directory.path().join("readings.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncefs-bench"));
    command.args(words).arg("--dir").arg(directory.path()).arg("--json").arg(&readings_file);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_nothing_is_left_in(directory.path());
    serde_json::from_slice(&std::fs::read(&readings_file).unwrap()).unwrap()
}

#[test]
fn a_tiny_run_of_disks_judges_both_file_systems() {
    let pages = tempfile::tempdir().unwrap();
    let page = pages.path().join("disks.md");
    let to = format!("--page={}", page.display());
    let sizes = ["--file-size=24M", "--synced-writes=20", "--tree-files=60", "--repetitions=1"];
    let words: Vec<&str> = ["disks", "--parts=trees,synced", &to].into_iter().chain(sizes).collect();
    let readings = readings_of(&words);
    let rows = readings.as_array().unwrap();
    let workloads = |side: &str| -> BTreeSet<&str> {
        rows.iter().filter(|row| row["side"] == side).map(|row| row["workload"].as_str().unwrap()).collect()
    };
    assert_eq!(workloads("ext4").len(), 8);
    for side in ["disk", "xfs", "disk-xfs", "oncefs"] {
        assert_eq!(workloads(side), workloads("ext4"), "{side}");
    }
    let again = rows.iter().find(|row| row["side"] == "disk" && row["workload"] == "tree-copy-again").unwrap();
    assert!(again["stored_growth"].is_u64() && again["limit_share"].is_null());
    let page = std::fs::read_to_string(&page).unwrap();
    // Eleven lines have no figures, of two file systems each.
    assert_eq!(page.matches("not measured yet").count(), 11 * 2, "{page}");
}

#[test]
fn a_tiny_run_of_selective_ranks_files_saves_by_rank_and_counts_what_there_is() {
    let corpus = tempfile::tempdir().unwrap();
    (0..30).for_each(|file| std::fs::write(corpus.path().join(file.to_string()), vec![1; 9_000]).unwrap());
    let desktop = format!("--desktop={}", corpus.path().display());
    let plots = tempfile::tempdir().unwrap();
    let to = format!("--plots={}", plots.path().display());
    let readings = readings_of(&["selective", "--bytes=16M", "--sequential=50", "--workloads=high", &desktop, &to]);
    let synthetic = readings["synthetic"]["readings"].as_array().unwrap();
    let of = |case: &str| &synthetic.iter().find(|reading| reading["case"] == case).unwrap()["saved"];
    let used = ["None", "Big", "Selective", "Small"].map(|case| of(case)["used_bytes"].as_u64().unwrap());
    assert!(used.is_sorted_by(|more, less| more >= less) && used[0] > used[3], "{used:?}");
    let ranks: Vec<u64> = serde_json::from_value(of("Selective")["ranks"].clone()).unwrap();
    assert_eq!((ranks[0], ranks[3]), (0, 0), "all files were read after the evaluation interval: {ranks:?}");
    assert!(ranks[1] > 0 && ranks[2] > 0, "{ranks:?}");
    let counted = &readings["synthetic"]["counted"][0][2];
    assert_eq!(counted["bytes"], of("None")["mapped_bytes"]);
    assert_eq!(readings["real"]["readings"].as_array().unwrap().len(), 4);
    assert!(plots.path().join("selective-figure-9-all-50.svg").exists());
}

#[test]
fn a_tiny_run_over_chunks_reads_fewer_runs_of_longer_ones_and_saves_less_with_them() {
    let corpus = tempfile::tempdir().unwrap();
    let block = |number: usize| vec![number as u8; 4_096];
    let file = |blocks: std::ops::Range<usize>| blocks.flat_map(block).collect::<Vec<u8>>();
    // Two files begin alike: four blocks, less than a chunk of 32 KiB.
    std::fs::write(corpus.path().join("one"), file(1..40)).unwrap();
    std::fs::write(corpus.path().join("two"), [file(1..5), file(50..90)].concat()).unwrap();
    let desktop = format!("--desktop={}", corpus.path().display());
    let words = ["selective", "--parts=chunks,blocks", "--bytes=4M", "--chunk-file=3M", &desktop];
    let readings = readings_of(&words)["chunks"].clone();
    let of = |list: &str, key: &str, kib: u64| {
        readings[list].as_array().unwrap().iter().find(|reading| reading[key] == kib).unwrap().clone()
    };
    let runs = |kib| of("reads", "chunk_kib", kib)["runs"].as_u64().unwrap();
    assert!(runs(4) > 700 && runs(64) == 3 * 16 && runs(1_024) <= 3, "{readings}");
    let used = |kib| of("saved", "chunk_kib", kib)["saved"]["used_bytes"].as_u64().unwrap();
    assert_eq!(used(32) - used(16), 4 * 4_096, "{readings}");
    let counted = |kib| of("counted", "block_kib", kib)["duplicate_bytes"].as_u64().unwrap();
    assert_eq!([4, 16, 32].map(counted), [4 * 4_096, 4 * 4_096, 0]);
}

#[test]
fn a_tiny_run_with_a_battery_finds_less_the_emptier_it_is() {
    let words = ["adaptive", "--battery", "--profiles=smartdedup", "--duplicate-size=16M", "--repetitions=1"];
    let readings = readings_of(&words);
    let found = |supply: &str| {
        let of = |reading: &&serde_json::Value| reading["supply"] == supply;
        readings.as_array().unwrap().iter().find(of).unwrap()["duplicates"][1].as_u64().unwrap()
    };
    assert_eq!((found("ext4"), found("off")), (0, 0));
    assert!(found("mains") > found("60 %") && found("60 %") > found("28 %"), "{readings}");
}

#[test]
fn a_tiny_run_of_overhead_measures_every_mount() {
    let readings = readings_of(&["overhead", "--quick", "--parts=utilities,webserver,yield", "--tree-files=60"]);
    let count = |part: &str| readings[part].as_array().unwrap().len();
    assert_eq!((count("utilities"), count("webserver")), (3 * 4, 3));
    assert!(count("yielding") >= 1);
}

#[test]
fn a_tiny_run_of_once_measures_every_side_with_every_source_and_finds_each_copy() {
    let words = ["once", "--quick", "--size=24M", "--duplicates=0,25", "--parts=writes,latency,detector,copies"];
    let readings = readings_of(&words);
    let count = |part: &str| readings[part].as_array().unwrap().len();
    // Two memories: four sides without duplicates, three sides and two sources with them.
    assert_eq!((count("writes"), count("throttled")), (2 * (4 + 3 * 2), 0));
    assert_eq!((count("latency"), count("detector"), count("copies")), (2 * 4, 3 * 2, 2));
    let exact = |reading: &serde_json::Value| reading["exact_bytes"].as_u64().unwrap();
    for reading in readings["writes"].as_array().unwrap() {
        let percent = reading["setting"]["duplicate_percent"].as_u64().unwrap();
        assert_eq!(exact(reading), (6_144 - 6_144 * percent / 100) * 4_096, "{reading}");
        assert!(reading["best_bytes"].as_u64().unwrap() >= exact(reading), "{reading}");
    }
    for reading in readings["copies"].as_array().unwrap() {
        let added = [0, 1].map(|copy| reading["data_bytes"][copy].as_u64().unwrap());
        assert!(added[0] > 20 << 20 && added[1] * 10 < added[0], "{reading}");
    }
}

#[test]
fn a_tiny_run_of_peers_copies_a_corpus_to_each_system_and_writes_a_page() {
    let corpora = tempfile::tempdir().unwrap();
    let page = corpora.path().join("page.md");
    for item in ["one", "two"] {
        let directory = corpora.path().join("npm").join(item);
        std::fs::create_dir_all(&directory).unwrap();
        (0..200_u8).for_each(|file| {
            let content: Vec<u8> = (0..40_960_u32).map(|at| (at >> 12) as u8 ^ file | 1).collect();
            std::fs::write(directory.join(file.to_string()), content).unwrap();
        });
    }
    let mut words = vec!["peers", "--only=npm", "--systems=ext4,squashfs,oncefs-default", "--corpora"];
    words.extend([corpora.path().to_str().unwrap(), "--page", page.to_str().unwrap()]);
    let readings = readings_of(&words);
    let of = |system: &str| readings.as_array().unwrap().iter().find(|reading| reading["system"] == system).unwrap();
    for system in ["Ext4", "Squashfs", "OncefsDefault"] {
        assert_eq!(of(system)["bytes"].as_u64().unwrap(), 2 * 200 * 40_960, "{system}");
        assert!(of(system)["device_bytes"].as_u64().unwrap() > 0, "{system}");
    }
    let stored = |system: &str| of(system)["stored_bytes"].as_u64().unwrap();
    assert!(stored("OncefsDefault") < stored("Ext4") && stored("Squashfs") < stored("Ext4"), "{readings}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("\n## npm\n") && page.contains("| oncefs, default "), "{page}");
}

#[test]
fn a_tiny_churn_of_a_tree_is_measured_with_and_without_compression() {
    let tree = tempfile::tempdir().unwrap();
    for file in 0..60_u64 {
        let lines: String = (0..2_000).map(|line| format!("line {} of file {file}\n", line * 7 + file)).collect();
        std::fs::write(tree.path().join(file.to_string()), lines).unwrap();
    }
    let pages = tempfile::tempdir().unwrap();
    let page = pages.path().join("churn.md");
    let to = format!("--page={}", page.display());
    let outcomes =
        readings_of(&["churn", "--rounds=1", "--settings=ext4,off,later", &to, tree.path().to_str().unwrap()]);
    let number = |of: usize, path: &str| outcomes[of].pointer(path).and_then(|value| value.as_u64()).unwrap();
    for (of, compresses) in [(0, false), (1, false), (2, true)] {
        assert!(number(of, "/rounds/0/written_bytes") > 1_000_000, "{outcomes}");
        assert!(number(of, "/rounds/1/written_bytes") > 500_000, "{outcomes}");
        for when in ["copied", "used"] {
            assert!(number(of, &format!("/{when}/device_bytes")) > 500_000, "{outcomes}");
            assert!(number(of, &format!("/{when}/stored_bytes")) > 100_000, "{outcomes}");
        }
        assert_eq!(number(of, "/rounds/1/after/fragment_bytes") > 0, compresses, "{outcomes}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("| oncefs, off ") && page.contains("\n### oncefs, later\n"), "{page}");
}

#[test]
fn a_tiny_replay_plays_a_trace_and_a_twin_on_ext4_and_on_oncefs() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("fiu");
    let lines = (0..600_u32).map(|at| format!("{at}000 1 p {} 8 W 6 0 {:032x}\n", at * 8, at % 100 + 1));
    std::fs::write(&trace, lines.collect::<String>() + "700000 1 p 0 64 R 6 0 -\n").unwrap();
    let words = ["replay", trace.to_str().unwrap(), "--twin=1", "--scale=32768", "--repetitions=1", "--io=direct"];
    let readings = readings_of(&words);
    let of = |name: &str, mount: &str| {
        let is_it = |reading: &&serde_json::Value| reading["trace"] == name && reading["mount"] == mount;
        readings.as_array().unwrap().iter().find(is_it).unwrap().clone()
    };
    for mount in ["ext4", "oncefs, desktop", "oncefs, smartdedup"] {
        assert_eq!(of("fiu", mount)["writes"]["operations"], 600, "{mount}");
        assert_eq!(of("fiu", mount)["reads"]["operations"], 1, "{mount}");
        assert!(of("twin 1, 1/32768", mount)["device_bytes"].as_u64().unwrap() > 1 << 20, "{mount}");
    }
    let used = |mount: &str| of("fiu", mount)["used_bytes"].as_u64().unwrap();
    assert!(used("oncefs, desktop") < used("ext4"), "{readings}");
}

#[test]
fn a_tiny_run_of_a_paper_writes_its_page_and_goes_on_with_what_it_has() {
    let [directory, kept, pages] = ["/var/tmp", "/tmp", "/tmp"].map(|place| tempfile::tempdir_in(place).unwrap());
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncefs-bench"));
        command.args(["paper", "lrlfs", "--scale=0.01", "--repetitions=1", "--dir"]).arg(directory.path());
        command.arg("--readings").arg(kept.path()).arg("--pages").arg(pages.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_nothing_is_left_in(directory.path());
        std::fs::read(kept.path().join("lrlfs-writes.json")).unwrap()
    };
    assert_eq!(run(), run(), "what is there is not measured anew");
    let page = std::fs::read_to_string(pages.path().join("paper-lrlfs.md")).unwrap();
    assert!(!page.contains("not measured yet") && page.contains("(plots/paper-lrlfs-2.svg)"), "{page}");
    assert!(pages.path().join("plots/paper-lrlfs-2.svg").exists());
    let summary = std::fs::read_to_string(pages.path().join("papers.md")).unwrap();
    assert!(summary.contains("(paper-lrlfs.md)"), "{summary}");
}

/// The program that another one started, if it started one.
fn child_of(process: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap();
    children.split_whitespace().next().map(|child| child.parse().unwrap())
}

fn kill(process: u32) {
    // SAFETY: kill touches no memory; the process is one that this test started.
    assert_eq!(unsafe { libc::kill(process as libc::pid_t, libc::SIGKILL) }, 0);
}

#[test]
fn a_paper_that_is_killed_goes_on_with_the_next_repetition_and_clears_what_the_killed_run_left() {
    let [directory, kept, pages] = ["/var/tmp", "/tmp", "/tmp"].map(|place| tempfile::tempdir_in(place).unwrap());
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_oncefs-bench"));
        command.args(["paper", "lrlfs", "--figure=3", "--scale=0.01", "--repetitions=2", "--dir"]);
        command.arg(directory.path()).arg("--readings").arg(kept.path()).arg("--pages").arg(pages.path());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let readings = || -> Option<serde_json::Value> {
        let bytes = std::fs::read(kept.path().join("lrlfs-writes.json")).ok()?;
        Some(serde_json::from_slice(&bytes).unwrap())
    };
    let mut run = command().stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(run.stderr.take().unwrap());
    wait_for_line(&mut stderr, "next: lrlfs-writes, 2 of 2");
    wait_for_line(&mut stderr, "repetition 2, ");
    let of_first = readings().unwrap();
    assert_eq!(of_first["repetitions"], 1, "the first repetition is kept before the second begins");
    // The child first: it must not have time to remove anything.
    kill(child_of(run.id()).unwrap());
    kill(run.id());
    run.wait().unwrap();
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left.len(), 1, "the killed run left its directory: {left:?}");
    // It ends once its last request to the device does.
    std::fs::File::open(left[0].join("lock")).unwrap().lock().unwrap();

    let again = command().output().unwrap();
    let said = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(again.status.success() && said.contains("1 repetitions left, about"), "{said}");
    assert_nothing_is_left_in(directory.path());
    let of_both = readings().unwrap();
    assert_eq!(of_both["repetitions"], 2);
    let rows = |readings: &serde_json::Value| readings["readings"]["rows"].as_array().unwrap().clone();
    let (first, both) = (rows(&of_first), rows(&of_both));
    assert_eq!(both[..first.len()], first[..], "what was there is kept");
    assert_eq!(both.len(), 2 * first.len());
}

/// Reads until a line holds `part`; the rest stays readable, as a terminal would stay open.
fn wait_for_line(stderr: &mut impl BufRead, part: &str) {
    let mut line = String::new();
    while !line.contains(part) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "the benchmark ended before it said `{part}`");
    }
}

#[test]
fn an_interrupted_run_fails_and_leaves_nothing() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let mut child = bench(directory.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for_line(&mut stderr, "repetition 1, flat");
    // SAFETY: the process is our child and has not been waited for.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    wait_for_line(&mut stderr, "interrupted");
    assert_eq!(child.wait().unwrap().code(), Some(1), "the interrupted run ended otherwise than by its error");
    assert_nothing_is_left_in(directory.path());
}
