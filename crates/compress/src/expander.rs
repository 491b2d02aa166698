//! Expands untrusted fragments into blocks.

use std::fmt;

use crate::compressor::ZSTD_MAGIC;
use crate::{BLOCK_BYTES, Coding, FRAGMENT_BYTES_MAX};

/// Bytes that are not a fragment of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged;

impl fmt::Display for Damaged {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "the bytes are no fragment of a block")
    }
}

impl std::error::Error for Damaged {}

/// Expands fragments. Its tables are reused for every fragment, so each thread that reads needs one.
pub struct Expander {
    zstd: zstd::bulk::Decompressor<'static>,
    frame: [u8; ZSTD_MAGIC.len() + FRAGMENT_BYTES_MAX],
}

impl Default for Expander {
    fn default() -> Self {
        let mut frame = [0; ZSTD_MAGIC.len() + FRAGMENT_BYTES_MAX];
        frame[..ZSTD_MAGIC.len()].copy_from_slice(&ZSTD_MAGIC);
        Self { zstd: zstd::bulk::Decompressor::new().expect("there is memory for its tables"), frame }
    }
}

impl Expander {
    /// Expands a fragment into `block`. After an error the bytes of `block` are undefined.
    pub fn expand(&mut self, coding: Coding, fragment: &[u8], block: &mut [u8]) -> Result<(), Damaged> {
        assert_eq!(block.len(), BLOCK_BYTES, "bytes of a block");
        if fragment.is_empty() || fragment.len() > FRAGMENT_BYTES_MAX {
            return Err(Damaged);
        }
        let filled = match coding {
            Coding::Lz4 => lz4_flex::block::decompress_into(fragment, block).map_err(|_| Damaged)?,
            Coding::Zstd => {
                let end = ZSTD_MAGIC.len() + fragment.len();
                self.frame[ZSTD_MAGIC.len()..end].copy_from_slice(fragment);
                self.zstd.decompress_to_buffer(&self.frame[..end], block).map_err(|_| Damaged)?
            }
        };
        if filled == BLOCK_BYTES { Ok(()) } else { Err(Damaged) }
    }
}
