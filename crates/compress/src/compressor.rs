//! Compresses blocks into fragments.

use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};
use zstd::zstd_safe::CParameter;

use crate::{BLOCK_BYTES, FRAGMENT_BYTES_MAX, Method};

/// The first bytes of every Zstandard frame. Fragments omit them.
pub(crate) const ZSTD_MAGIC: [u8; 4] = [0x28, 0xB5, 0x2F, 0xFD];

/// Compresses blocks. Its tables are reused for every block, so each thread that compresses needs one.
pub struct Compressor {
    engine: Engine,
    /// The last fragment, after room for a magic number.
    made: Vec<u8>,
}

enum Engine {
    Lz4(Box<CompressTable>),
    Zstd(zstd::bulk::Compressor<'static>),
}

impl Compressor {
    /// A compressor for this method.
    pub fn new(method: Method) -> Self {
        let engine = match method {
            Method::Lz4 => Engine::Lz4(Box::new(CompressTable::small())),
            Method::Zstd(level) => Engine::Zstd(zstd_at(level)),
        };
        Self { engine, made: vec![0; ZSTD_MAGIC.len() + get_maximum_output_size(BLOCK_BYTES)] }
    }

    /// The fragment of a block. None: the block stays uncompressed.
    pub fn compress(&mut self, block: &[u8]) -> Option<&[u8]> {
        assert_eq!(block.len(), BLOCK_BYTES, "bytes of a block");
        let end = match &mut self.engine {
            Engine::Lz4(table) => {
                let room = &mut self.made[ZSTD_MAGIC.len()..];
                ZSTD_MAGIC.len() + compress_into_with_table(block, room, table).ok()?
            }
            Engine::Zstd(zstd) => {
                // Compression stops at the end of the room.
                let room = &mut self.made[..ZSTD_MAGIC.len() + FRAGMENT_BYTES_MAX];
                let end = zstd.compress_to_buffer(block, room).ok()?;
                assert_eq!(self.made[..ZSTD_MAGIC.len()], ZSTD_MAGIC, "the magic number of a frame of {end} bytes");
                end
            }
        };
        let fragment = &self.made[ZSTD_MAGIC.len()..end];
        assert!(!fragment.is_empty(), "a block became nothing");
        (fragment.len() <= FRAGMENT_BYTES_MAX).then_some(fragment)
    }
}

fn zstd_at(level: i32) -> zstd::bulk::Compressor<'static> {
    let mut zstd = zstd::bulk::Compressor::new(level).expect("there is memory for its tables");
    for flag in [CParameter::ContentSizeFlag(false), CParameter::ChecksumFlag(false), CParameter::DictIdFlag(false)] {
        zstd.set_parameter(flag).expect("every version knows these parameters");
    }
    zstd
}
