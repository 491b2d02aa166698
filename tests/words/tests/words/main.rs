//! Rules for what is written: pages say what is there and lead somewhere.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod links;
mod promises;

/// Fails with all that was found, one thing a line.
fn assert_none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}
