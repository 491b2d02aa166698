//! The tests of the explorer, in one program: it is linked once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod explore;
mod repair;
