//! What the corpus has to hold. `ONCEFS_FUZZ_WRITE_CORPUS=1` adds what is missing.

use std::fs;

use oncefs_fuzz::{decoders, plain, samples, target};

/// Bytes that the corpus may have: it is part of every checkout.
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
    for (name, bytes) in samples {
        let path = directory.join(&name);
        if !path.exists() && std::env::var_os("ONCEFS_FUZZ_WRITE_CORPUS").is_some() {
            fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        assert!(path.exists(), "corpus/decoders/{name} is missing");
    }
}

#[test]
fn the_corpus_stays_small() {
    let bytes = |target| plain::corpus(&plain::corpus_directory(target)).iter().map(Vec::len).sum::<usize>();
    let all: usize = oncefs_fuzz::TARGETS.iter().map(bytes).sum();
    assert!(all <= BYTES_MAX, "the corpus has {all} bytes, {BYTES_MAX} are allowed");
}
