//! The required content of the corpus. `ONCEFS_FUZZ_WRITE_CORPUS=1` adds missing samples.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use oncefs_engine::kv::{is_sound_table, read_table};
use oncefs_fuzz::{decoders, messages, plain, samples, streams, target};

/// Most bytes of the corpus, because it is part of every checkout.
const BYTES_MAX: usize = 1 << 20;

#[test]
fn the_corpus_has_every_structure_of_a_real_volume() {
    let target = target("decoders").unwrap_or_else(|| panic!("there is no target decoders"));
    let directory = plain::corpus_directory(target);
    let samples = samples::samples();
    for structure in &decoders::STRUCTURES {
        let name = structure.name.replace(' ', "-");
        assert!(samples.iter().any(|(sample, _)| sample.starts_with(&name)), "no sample of a {}", structure.name);
    }
    samples.iter().for_each(|(name, bytes)| assert_is_there(&directory.join(name), bytes));
}

#[test]
fn the_corpus_has_a_record_file_as_rocksdb_writes_it() {
    let target = target("tables").unwrap_or_else(|| panic!("there is no target tables"));
    let scratch = std::env::temp_dir().join(format!("oncefs-record-file-{}", std::process::id()));
    fs::create_dir(&scratch).unwrap_or_else(|error| panic!("{}: {error}", scratch.display()));
    let made = samples::record_file(&scratch);
    drop(fs::remove_dir_all(&scratch));
    let made = made.unwrap_or_else(|error| panic!("{error}"));
    let path = plain::corpus_directory(target).join("record-file");
    assert_is_there(&path, &made);
    let kept = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert!(is_sound_table(&made) && is_sound_table(&kept));
    assert_eq!(read_table(&kept), read_table(&made), "as RocksDB writes it today");
}

/// Writes a missing sample if requested.
fn assert_is_there(path: &Path, bytes: &[u8]) {
    if !path.exists() && std::env::var_os("ONCEFS_FUZZ_WRITE_CORPUS").is_some() {
        fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
    assert!(path.exists(), "{} is missing", path.display());
}

#[test]
fn the_corpus_stays_small() {
    let bytes = |target| plain::corpus(&plain::corpus_directory(target)).iter().map(Vec::len).sum::<usize>();
    let all: usize = oncefs_fuzz::TARGETS.iter().map(bytes).sum();
    assert!(all <= BYTES_MAX, "the corpus has {all} bytes, {BYTES_MAX} are allowed");
}

#[test]
fn the_corpus_has_a_message_of_every_kind() {
    /// Operations that are known.
    const KINDS: usize = 39;
    let target = target("messages").unwrap_or_else(|| panic!("there is no target messages"));
    let inputs = plain::corpus(&plain::corpus_directory(target));
    let kinds: HashSet<_> = inputs.iter().filter_map(|input| messages::kind_of(input)).collect();
    assert_eq!(kinds.len(), KINDS, "kinds of messages in the corpus, and operations that are known");
}

#[test]
fn the_corpus_has_a_stream_with_every_record() {
    let target = target("streams").unwrap_or_else(|| panic!("there is no target streams"));
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../stream/tests/golden/version-2");
    let golden = fs::read(&golden).unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
    let input = streams::input_of(&golden).unwrap_or_else(|| panic!("the golden stream is not whole"));
    assert!(streams::is_accepted(&input));
    let directory = plain::corpus_directory(target);
    assert_is_there(&directory.join("whole-stream"), &golden);
    assert_is_there(&directory.join("every-record"), &input);
}
