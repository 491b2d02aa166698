//! The transport on real mounts, over rings and over `/dev/fuse`: every operation, signals, and all that can happen to a
//! mount or its daemon. Needs root, `/dev/fuse` and a kernel with FUSE over io_uring.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod load;
mod mishaps;
mod operations;
mod scheduling;
mod tree;
// As a source: this crate depends on none of the others, in its tests neither.
#[path = "../../../toolbox/src/waiting.rs"]
mod waiting;
