//! The `oncefs-sim` command from outside: what is made can be replayed, and bad input is refused with the way out.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

/// Runs the command with this on its stdin.
fn oncefs_sim(arguments: &str, stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_oncefs-sim"));
    let piped = command.args(arguments.split(' ')).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let bytes = stdin.to_vec();
    // It may end before it has read everything.
    let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn succeeded(output: Output) -> (String, String) {
    let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{stderr}");
    (stdout, stderr)
}

/// Cell of a design's row below a head.
fn cell(table: &str, design: &str, column: &str) -> String {
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let head = cells(table.lines().find(|line| line.starts_with("| design")).unwrap());
    let row = cells(table.lines().find(|line| line.starts_with(&format!("| {design} "))).unwrap());
    row[head.iter().position(|name| name == column).unwrap()].clone()
}

#[test]
fn a_made_trace_is_replayed_in_both_formats_with_the_same_result() {
    let found = ["fiu", "four"].map(|format| {
        let make = format!("generate --blocks 20000 --duplicates 0.4 --overwrites 0.2 --format {format}");
        let (trace, told) = succeeded(oncefs_sim(&make, b""));
        let share: f64 = told.split(' ').nth(2).unwrap().parse().unwrap();
        assert!(told.starts_with("20000 blocks: ") && (share - 40.0).abs() < 1.0, "{told}");
        let replay = format!("replay - --format {format} --design full --design none --memory 1M");
        let (table, _) = succeeded(oncefs_sim(&replay, trace.as_bytes()));
        assert_eq!(cell(&table, "none", "in-line"), "0");
        assert_eq!(cell(&table, "full", "of findable %"), "100.00");
        cell(&table, "full", "in-line")
    });
    assert_eq!(found[0], found[1]);
}

#[test]
fn a_damaged_line_ends_the_replay_with_its_number() {
    let trace = format!("1 0 1 {0}\n2 0 2 {0}\n3 0 x {0}\n", "0123456789abcdef".repeat(2));
    let output = oncefs_sim("replay - --format four", trace.as_bytes());
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(told, "oncefs-sim: -: line 3: the block number is 'x', not a whole number\n");
}

#[test]
fn a_trace_in_another_format_or_without_writes_is_refused() {
    let line = format!("1 0 1 {}\n", "0123456789abcdef".repeat(2));
    for (stdin, expected) in [(line.as_bytes(), "is --format right?"), (b"", "no write request in 0 lines")] {
        let output = oncefs_sim("replay -", stdin);
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8(output.stderr).unwrap().contains(expected));
    }
}

#[test]
fn tables_of_copies_are_made_into_traces() {
    let path = std::env::temp_dir().join(format!("oncefs-sim-copies-{}", std::process::id()));
    std::fs::write(&path, "0 900\n9 10\n").unwrap();
    let output = oncefs_sim(&format!("generate --blocks 1000 --run-blocks 1 --copies {}", path.display()), b"");
    std::fs::remove_file(&path).unwrap();
    let (trace, told) = succeeded(output);
    assert_eq!(trace.lines().count(), 1_000);
    assert!(told.contains("9.00 % duplicates") && told.contains("1000 blocks: 9.00 % repeat"), "{told}");
}

#[test]
fn the_comparison_prints_every_table_and_draws_every_chart() {
    let plots = std::env::temp_dir().join(format!("oncefs-sim-plots-{}", std::process::id()));
    let line = format!("twins --scale 64 --traces 3 --memory 16,40 --idle 1d --plots {}", plots.display());
    let (tables, _) = succeeded(oncefs_sim(&line, b""));
    for title in ["the twins", "eviction", "trace 3, found in-line", "two levels and one", "shortest runs", "aims"] {
        assert!(tables.lines().any(|line| line == title), "{title} is missing:\n{tables}");
    }
    for name in ["sim-trace-3.svg", "sim-eviction-duplicates.svg", "sim-eviction-ios.svg"] {
        assert!(std::fs::read_to_string(plots.join(name)).unwrap().ends_with("</svg>\n"), "{name}");
    }
    std::fs::remove_dir_all(&plots).unwrap();
}

#[test]
fn the_experiments_on_runs_print_every_table_and_draw_every_chart() {
    let plots = std::env::temp_dir().join(format!("oncefs-sim-runs-{}", std::process::id()));
    let (tables, _) = succeeded(oncefs_sim(&format!("idedup --quick --plots {}", plots.display()), b""));
    for figure in ["7", "8", "9", "10", "12"] {
        assert!(tables.lines().any(|line| line.ends_with(&format!("figure {figure})"))), "{figure}:\n{tables}");
    }
    for title in ["the twins", "two levels,", "buffer cache hits,", "savings lost", "aims"] {
        assert!(tables.lines().any(|line| line.starts_with(title)), "{title} is missing:\n{tables}");
    }
    let drawn = std::fs::read_dir(&plots).unwrap().map(|entry| entry.unwrap().path());
    let drawn: Vec<String> = drawn.map(|path| std::fs::read_to_string(path).unwrap()).collect();
    assert_eq!(drawn.iter().filter(|svg| svg.ends_with("</svg>\n")).count(), 14);
    std::fs::remove_dir_all(&plots).unwrap();
    let (again, _) = succeeded(oncefs_sim("idedup --quick --threads 1", b""));
    assert_eq!(tables, again, "a seed repeats its figures, in whatever order they are made");
}

#[test]
fn reads_are_replayed_beside_writes() {
    let trace = format!("1 0 1 {0}\n2 0 1 -\n3 0 2 {0}\n", "0123456789abcdef".repeat(2));
    let (told, _) = succeeded(oncefs_sim("replay - --format four --design full", trace.as_bytes()));
    assert!(told.starts_with("2 write requests, 1 read requests\n"), "{told}");
}

/// A directory with two equal files of 100 blocks and a small one, all old.
fn small_tree(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("oncefs-sim-{name}-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("below")).unwrap();
    let bytes: Vec<u8> = (0..100_u8).flat_map(|block| [block + 1; 4_096]).collect();
    for (file, bytes) in [("one", &bytes[..]), ("below/two", &bytes), ("three", &[255; 5_000])] {
        let path = dir.join(file);
        std::fs::write(&path, bytes).unwrap();
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
        let times = std::fs::FileTimes::new().set_modified(old).set_accessed(old);
        std::fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    }
    dir
}

#[test]
fn a_directory_is_recorded_and_replayed_in_both_formats() {
    let dir = small_tree("record");
    for format in ["fiu", "four"] {
        let (trace, told) = succeeded(oncefs_sim(&format!("record {} --format {format}", dir.display()), b""));
        assert_eq!(told, "3 files, 202 blocks written and 0 read\n");
        let replay = format!("replay - --format {format} --design full --design none");
        let (table, _) = succeeded(oncefs_sim(&replay, trace.as_bytes()));
        assert!(table.contains("202 blocks written, 0 of them zeros"), "{table}");
        assert_eq!((cell(&table, "full", "stored"), cell(&table, "none", "stored")), ("102".into(), "202".into()));
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_directory_is_ranked_as_its_recording_is() {
    let dir = small_tree("ranks");
    let trace = dir.with_extension("txt");
    succeeded(oncefs_sim(&format!("record {} --output {}", dir.display(), trace.display()), b""));
    let [tree, recorded] =
        [&dir, &trace].map(|path| succeeded(oncefs_sim(&format!("ranks {}", path.display()), b"")).0);
    assert_eq!(tree, recorded);
    let row = tree.lines().nth(3).unwrap().split('|').map(str::trim).collect::<Vec<_>>();
    assert_eq!(row[2..8], ["3", "0.00", "100.0", "0.0", "0.0", "0.0"], "{tree}");
    let (cold, _) = succeeded(oncefs_sim(&format!("ranks {} --after-seconds 1209600", dir.display()), b""));
    let row = cold.lines().nth(3).unwrap().split('|').map(str::trim).collect::<Vec<_>>();
    assert_eq!((row[4], row[7], row[12]), ("0.0", "100.0", "49.5"), "{cold}");
    std::fs::remove_dir_all(&dir).unwrap();
    std::fs::remove_file(&trace).unwrap();
}

#[test]
fn the_experiments_on_runs_take_a_directory() {
    let dir = small_tree("corpus");
    let (tables, _) = succeeded(oncefs_sim(&format!("idedup --corpus {}", dir.display()), b""));
    assert!(tables.contains(": 202 blocks written, 49.50 % of them duplicates, 0 read"), "{tables}");
    for title in ["found in-line,", "two levels,", "disk requests", "buffer cache hits,", "savings lost"] {
        assert!(tables.lines().any(|line| line.starts_with(title)), "{title} is missing:\n{tables}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_directory_that_is_not_there_is_told_by_name() {
    for command in ["record", "ranks"] {
        let output = oncefs_sim(&format!("{command} /nonexistent/dir"), b"");
        assert_eq!(output.status.code(), Some(1));
        assert!(String::from_utf8(output.stderr).unwrap().contains("/nonexistent/dir: "));
    }
}
