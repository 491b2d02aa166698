//! The version of the format, and the sizes that all streams share.

/// Version of the format. A reader refuses every other one.
pub const VERSION: u32 = 1;

/// Bytes of a content: a block of a file. The last block of a file may be shorter.
pub const BLOCK_BYTES: usize = 4096;

pub const BLOCK: u64 = BLOCK_BYTES as u64;
