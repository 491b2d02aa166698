//! The version of the format, and the sizes that all streams share.

/// Version of the format that is written. A reader takes this and all before it.
pub const VERSION: u32 = 2;

/// The first version whose attributes have flags.
pub const FLAGS_VERSION: u32 = 2;

/// The first version in which the receiver may be asked.
pub const ASK_VERSION: u32 = 2;

/// Bytes of a content: a block of a file. The last block of a file may be shorter.
pub const BLOCK_BYTES: usize = 4096;

pub const BLOCK: u64 = BLOCK_BYTES as u64;
