//! What a user who writes a guess can learn of what others store, and the settings that close that.
//!
//! Shown by what is counted, as times depend on the machine; the ignored test measures times.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

use oncefs_system_tests::{BLOCK, Mount, Random, bytes, oncefs, run, seed, sys, test_dir};

/// Blocks of a guess.
const GUESS: u64 = 256;

/// All that a write takes, and what it takes away of the available space.
fn cost_of_writing(mount: &Mount, name: &str, content: &[u8]) -> BTreeMap<String, i64> {
    let before = figures(mount);
    let file = File::create(mount.join(name)).unwrap();
    file.write_all_at(content, 0).unwrap();
    file.sync_all().unwrap();
    let after = figures(mount);
    after
        .into_iter()
        .map(|(name, value)| {
            let change = value - before[&name];
            (name, change)
        })
        .collect()
}

/// Figures that depend on what was asked for and not on when: not how requests came together in groups.
const COUNTERS: [&str; 14] = [
    "blocks_written",
    "blocks_zero",
    "blocks_unchanged",
    "blocks_not_admitted",
    "blocks_fingerprinted",
    "blocks_compared",
    "blocks_shared",
    "blocks_placed",
    "blocks_freed",
    "hints_refused",
    "data_bytes_written",
    "data_bytes_read",
    "disk_level_hits",
    "blocks_remapped",
];

fn figures(mount: &Mount) -> BTreeMap<String, i64> {
    let stats = mount.stats();
    let counter = |name: &str| stats["counters"][name].as_i64().unwrap_or_else(|| panic!("no {name} in {stats:#}"));
    let mut figures: BTreeMap<String, i64> = COUNTERS.map(|name| (name.to_owned(), counter(name))).into();
    for stage in ["lookup", "decide", "confirm"] {
        figures.insert(stage.to_owned(), stats["stages"][stage]["blocks"].as_i64().unwrap_or(0));
    }
    let hints = &stats["caches"]["hints"];
    figures.insert("hints asked for".to_owned(), hints["hits"].as_i64().unwrap() + hints["misses"].as_i64().unwrap());
    let space = sys::space(&mount.dir()).unwrap();
    figures.insert("available".to_owned(), (space.f_bavail * space.f_frsize) as i64);
    figures
}

/// What somebody else stores, written under the mount's own settings.
fn store_a_secret(mount: &Mount) -> Vec<u8> {
    let secret = bytes(1, (GUESS * BLOCK) as usize);
    fs::write(mount.join("theirs"), &secret).unwrap();
    File::open(mount.join("theirs")).unwrap().sync_all().unwrap();
    secret
}

#[test]
fn with_inline_off_and_no_worker_a_right_guess_takes_the_same_steps_as_a_wrong_one() {
    let mount = Mount::on(&test_dir(), "256M", &["inline=off,worker=off"]);
    let secret = store_a_secret(&mount);
    let wrong = cost_of_writing(&mount, "wrong", &bytes(2, secret.len()));
    let right = cost_of_writing(&mount, "right", &secret);
    assert_eq!(right, wrong);
    assert_eq!(right["available"], -((GUESS * BLOCK) as i64), "it is stored once more");
    assert_eq!((right["blocks_placed"], right["hints asked for"], right["lookup"]), (GUESS as i64, 0, 0));
}

#[test]
fn with_inline_off_only_the_worker_tells_later_and_by_the_free_space_alone() {
    let mount = Mount::on(&test_dir(), "256M", &["inline=off,worker=off"]);
    let secret = store_a_secret(&mount);
    cost_of_writing(&mount, "right", &secret);
    let space = || {
        let found = sys::space(&mount.dir()).unwrap();
        found.f_bavail * found.f_frsize
    };
    let blocks = || {
        use std::os::unix::fs::MetadataExt;
        fs::metadata(mount.join("right")).unwrap().blocks()
    };
    let (space_before, blocks_before) = (space(), blocks());
    run(Command::new(oncefs()).args(["dedup", "--now", "--full"]).arg(mount.dir()));
    mount.wait_for("counters", "blocks_remapped", |remapped| remapped >= GUESS);
    run(Command::new(oncefs()).arg("sync").arg(mount.dir()));
    assert_eq!(space() - space_before, GUESS * BLOCK, "df says what is free to the byte");
    assert_eq!(blocks(), blocks_before, "the file itself does not tell");
}

#[test]
fn with_inline_on_a_right_guess_shows_at_once() {
    let mount = Mount::on(&test_dir(), "256M", &["inline=all,worker=off"]);
    let secret = store_a_secret(&mount);
    let wrong = cost_of_writing(&mount, "wrong", &bytes(2, secret.len()));
    let right = cost_of_writing(&mount, "right", &secret);
    assert_eq!((right["available"], right["blocks_placed"]), (0, 0), "this is what deduplication is");
    assert_eq!((wrong["available"], wrong["blocks_placed"]), (-((GUESS * BLOCK) as i64), GUESS as i64));
}

/// Guesses of each kind that are timed.
const TIMED: usize = 300;

/// Prints the times of write and fsync for right and wrong guesses; docs/results/older/security.md has them.
#[test]
#[ignore = "measures: its figures are for docs/results/older/security.md"]
fn measure_what_a_guess_costs() {
    let mut random = Random::new(seed());
    for options in ["inline=all,worker=off", "inline=off,worker=off"] {
        for blocks in [1, GUESS] {
            let mount = Mount::on(&test_dir(), "2G", &[options]);
            let guess = |number: u64| bytes(number + 1000, (blocks * BLOCK) as usize);
            let theirs = File::create(mount.join("theirs")).unwrap();
            (0..TIMED as u64).for_each(|n| theirs.write_all_at(&guess(n), n * blocks * BLOCK).unwrap());
            theirs.sync_all().unwrap();
            let mut times = [Vec::new(), Vec::new()];
            let mine = OpenOptions::new().write(true).create(true).truncate(true).open(mount.join("mine")).unwrap();
            for turn in 0..2 * TIMED as u64 {
                let is_right = times[1].len() < TIMED && (times[0].len() == TIMED || random.one_in(2));
                let number = if is_right { times[1].len() as u64 } else { 1_000_000 + turn };
                let content = guess(number);
                let start = Instant::now();
                mine.write_all_at(&content, turn * blocks * BLOCK).unwrap();
                mine.sync_all().unwrap();
                times[usize::from(is_right)].push(start.elapsed().as_micros());
            }
            let [wrong, right] = times.map(quartiles);
            println!("{options}, {blocks} blocks: right {right:?}, wrong {wrong:?} us (p25, p50, p75)");
        }
    }
}

fn quartiles(mut times: Vec<u128>) -> [u128; 3] {
    times.sort_unstable();
    [1, 2, 3].map(|quarter| times[times.len() * quarter / 4])
}
