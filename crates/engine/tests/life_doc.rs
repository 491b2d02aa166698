//! Holds `docs/life-of-a-block.md` to the code: its headings are the stages, its functions and counters exist.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod docs;

use std::collections::BTreeSet;

use docs::{quoted, section, text};
use oncefs_engine::{Counters, Stage};

const PAGE: &str = "docs/life-of-a-block.md";

/// Figures in the page's sentences, and the constants that they repeat.
const FIGURES: [(&str, &str, &str); 28] = [
    ("up to 16 blocks per call", "crates/engine/src/write/hash.rs", "LANES: usize = 16;"),
    ("names up to 16 pbns", "crates/dedup/src/hints.rs", "HOLDERS_MAX: usize = 16;"),
    ("At least 32 of them", "crates/engine/src/write/steps.rs", "DIRECT_BLOCKS_MIN: usize = 32;"),
    ("when 4 MiB have gathered", "crates/engine/src/write/steps.rs", "STAGED_BYTES_MAX: u64 = 4 << 20;"),
    (
        "5 seconds after a group's first change",
        "crates/engine/src/background/committer.rs",
        "COMMIT_AFTER: Duration = Duration::from_secs(5);",
    ),
    (
        "after 100 ms without one",
        "crates/engine/src/background/committer.rs",
        "COMMIT_AFTER_QUIET: Duration = Duration::from_millis(100);",
    ),
    ("at most 128 KiB", "crates/engine/src/commit/log_room.rs", "RIDING_BYTES_MAX: u64 = 128 << 10;"),
    ("Half a log full", "crates/engine/src/commit/commit_group.rs", "CHECKPOINT_FULLNESS: f64 = 0.5;"),
    (
        "After 250 ms without an admitted request",
        "crates/dedup/src/inline_admission.rs",
        "PROBE_AFTER: Duration = Duration::from_millis(250);",
    ),
    ("Up to 16,384 hints wait", "crates/engine/src/hints/store.rs", "WAITING_MAX: usize = 16_384;"),
    ("64 lbns take one entry", "crates/dedup/src/skipped.rs", "CHUNK_BLOCKS: u64 = u64::BITS as u64;"),
    ("every 30 seconds", "crates/engine/src/settings/values.rs", "skipped_checkpoint: Duration::from_secs(30),"),
    ("for how many blocks, 256 at a time", "crates/dedup/src/pace.rs", "BATCH_BLOCKS: u64 = 256;"),
    ("took longer than 25 ms", "crates/dedup/src/pace/batch.rs", "TARGET: Duration = Duration::from_millis(25);"),
    (
        "asked for anything for 500 ms",
        "crates/engine/src/settings/values.rs",
        "idle_after: Duration::from_millis(500),",
    ),
    ("more than 10 % slower", "crates/dedup/src/pace.rs", "slowdown_max: 0.10"),
    ("rests 16 times as long", "crates/dedup/src/pace.rs", "REST_FACTOR_BESIDE_LOAD_MAX: u32 = 16;"),
    ("by up to 16 shards at a time", "crates/engine/src/worker/worklist.rs", "PORTION_SHARDS_MAX: u64 = 16;"),
    ("up to 128 blocks in a request", "crates/engine/src/worker/revisit.rs", "COMPARED_BLOCKS_MAX: usize = 128;"),
    ("at most 256 places at a time", "crates/engine/src/worker/remap.rs", "PORTION: usize = 256;"),
    (
        "one every 500 ms, or",
        "crates/engine/src/worker/work_loop.rs",
        "SLEEP_MAX: Duration = Duration::from_millis(500);",
    ),
    ("the one page of 4 KiB", "crates/engine/src/format/hint_page.rs", "BYTES: usize = 4096;"),
    ("The scrub, 256 blocks a turn", "crates/engine/src/damage/scrub.rs", "WINDOW_BLOCKS: u64 = 256;"),
    ("plans 1 GiB of it at a time", "crates/engine/src/layout/defrag.rs", "WINDOW_SHARDS: usize = 1_024;"),
    (
        "A portion of 1 to 4 MiB",
        "crates/engine/src/layout/portion_size.rs",
        "PORTION_BLOCKS: (u64, u64) = (256, 1_024);",
    ),
    ("one part in 64 of the data area", "crates/engine/src/layout/defrag/portion.rs", "ROOM_SHARE: u64 = 64;"),
    ("half of its sectors at least", "crates/engine/src/damage/repair.rs", "AGREEING_SECTORS_MIN: usize = 4;"),
    ("a run of more than 32 blocks", "crates/engine/src/read/stored.rs", "CACHED_RUN_BLOCKS_MAX: usize = 32;"),
];

/// The lines that begin with this word, without it.
fn lines<'a>(page: &'a str, word: &str) -> Vec<&'a str> {
    page.lines().filter_map(|line| line.strip_prefix(word)).collect()
}

#[test]
fn the_headings_are_the_stages_in_order() {
    let page = text(PAGE);
    let expected: Vec<String> =
        Stage::ALL.iter().enumerate().map(|(at, stage)| format!("{}. {}", at + 1, stage.name())).collect();
    assert_eq!(lines(&page, "## "), expected);
}

#[test]
fn every_stage_says_its_crash_and_its_counters() {
    let page = text(PAGE);
    for part in page.split("\n## ").skip(1) {
        for word in ["Crash: ", "Counters: "] {
            assert_eq!(lines(part, word).len(), 1, "lines with {word:?} in {:?}", part.lines().next());
        }
    }
}

#[test]
fn every_function_is_where_the_page_says() {
    let mut found = 0;
    let mut steps = BTreeSet::new();
    for row in section(PAGE, "Where it is").rows() {
        let (functions, path) = (quoted(&row[1]), quoted(&row[2])[0]);
        let source = text(path);
        for function in functions {
            let is_there =
                [format!("fn {function}("), format!("fn {function}<")].iter().any(|start| source.contains(start));
            assert!(is_there, "{path} has no function {function}");
            found += 1;
        }
        steps.extend(row[0].split(", ").map(|step| step.split('.').next().unwrap().to_owned()));
    }
    assert!(found > 30, "only {found} functions were looked for");
    let stages: BTreeSet<String> = (1..=Stage::ALL.len()).map(|step| step.to_string()).collect();
    assert_eq!(steps, stages, "every step has a row");
}

#[test]
fn the_page_names_every_counter_and_no_other() {
    let page = text(PAGE);
    let named: BTreeSet<&str> =
        lines(&page, "Counters: ").iter().flat_map(|line| quoted(line.split("; the cache").next().unwrap())).collect();
    let counters = Counters::default().snapshot();
    assert_eq!(named, counters.keys().map(String::as_str).collect());
}

#[test]
fn every_figure_is_that_of_the_code() {
    let page = text(PAGE);
    for (sentence, path, constant) in FIGURES {
        assert!(page.contains(sentence), "{PAGE} does not say {sentence:?} any more");
        assert!(text(path).contains(constant), "{path} has no {constant:?}, but {PAGE} says {sentence:?}");
    }
}
