//! Fragments: compresses one block of 4096 bytes, and expands it again.
//!
//! Owns compression, the choice of blocks that are worth it, and the form of a fragment. Does not know volumes: callers
//! keep the places of fragments and the blocks that they belong to. A fragment that is read is untrusted: it becomes a
//! whole block or an error, in bounded time and memory, and the caller compares the block with its tag.

mod compressor;
mod expander;
mod method;
mod probe;

pub use compressor::Compressor;
pub use expander::{Damaged, Expander};
pub use method::{Coding, Method, MethodError};
pub use probe::Probe;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Most bytes of a fragment: a block that shrinks by less than an eighth stays uncompressed.
pub const FRAGMENT_BYTES_MAX: usize = BLOCK_BYTES - BLOCK_BYTES / 8;
