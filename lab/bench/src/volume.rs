//! What a scenario is made from and what it becomes: its sizes, its contents, and its body.

use crate::aligned::BLOCK_BYTES;
use crate::case::Case;
use crate::content::Content;
use crate::failure::Result;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How much every scenario moves.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Bytes of files written and read sequentially, and of files written or read at random places.
    pub file_bytes: u64,
    /// Bytes written at random places.
    pub random_bytes: u64,
    /// Writes with fdatasync each.
    pub synced_writes: usize,
    /// Random and NURand reads.
    pub random_reads: usize,
    /// Small files.
    pub tree_files: usize,
    /// To how many percent blocks shrink when they are compressed.
    pub shrinks_to_percent: usize,
    /// Content is prepared in memory up to this many bytes.
    pub memory_max: u64,
}

impl Volume {
    /// Blocks of a file written and read sequentially.
    pub fn file_blocks(&self) -> usize {
        (self.file_bytes / BLOCK) as usize
    }

    /// Blocks written at random places.
    pub fn random_blocks(&self) -> usize {
        (self.random_bytes / BLOCK) as usize
    }

    /// Contents of this seed, within the memory for them.
    pub fn content(&self, seed: u64, blocks: usize, duplicate_percent: usize) -> Result<Content> {
        Ok(self.prepared(Content::planned(seed, blocks, duplicate_percent)?))
    }

    /// Contents whose blocks shrink as they do on this volume, expanded beforehand if memory has room.
    pub fn prepared(&self, content: Content) -> Content {
        content.shrinking_to(self.shrinks_to_percent).expanded_within(self.memory_max)
    }
}

/// Runs a prepared scenario on one side.
pub type Body = Box<dyn Fn(&mut Case) -> Result<()>>;
