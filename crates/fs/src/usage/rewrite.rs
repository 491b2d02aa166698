//! Rewrites: writes that replace content of a file, as opposed to appends and filled holes.

use std::ops::Range;

use oncefs_engine::BLOCK_BYTES;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Whether writing the range `bytes` replaced content of a file of `size` bytes. The write added `mapped` blocks to the
/// file's map.
///
/// Not if it starts in the file's last block, unless that block is full: the page cache writes whole pages, so an append
/// rewrites the block in which the file ended. Nor if it only filled holes: when several threads write a file back, a
/// later part may arrive first. (Reserved blocks count as mapped, so filling them replaces zeros.)
pub(crate) fn replaces(size: u64, bytes: Range<u64>, mapped: i64) -> bool {
    debug_assert!(bytes.start <= bytes.end, "the range ends at {} before it starts at {}", bytes.end, bytes.start);
    let blocks_added = bytes.end.div_ceil(BLOCK).saturating_sub(size.div_ceil(BLOCK));
    bytes.start / BLOCK < size / BLOCK && mapped <= blocks_added.cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_on_where_the_file_ends_replaces_nothing() {
        assert!(!replaces(0, 0..10_000, 3));
        assert!(!replaces(5000, 5000..6000, 0));
        assert!(!replaces(5000, 4096..12_288, 1), "the page cache writes the last page as a whole");
        assert!(!replaces(8192, 8192..9000, 1));
        assert!(!replaces(100, 0..4096, 0), "a file within one block looks appended to");
    }

    #[test]
    fn what_is_written_over_is_replaced_also_where_the_file_grows_by_it() {
        assert!(replaces(8192, 4096..8192, 0));
        assert!(replaces(8192, 0..100, 0));
        assert!(replaces(8192, 4096..12_288, 1));
        assert!(replaces(5000, 0..12_288, 1));
        assert!(replaces(1 << 20, 0..8192, -2), "by zeros");
    }

    #[test]
    fn filling_holes_replaces_nothing() {
        assert!(!replaces(2 << 20, 0..1 << 20, 256));
        assert!(!replaces(2 << 20, 0..1 << 20, 255), "with a block of zeros among them");
        assert!(!replaces(1 << 20, 4096..8192, 1));
    }
}
