//! The papers' ideas as pure code: values in, decisions out.
//!
//! Owns what oncefs knows about sameness: the vocabulary of blocks, the hint
//! store, the run detector, the controllers. Knows no files, threads, clocks,
//! RocksDB or FUSE; whoever calls it carries the decisions out.

mod block;
mod decide;
mod fingerprinting;
mod hints;

pub use block::{BLOCK_BYTES, Blocks, Fingerprint, Lbn, Pbn, Tag};
pub use decide::{Candidates, Decision, decide};
pub use fingerprinting::{DuplicateShare, Fingerprinting};
pub use hints::{HOLDERS_MAX, HintStore, Inserted};
