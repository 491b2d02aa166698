//! Words that only some sources may have, and why.

use std::collections::BTreeMap;

use oncefs_words::checkout::{sources_below, text};
use oncefs_words::packages::sources;

use super::assert_none;

/// A word that sources must not have, and the places that may, each with its reason.
struct Kept {
    word: &'static str,
    places: &'static [(&'static str, &'static str)],
}

const KEPT_WORDS: [Kept; 3] = [
    Kept {
        word: "rocksdb::",
        places: &[
            ("crates/engine/src/kv/rocks.rs", "the twin of the trait that is RocksDB"),
            ("crates/engine/src/kv/copies.rs", "copies the files that RocksDB says are live"),
            ("crates/engine/src/kv/merge.rs", "learns from RocksDB that a merge begins and ends"),
            ("crates/engine/src/kv/restore_in_use", "opens the database again after its files were restored"),
            ("crates/engine/src/kv/salvage", "makes a new database from a damaged one"),
            ("crates/engine/src/kv/rocks_errors.rs", "turns RocksDB's errors into ours"),
        ],
    },
    Kept {
        word: "blake3::",
        places: &[
            ("crates/engine/src/hash.rs", "hashes blocks"),
            ("crates/stream/src/digest.rs", "hashes the contents and records of streams"),
        ],
    },
    Kept {
        word: "libc::E",
        places: &[
            ("crates/transport/", "speaks errno with the kernel"),
            ("crates/fuse/", "turns errors into errno"),
            ("crates/rados/src/", "speaks errno with librados"),
            ("crates/cli/", "talks to the kernel about mounts and sockets itself"),
            ("tests/system/", "sees what programs see"),
            ("crates/engine/src/error.rs", "tells a full host from other errors"),
            ("crates/engine/src/device/file.rs", "reads the host's answers to O_DIRECT and SEEK_DATA"),
            ("crates/engine/src/device/file/tests.rs", "forbids io_uring to itself"),
            ("crates/engine/src/device/ring.rs", "reads the kernel's answers to a ring"),
            ("crates/engine/src/device/memory.rs", "fails when tests want it to"),
            ("crates/engine/src/device/faulty.rs", "fails when tests want it to"),
            ("crates/engine/src/background/threads.rs", "lets a thread fail to start in a test"),
            ("crates/engine/src/background/committer.rs", "copies an error that several barriers are told"),
            ("crates/engine/src/commit/log/cut.rs", "lets a block of the log fail in a test"),
            ("crates/engine/src/tests/revisit", "lets devices fail"),
            ("crates/engine/src/tests/unreadable_sectors.rs", "fails reads of the host's files"),
        ],
    },
];

/// What decisions without side effects cannot need. Times come in as a `Duration` since some start.
const NOT_IN_DEDUP: [&str; 8] =
    ["std::fs", "std::io", "std::net", "std::env", "std::thread", "std::process", "Instant", "SystemTime"];

/// Sources of packages but those of the lab, without tests of other programs.
fn product() -> BTreeMap<String, String> {
    sources().into_iter().filter(|(path, _)| path.contains("/src/") && !path.starts_with("lab/")).collect()
}

/// The part of a source that is not its tests.
fn without_tests(text: &str) -> &str {
    text.split_once("#[cfg(test)]\nmod tests").map_or(text, |(before, _)| before)
}

#[test]
fn words_stay_where_they_belong() {
    let mut found = Vec::new();
    for (path, text) in product().into_iter().filter(|(path, _)| !path.starts_with("tests/words/")) {
        for Kept { word, places } in KEPT_WORDS {
            let is_allowed = places.iter().any(|(place, _)| path.starts_with(place));
            found.extend((text.contains(word) && !is_allowed).then(|| format!("{path} has {word}")));
        }
    }
    assert_none("words in the wrong place", found);
}

#[test]
fn dedup_asks_for_no_file_clock_or_thread() {
    let mut found = Vec::new();
    for (path, text) in product().into_iter().filter(|(path, _)| path.starts_with("crates/dedup/")) {
        found.extend(NOT_IN_DEDUP.iter().filter(|word| text.contains(*word)).map(|word| format!("{path} has {word}")));
    }
    assert_none("what decisions cannot need", found);
}

/// Words of locks and atomics that no scheduler decides on.
const FOREIGN_LOCKS: [&str; 6] = ["parking_lot", "AtomicBool", "AtomicU64", "AtomicUsize", "Mutex", "RwLock"];

/// The engine's modules that may have such a lock or atomic all the same, and why; tests have what they want.
const FOREIGN_LOCKS_IN: [(&str, &str); 12] = [
    ("stats/counters.rs", "counts, and nothing that is stored depends on that"),
    ("signals/foreground.rs", "counts requests and their time, as `stats` does, and tells work that one came"),
    ("fsck/sort.rs", "numbers the files that a sort has open, whichever is the first"),
    ("fsck/check/blocks.rs", "shares work among threads of its own, which a volume that nobody changes has"),
    ("device/memory.rs", "is a device: a request is one step"),
    ("device/faulty.rs", "is a device: a request is one step"),
    ("kv/memory.rs", "stands in for RocksDB: a call is one step"),
    ("kv/rocks.rs", "is RocksDB, which no schedule runs: a call is one step"),
    ("kv/omap/mod.rs", "waits for a cluster, which no schedule runs: a call is one step"),
    ("kv/omap/ranges.rs", "belongs to the store in objects"),
    ("kv/copies.rs", "belongs to RocksDB: a call is one step"),
    ("kv/unlisted_copies.rs", "is for threads of RocksDB, which no schedule runs"),
];

/// Whether a source without its tests takes locks or atomics from elsewhere than `crate::sync`.
fn has_foreign_locks(text: &str) -> bool {
    let is_foreign = |line: &str| line.contains("parking_lot") || line.contains("std::sync::");
    // Orderings and `Arc` are the standard library's in any case.
    let has_lock = |line: &str| FOREIGN_LOCKS.iter().any(|word| line.contains(word));
    text.split("\nmod tests {").next().unwrap().lines().any(|line| is_foreign(line) && has_lock(line))
}

#[test]
fn locks_and_atomics_of_the_engine_are_those_that_a_scheduler_decides_on() {
    const ENGINE: &str = "crates/engine/src/";
    let is_test = |name: &str| name.split(['/', '.']).any(|part| part == "tests");
    let is_allowed = |name: &str| name.starts_with("sync/") || FOREIGN_LOCKS_IN.iter().any(|(file, _)| *file == name);
    let names = sources_below(ENGINE.trim_end_matches('/')).into_iter().map(|path| path[ENGINE.len()..].to_owned());
    let found = names.filter(|name| !is_test(name) && !is_allowed(name));
    let found = found.filter(|name| has_foreign_locks(&text(&format!("{ENGINE}{name}"))));
    assert_none("modules with locks of parking_lot or std::sync", found.collect());
}

/// What turns the bytes of a name into text, or a value into JSON, past `names.rs` of the commands. A name that a user
/// chose reaches root's terminal escaped.
const PRINTERS: [&str; 7] =
    [".display()", "to_string_lossy", "from_utf8_lossy", "from_utf8_unchecked", ":?}", ":#}", "to_string_pretty"];

/// The sources that may have such a word, and why.
const PRINTERS_IN: [(&str, &str, &str); 4] = [
    ("names.rs", ":?}", "quotes what is not printable"),
    ("names.rs", "to_string_pretty", "escapes what a terminal would obey"),
    ("command_line.rs", "to_string_lossy", "is the name under which root called the program"),
    ("daemon/logging.rs", "from_utf8_lossy", "is a time, which strftime wrote"),
];

#[test]
fn names_are_printed_by_one_printer() {
    const COMMANDS: &str = "crates/cli/src/";
    let mut found = Vec::new();
    for (path, text) in product().into_iter().filter(|(path, _)| !path.ends_with("tests.rs")) {
        let Some(name) = path.strip_prefix(COMMANDS) else { continue };
        let is_allowed = |word: &str| PRINTERS_IN.iter().any(|(file, allowed, _)| (*file, *allowed) == (name, word));
        let words = PRINTERS.into_iter().filter(|word| without_tests(&text).contains(word) && !is_allowed(word));
        found.extend(words.map(|word| format!("{name}: {word}")));
    }
    assert_none("names that are not printed by names.rs", found);
}

/// What panics where an output takes nothing.
const PANICKING_PRINTERS: [&str; 4] = ["eprintln!(", "println!(", "eprint!(", "print!("];

#[test]
fn commands_print_through_the_module_that_never_panics() {
    let commands = product().into_iter().filter(|(path, _)| path.starts_with("crates/cli/src/"));
    let mut found = Vec::new();
    for (path, text) in commands.filter(|(path, _)| !path.ends_with("tests.rs")) {
        let words = PANICKING_PRINTERS.into_iter().filter(|word| without_tests(&text).contains(word));
        found.extend(words.map(|word| format!("{path}: {word}")));
    }
    assert_none("what is not printed by output.rs", found);
}
