//! Addresses of a made trace, cut into files.

use crate::trace::Place;

/// Blocks per file of a made trace, 1 MiB: addresses are cut into files of this size.
const FILE_BLOCKS: u64 = 256;

/// Files of a made trace are numbered from here.
pub(super) const FILE_FIRST: u64 = 1;

/// Where an address lies.
pub(super) fn place(address: u64) -> Place {
    Place { file: FILE_FIRST + address / FILE_BLOCKS, lbn: address % FILE_BLOCKS }
}

/// Blocks from an address to the end of its file.
pub(super) fn blocks_to_end(address: u64) -> u64 {
    FILE_BLOCKS - address % FILE_BLOCKS
}
