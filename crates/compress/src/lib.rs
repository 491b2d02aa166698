//! Fragments: the compressed bytes of one block of 4096 bytes, and the way back.
//!
//! Owns how a block becomes a fragment, which blocks are worth it, and what a fragment may be. Knows no volume: where
//! fragments lie, and which block each of them is, others know. A fragment that is read is bytes that nobody vouches for:
//! it becomes a whole block or an error, in bounded time and memory, and whoever asked compares the block with its tag.

mod compressor;
mod expander;
mod method;

pub use compressor::Compressor;
pub use expander::{Damaged, Expander};
pub use method::{Coding, Method, MethodError};

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4096;
/// Bytes of a fragment at most: a block that shrinks by less than an eighth stays as it is.
pub const FRAGMENT_BYTES_MAX: usize = BLOCK_BYTES - BLOCK_BYTES / 8;
