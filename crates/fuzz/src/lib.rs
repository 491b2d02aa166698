//! Fuzzing: tests oncefs with damaged structures, damaged volumes and random system calls.
//!
//! A target is a plain function of bytes that panics when a promise is broken. `plain` runs it from seeds, as part of
//! the tests. `guided.rs` passes it to libFuzzer, which looks for bytes that reach new code. See docs/fuzzing.md.

mod base;
pub mod calls;
mod damage;
pub mod decoders;
mod disk;
pub mod full;
mod input;
mod memory;
pub mod messages;
mod mutation;
pub mod plain;
#[path = "../../fs/tests/model/reference.rs"]
#[allow(clippy::unwrap_used, reason = "the model is part of a test: it fails by panicking")]
mod reference;
pub mod samples;
mod seal;
pub mod streams;
pub mod tables;
mod tree;
mod volume;
pub mod volumes;

/// A promise as a function of any bytes.
pub struct Target {
    /// Its name on the command line and its directory below `corpus/`.
    pub name: &'static str,
    /// Does the work that the bytes describe. Panics when the promise is broken.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 7] = [
    Target { name: "decoders", run: decoders::run },
    Target { name: "volumes", run: volumes::run },
    Target { name: "calls", run: calls::run },
    Target { name: "full", run: full::run },
    Target { name: "tables", run: tables::run },
    Target { name: "messages", run: messages::run },
    Target { name: "streams", run: streams::run },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
