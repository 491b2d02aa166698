//! The transport on real mounts, over rings and over `/dev/fuse`: every operation, signals, and mishaps of a mount or
//! its daemon. Needs root, `/dev/fuse` and a kernel with FUSE over io_uring.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod load;
mod mishaps;
mod operations;
mod scheduling;
mod tree;
// Included as a source, because this crate and its tests depend on no other crate of the workspace.
#[path = "../../../toolbox/src/waiting.rs"]
mod waiting;
