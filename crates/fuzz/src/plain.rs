//! A target without coverage guidance: first all of its corpus, then inputs from a seed. Part of the tests.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use crate::Target;
use crate::mutation::Mutator;

/// The directory of a target's corpus.
pub fn corpus_directory(target: &Target) -> PathBuf {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs the tests and says where the crate is");
    Path::new(&here).join("../../corpus").join(target.name)
}

/// The inputs of a directory in the order of their names.
pub fn corpus(directory: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(directory).unwrap_or_else(|e| panic!("{} cannot be listed: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a directory that stays").path()).collect();
    paths.sort();
    let read = |path: &PathBuf| fs::read(path).unwrap_or_else(|e| panic!("{} cannot be read: {e}", path.display()));
    paths.iter().map(read).collect()
}

/// Runs the corpus and then `executions` inputs from `seed`. Writes a failing input to a file that the message names.
pub fn run(target: &Target, executions: u64, seed: u64) {
    let corpus = corpus(&corpus_directory(target));
    println!("target {}: {} inputs of the corpus, then {executions} from seed {seed}", target.name, corpus.len());
    for (number, input) in corpus.iter().enumerate() {
        run_one(target, input, &format!("input {number} of the corpus"));
    }
    let mut mutator = Mutator::new(seed);
    for number in 0..executions {
        let input = mutator.input(&corpus);
        run_one(target, &input, &format!("execution {number} of seed {seed}"));
    }
}

fn run_one(target: &Target, input: &[u8], what: &str) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (target.run)(input))) {
        let mut hasher = DefaultHasher::new();
        input.hash(&mut hasher);
        let path = std::env::temp_dir().join(format!("oncefs-fuzz-{}-{:016x}", target.name, hasher.finish()));
        match fs::write(&path, input) {
            Ok(()) => eprintln!("target {} failed: {what}; its bytes are in {}", target.name, path.display()),
            Err(e) => eprintln!("target {} failed: {what}; its bytes could not be kept: {e}", target.name),
        }
        resume_unwind(panic);
    }
}
