//! The tests of the explorer, in one program, so that it is linked once.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod disk;
mod explore;
mod repair;
