//! Rules for what is written: sources, manifests and pages. `cargo test -p oncefs-words` runs them within seconds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod arrows;
mod circles;
mod kept_words;
mod lab;
mod links;
mod pages;
mod programs;
mod promises;
mod rooms;
mod sources;
mod stale;

/// Fails with all that was found, one thing a line.
fn assert_none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
