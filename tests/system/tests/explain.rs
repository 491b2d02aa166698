//! `oncefs explain` and `oncefs stats --fragmentation` on files whose layout is known, because this test made it.
//!
//! Bad blocks, portions, runs across them and random files: the engine's own tests. Who may ask: `security`.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use oncefs_system_tests::{Mount, Random, bytes, oncefs, run, run_json, seed, sys, test_dir};
use serde_json::Value;

const BLOCK: usize = 4096;

fn blocks(content: &[u8], from: usize, count: usize) -> &[u8] {
    &content[from * BLOCK..(from + count) * BLOCK]
}

/// Writes blocks in one request that reaches the daemon before this returns.
fn write(path: &Path, at: usize, content: &[u8]) {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all_at(content, (at * BLOCK) as u64).unwrap();
    file.sync_all().unwrap();
}

fn tune(mount: &Mount, setting: &str) {
    run(Command::new(oncefs()).arg("tune").arg(mount.dir()).arg(setting));
}

fn explain(path: &Path, options: &[&str]) -> String {
    run(Command::new(oncefs()).arg("explain").arg(path).args(options))
}

fn explained(path: &Path) -> Value {
    run_json(Command::new(oncefs()).arg("explain").arg(path).arg("--json"))
}

/// Each run in one line: where, how long, why.
fn lines(path: &Path) -> Vec<String> {
    let said = explained(path);
    let line = |run: &Value| format!("{}+{} {}", run["lbn"], run["blocks"], run["why"].as_str().unwrap());
    said["runs"].as_array().unwrap().iter().map(line).collect()
}

fn fails(arguments: &[&str], path: &Path) -> String {
    let Output { status, stderr, .. } = Command::new(oncefs()).args(arguments).arg(path).output().unwrap();
    assert!(!status.success(), "{arguments:?} {}", path.display());
    String::from_utf8(stderr).unwrap()
}

const WAITS: &str = "not yet compared with all content (queued for the worker)";

#[test]
fn every_run_is_told_with_whom_and_why() {
    let mut mount = Mount::on(&test_dir(), "256M", &["inline=all,worker=off,run_blocks_min=8"]);
    let (a, own) = (bytes(1, 64 * BLOCK), bytes(2, 40 * BLOCK));
    let (a_at, b_at, c_at) = (mount.join("dir/a"), mount.join("b"), mount.join("c"));
    fs::create_dir(mount.join("dir")).unwrap();
    write(&a_at, 0, &a);
    fs::hard_link(&a_at, mount.join("link")).unwrap();

    // Sixteen blocks of the other file in the middle, a hole, data, and space reserved behind the end.
    write(&b_at, 0, &[blocks(&own, 0, 12), blocks(&a, 20, 16), blocks(&own, 12, 12)].concat());
    write(&b_at, 50, blocks(&own, 24, 4));
    let file = OpenOptions::new().write(true).open(&b_at).unwrap();
    sys::fallocate(&file, libc::FALLOC_FL_KEEP_SIZE, 60 * BLOCK as u64, 10 * BLOCK as u64).unwrap();
    drop(file);
    let told = lines(&b_at);
    let shared = &told[1];
    assert!(shared.starts_with("12+16 shared: run of 16 with /") && shared.ends_with("at block 20"), "{told:#?}");
    let waiting = |at: &str| format!("{at} {WAITS}");
    let (first, third, fifth) = (waiting("0+12"), waiting("28+12"), waiting("50+4"));
    let expected = [&first, shared, &third, "40+10 hole", &fifth, "54+6 hole", "60+10 reserved"];
    assert_eq!(told, expected);
    let said = explained(&b_at);
    let with = &said["runs"][1]["with"][0];
    let mut paths: Vec<&str> = with["paths"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    paths.sort_unstable();
    assert_eq!((paths, &with["is_itself"]), (vec!["/dir/a", "/link"], &Value::from(false)));
    assert_eq!((&said["run_blocks_min"], &said["run_blocks_min_from"]), (&8.into(), &"set by run_blocks_min".into()));
    let sums = &said["blocks"];
    let sum = |name: &str| sums[name].as_u64().unwrap();
    assert_eq!(["data", "shared", "own", "reserved", "hole"].map(sum), [44, 16, 28, 10, 16], "{sums}");

    // Three blocks that are equal to some of the other file: fewer than the minimum.
    tune(&mount, "inline=off");
    let other = bytes(3, 10 * BLOCK);
    write(&c_at, 0, &[blocks(&other, 0, 5), blocks(&a, 5, 3), blocks(&other, 5, 5)].concat());
    let told = lines(&c_at);
    let short = "5+3 not shared: the longest run of equal blocks has 3, /";
    assert!(told[1].starts_with(short) && told[1].contains(" at block 5, the minimum is 8"), "{told:#?}");
    tune(&mount, "run_blocks_min=3");
    assert!(lines(&c_at)[1].starts_with(&format!("5+3 {WAITS}: equal to /")), "{:#?}", lines(&c_at));

    run(Command::new(oncefs()).args(["dedup", "--now"]).arg(mount.dir()));
    let told = lines(&b_at);
    assert_eq!(
        [&told[0], &told[2]],
        ["0+12", "28+12"].map(|at| format!("{at} stored anew: no equal block known")).each_ref()
    );
    mount.check();
    assert_eq!(lines(&b_at)[1..], told[1..], "after a mount the same is known");
}

#[test]
fn a_file_that_repeats_itself_shares_with_itself_and_nothing_is_told_of_what_is_no_file() {
    let mount = Mount::on(&test_dir(), "256M", &["inline=all,worker=off,run_blocks_min=1"]);
    let (data, file) = (bytes(1, 16 * BLOCK), mount.join("file"));
    (0..7).for_each(|n| write(&file, n * 16, &data));
    let told = lines(&file);
    assert_eq!(told.len(), 7, "{told:#?}");
    let places = [16, 32, 48, 64].map(|lbn| format!("this file at block {lbn}")).join(", ");
    assert_eq!(told[0], format!("0+16 shared: run of 16 with {places} and 2 more"));
    let text = explain(&file, &[]);
    assert!(
        text.lines().last().unwrap().starts_with("total   448 KiB in 7 runs: 448 KiB shared, 0 B not shared"),
        "{text}"
    );
    let by_block = explain(&file, &["--blocks", "--no-names"]);
    assert_eq!(by_block.lines().filter(|line| line.ends_with("shared: run of 16, up to 7 references")).count(), 7 * 16);

    let empty = mount.join("empty");
    File::create(&empty).unwrap();
    assert_eq!(lines(&empty), [""; 0]);
    assert!(fails(&["explain"], &mount.dir()).contains("is not a regular file"));
    assert!(fails(&["explain"], &mount.join("missing")).contains("No such file"));
    assert!(fails(&["explain"], Path::new("/proc/self/status")).contains("not in a mounted oncefs volume"));
}

/// Changes of a file while it is explained.
const CHANGES: u64 = 400;

#[test]
fn a_file_that_is_written_meanwhile_is_told_without_gaps_and_rightly_in_the_end() {
    let mut random = Random::new(seed());
    let mount = Mount::on(&test_dir(), "512M", &["inline=all"]);
    let (data, path) = (bytes(1, 600 * BLOCK), mount.join("file"));
    // Longer than a portion, so that it changes between two.
    let size_blocks = 20_000;
    let file = File::create(&path).unwrap();
    file.set_len((size_blocks * BLOCK) as u64).unwrap();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..CHANGES {
                let (from, count) = (random.below(500) as usize, 1 + random.below(90) as usize);
                let at = random.below((size_blocks - count) as u64) * BLOCK as u64;
                match random.below(4) {
                    0 => {
                        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                        sys::fallocate(&file, punch, at, (count * BLOCK) as u64).unwrap();
                    }
                    _ => file.write_all_at(blocks(&data, from, count), at).unwrap(),
                }
            }
            is_done.store(true, Relaxed);
        });
        let mut looks = 0;
        while !is_done.load(Relaxed) || looks == 0 {
            assert_covered(&explained(&path), size_blocks as u64);
            looks += 1;
        }
        println!("looked {looks} times");
    });
    file.sync_all().unwrap();
    let said = explained(&path);
    assert_covered(&said, size_blocks as u64);
    let bytes = fs::read(&path).unwrap();
    for run in said["runs"].as_array().unwrap() {
        let (lbn, count) = (run["lbn"].as_u64().unwrap() as usize, run["blocks"].as_u64().unwrap() as usize);
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let mut found = blocks(&bytes, lbn, count).chunks_exact(BLOCK);
        assert!(found.all(|block| is_zero(block) == (run["what"] == "hole")), "{run}");
    }
}

fn assert_covered(said: &Value, size_blocks: u64) {
    let mut at = 0;
    for run in said["runs"].as_array().unwrap() {
        assert_eq!(run["lbn"].as_u64().unwrap(), at, "{run}");
        at += run["blocks"].as_u64().unwrap();
    }
    assert_eq!(at, size_blocks);
}

#[test]
fn the_layout_of_all_files_names_the_most_broken_ones_and_can_be_drawn() {
    let mount = Mount::on(&test_dir(), "256M", &["inline=all,worker=off"]);
    let whole = mount.join("whole");
    write(&whole, 0, &bytes(1, 100 * BLOCK));
    // Each block from elsewhere: as many runs as blocks.
    let (source, broken) = (File::open(&whole).unwrap(), File::create(mount.join("broken")).unwrap());
    for n in 0..40 {
        let from = (39 - n) * BLOCK as u64;
        sys::copy_range_all(&source, from, &broken, n * BLOCK as u64, BLOCK as u64).unwrap();
    }
    write(&mount.join("small"), 0, &bytes(2, BLOCK));
    File::create(mount.join("empty")).unwrap();

    let plot = mount.volume().parent().unwrap().join("layout.svg");
    let mut command = Command::new(oncefs());
    command.args(["stats", "--fragmentation", "--json", "--plot"]).arg(&plot).arg(mount.dir());
    let said = run_json(&mut command);
    assert_eq!((&said["files"], &said["blocks"]), (&3.into(), &141.into()), "{said:#}");
    assert_eq!(said["most_fragmented"][0]["paths"], serde_json::json!(["/broken"]), "{said:#}");
    assert_eq!(said["most_fragmented"][0]["runs"], 40);
    let classes = said["run_lengths"].as_array().unwrap();
    let sum = |name: &str| classes.iter().map(|class| class[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((sum("runs"), sum("blocks")), (said["runs"].as_u64().unwrap(), 141));
    assert_eq!(sum("shared_blocks"), 80, "forty blocks, each in two places: {said:#}");
    assert_eq!((&classes[0]["runs"], &classes[0]["shared_blocks"]), (&41.into(), &40.into()));
    assert!(fs::read_to_string(&plot).unwrap().starts_with("<svg"));

    let text = run(Command::new(oncefs()).args(["stats", "--fragmentation"]).arg(mount.dir()));
    assert!(text.starts_with("3 files with 564 KiB of data in"), "{text}");
    assert!(text.lines().any(|line| line.ends_with("/broken")), "{text}");
}
