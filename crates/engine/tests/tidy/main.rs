//! Rules for all sources of the workspace, as a test: what a file must begin with and must not hold, which crate may
//! depend on which, and that `docs/` speaks of what is there. In modules: `rooms` which folder of the engine may import
//! which, `circles` which files may import each other, `limits` how large parts may become.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod circles;
#[path = "../docs/mod.rs"]
mod docs;
mod limits;
mod rooms;
#[path = "../structure/mod.rs"]
mod structure;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use docs::{quoted, root, section, text};

/// Lines that a source may have.
const LINES_MAX: usize = 600;

/// Which of our crates each may depend on.
const ARROWS: [(&str, &[&str]); 15] = [
    ("crates/toolbox", &[]),
    ("crates/transport", &[]),
    ("crates/compress", &[]),
    ("crates/dedup", &[]),
    ("crates/engine", &["oncefs-dedup", "oncefs-toolbox"]),
    ("crates/fs", &["oncefs-engine"]),
    ("crates/fuse", &["oncefs-fs", "oncefs-engine", "oncefs-transport"]),
    ("crates/cli", &["oncefs-fuse", "oncefs-fs", "oncefs-engine", "oncefs-plot", "oncefs-toolbox"]),
    ("crates/plot", &[]),
    ("crates/sim", &["oncefs-compress", "oncefs-dedup", "oncefs-plot", "oncefs-toolbox"]),
    ("crates/explore", &["oncefs-fs", "oncefs-engine", "oncefs-toolbox"]),
    ("crates/bench", &["oncefs-plot", "oncefs-sim", "oncefs-toolbox", "oncefs-transport"]),
    ("crates/fuzz", &["oncefs-compress", "oncefs-fs", "oncefs-engine", "oncefs-toolbox", "oncefs-transport"]),
    ("tests/system", &["oncefs-toolbox"]),
    ("tests/words", &[]),
];

/// Crates that only these of ours may use.
const KEPT_TO: [(&str, &[&str]); 2] = [("rocksdb", &["crates/engine"]), ("blake3", &["crates/engine"])];

/// A word that sources must not have: the places that may, and why.
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
            ("crates/engine/src/kv/salvage.rs", "makes a new database from a damaged one"),
            ("crates/engine/src/kv/failed.rs", "turns RocksDB's errors into ours"),
        ],
    },
    Kept { word: "blake3::", places: &[("crates/engine/src/write/hash.rs", "hashes blocks")] },
    Kept {
        word: "libc::E",
        places: &[
            ("crates/transport/", "speaks errno with the kernel"),
            ("crates/fuse/", "turns errors into errno"),
            ("crates/bench/", "stands outside, with a file system of its own"),
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
            ("crates/engine/src/tests/revisit", "lets devices fail"),
        ],
    },
];

/// Words of locks and atomics that no scheduler decides on.
const FOREIGN_LOCKS: [&str; 6] = ["parking_lot", "AtomicBool", "AtomicU64", "AtomicUsize", "Mutex", "RwLock"];

/// The engine's modules that have such a lock or atomic all the same, and why; modules of tests have what they want.
const FOREIGN_LOCKS_IN: [(&str, &str); 9] = [
    ("stats/counters.rs", "counts, and nothing that is stored depends on that"),
    ("worker/foreground.rs", "counts requests and their time, as `stats` does, and tells work that one came"),
    ("fsck/sort.rs", "numbers the files that a sort has open, whichever is the first"),
    ("fsck/check/blocks.rs", "shares work among threads of its own, which a volume that nobody changes has"),
    ("device/memory.rs", "is a device: a request is one step"),
    ("device/faulty.rs", "is a device: a request is one step"),
    ("kv/memory.rs", "stands in for RocksDB: a call is one step"),
    ("kv/rocks.rs", "is RocksDB, which no schedule runs: a call is one step"),
    ("kv/copies.rs", "belongs to RocksDB: a call is one step"),
];

/// What decisions without side effects cannot need. Times come in as a `Duration` since some start.
const NOT_IN_DEDUP: [&str; 8] =
    ["std::fs", "std::io", "std::net", "std::env", "std::thread", "std::process", "Instant", "SystemTime"];

/// Sources below a directory of the checkout, by path from its root.
fn sources_below(dir: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = fs::read_dir(root().join(&dir)) else { continue };
        for entry in entries.map(Result::unwrap) {
            let path = format!("{dir}/{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                dirs.push(path);
            } else if path.ends_with(".rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// All sources of the workspace, with their text.
fn sources() -> BTreeMap<String, String> {
    let dirs = ARROWS.iter().flat_map(|(dir, _)| ["src", "tests", "benches"].map(|part| format!("{dir}/{part}")));
    let paths: Vec<String> = dirs.flat_map(|dir| sources_below(&dir)).collect();
    assert!(paths.len() > 100, "only {} sources were found", paths.len());
    paths.into_iter().map(|path| (path.clone(), text(&path))).collect()
}

fn assert_none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

#[test]
fn every_source_begins_with_what_it_owns() {
    let without = sources().into_iter().filter(|(_, text)| !text.starts_with("//! ")).map(|(path, _)| path);
    assert_none("sources without a module doc in their first line", without.collect());
}

#[test]
fn every_source_is_ascii() {
    let mut found = Vec::new();
    for (path, text) in sources() {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_ascii());
        found.extend(lines.map(|(at, line)| format!("{path}:{}: {line}", at + 1)));
    }
    assert_none("lines that are not ASCII", found);
}

#[test]
fn nothing_is_left_for_later() {
    // Put together here, so that this file does not find itself.
    let words = [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|halves| halves.concat());
    let mut found = Vec::new();
    for (path, text) in sources() {
        let is_marked = |line: &str| words.iter().any(|word| line.contains(word.as_str()));
        let lines = text.lines().enumerate().filter(|(_, line)| is_marked(line));
        found.extend(lines.map(|(at, line)| format!("{path}:{}: {line}", at + 1)));
    }
    assert_none("marks of unfinished work", found);
}

#[test]
fn no_source_is_too_long_to_be_read_at_once() {
    let long = sources().into_iter().map(|(path, text)| (path, text.lines().count()));
    let long = long.filter(|(_, lines)| *lines > LINES_MAX).map(|(path, lines)| format!("{path}: {lines} lines"));
    assert_none(&format!("sources of more than {LINES_MAX} lines"), long.collect());
}

#[test]
fn words_stay_where_they_belong() {
    let mut found = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.contains("/src/")) {
        for Kept { word, places } in KEPT_WORDS {
            let is_allowed = places.iter().any(|(place, _)| path.starts_with(place));
            if text.contains(word) && !is_allowed {
                found.push(format!("{path} has {word}"));
            }
        }
        let is_pure = path.starts_with("crates/dedup/");
        found.extend(
            NOT_IN_DEDUP.iter().filter(|word| is_pure && text.contains(*word)).map(|word| format!("{path} has {word}")),
        );
    }
    assert_none("words in the wrong place", found);
    for Kept { word, places } in KEPT_WORDS {
        for (place, reason) in places.iter().filter(|(place, _)| place.ends_with(".rs")) {
            assert!(text(place).contains(word), "{place} needs {word} no more: it {reason}");
        }
    }
}

/// Whether a source without its tests takes locks or atomics from elsewhere than `crate::sync`.
fn has_foreign_locks(text: &str) -> bool {
    let text = text.split("\nmod tests {").next().unwrap();
    let is_foreign = |line: &str| line.contains("parking_lot") || line.contains("std::sync::");
    // Orderings and `Arc` are the standard library's in any case.
    text.lines().any(|line| is_foreign(line) && FOREIGN_LOCKS.iter().any(|word| line.contains(word)))
}

#[test]
fn locks_and_atomics_of_the_engine_are_those_that_a_scheduler_decides_on() {
    const ENGINE: &str = "crates/engine/src/";
    let of_tests = |name: &str| name.split(['/', '.']).any(|part| part.ends_with("_tests") || part == "tests");
    let mut found = BTreeSet::new();
    for path in sources_below(ENGINE.trim_end_matches('/')) {
        let name = path[ENGINE.len()..].to_owned();
        if !name.starts_with("sync/") && !of_tests(&name) && has_foreign_locks(&text(&path)) {
            found.insert(name);
        }
    }
    let allowed: BTreeSet<String> = FOREIGN_LOCKS_IN.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(found, allowed, "modules with locks of parking_lot or std::sync, and those that may have them");
}

/// The dependencies in a `Cargo.toml`, those of tests included or not.
fn dependencies(dir: &str, of_tests_too: bool) -> BTreeSet<String> {
    let manifest = text(&format!("{dir}/Cargo.toml"));
    let mut is_inside = false;
    let mut found = BTreeSet::new();
    for line in manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        if let Some(table) = line.strip_prefix('[') {
            assert!(
                !table.contains("dependencies."),
                "{dir}/Cargo.toml: this test reads dependencies of one line only"
            );
            is_inside = table == "dependencies]"
                || table == "build-dependencies]"
                || of_tests_too && table == "dev-dependencies]";
        } else if is_inside && !line.is_empty() {
            found.insert(line.split(['.', ' ', '=']).next().unwrap().to_owned());
        }
    }
    found
}

#[test]
fn crates_depend_on_each_other_only_along_the_arrows() {
    let manifest = text("Cargo.toml");
    let members: BTreeSet<&str> =
        manifest.lines().find(|line| line.starts_with("members")).unwrap().split('"').skip(1).step_by(2).collect();
    assert_eq!(members, ARROWS.iter().map(|(dir, _)| *dir).collect(), "members of the workspace, and of ARROWS");
    for (dir, allowed) in ARROWS {
        let found = dependencies(dir, false);
        let ours: BTreeSet<&str> = found.iter().map(String::as_str).filter(|name| name.starts_with("oncefs")).collect();
        assert_eq!(ours, allowed.iter().copied().collect(), "what {dir} depends on");
    }
    assert_eq!(dependencies("crates/dedup", true), BTreeSet::new(), "dedup is pure");
    for (name, allowed) in KEPT_TO {
        let users = ARROWS.iter().map(|(dir, _)| *dir).filter(|dir| dependencies(dir, true).contains(name));
        assert_eq!(users.collect::<BTreeSet<_>>(), allowed.iter().copied().collect(), "who depends on {name}");
    }
}

#[test]
fn every_dependency_has_its_reason_in_the_decisions_and_none_is_left_over() {
    let page = text("docs/decisions/0008-dependencies.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let named: BTreeSet<String> = rows.map(|row| quoted(row)[0].to_owned()).collect();
    let used = ARROWS.iter().flat_map(|(dir, _)| dependencies(dir, true)).filter(|name| !name.starts_with("oncefs"));
    assert_eq!(used.collect::<BTreeSet<_>>(), named, "dependencies in the manifests, and on the page");
}

/// The value of a line `name = "value"`.
fn value_of(file: &str, name: &str) -> String {
    let text = text(file);
    let line = text.lines().find(|line| line.starts_with(&format!("{name} = "))).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

#[test]
fn the_pinned_toolchain_is_of_the_version_that_the_workspace_asks_for() {
    let (pinned, wanted) = (value_of("rust-toolchain.toml", "channel"), value_of("Cargo.toml", "rust-version"));
    assert!(
        pinned.starts_with(&format!("{wanted}.")),
        "rust-toolchain.toml pins {pinned}, Cargo.toml asks for {wanted}"
    );
}

#[test]
fn the_quick_check_leaves_out_tests_that_exist() {
    let script = text("scripts/check");
    let list = |name: &str| script.split(&format!("\n{name}=(\n")).nth(1).unwrap().split("\n)").next().unwrap();
    let all: String = sources().into_values().collect();
    for name in ["slow", "rooted"].into_iter().flat_map(|name| list(name).lines()).map(str::trim) {
        assert!(all.contains(&format!("fn {name}(")), "scripts/check leaves out {name}, which no test is named");
    }
}

/// Doors have the crate's heading; modules of tests are named where they are worth it.
fn is_unlisted(path: &str) -> bool {
    let name = Path::new(path).file_name().unwrap().to_str().unwrap();
    ["lib.rs", "main.rs", "mod.rs"].contains(&name) || name.ends_with("tests.rs")
}

#[test]
fn the_code_map_names_every_module_and_no_other() {
    for name in ["toolbox", "transport", "compress", "dedup", "engine", "fs", "fuse", "cli", "sim", "explore", "fuzz"] {
        let dir = format!("crates/{name}/src/");
        let modules = sources_below(dir.trim_end_matches('/')).into_iter().map(|path| path[dir.len()..].to_owned());
        let modules: BTreeSet<String> = modules.filter(|path| !is_unlisted(path)).collect();
        let page = section("docs/architecture.md", name);
        let named = page.lines().flat_map(quoted).filter(|word| word.ends_with(".rs") && !is_unlisted(word));
        let named: BTreeSet<String> = named.map(str::to_owned).collect();
        assert_eq!(named, modules, "the code map of {name} in docs/architecture.md, and {dir}");
    }
}

#[test]
fn the_threads_on_the_page_are_those_that_are_started() {
    let page = section("docs/architecture.md", "Threads");
    for row in page.rows().iter().skip(1) {
        for name in quoted(&row[0]) {
            let is_started = |text: &String| text.contains(&format!("\"{name}\""));
            assert!(
                sources().iter().any(|(path, text)| path.contains("/src/") && is_started(text)),
                "no thread {name}"
            );
        }
    }
}
