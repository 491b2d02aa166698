//! Page-aligned memory, for O_DIRECT and for timed writes.

/// Bytes of a block and of a page.
pub const BLOCK_BYTES: usize = 4096;

/// One aligned block.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_BYTES]);

/// A buffer of whole, page-aligned blocks; every page has been written, so none faults later.
pub struct AlignedBuffer(Vec<Page>);

impl AlignedBuffer {
    /// A buffer of at least `bytes`, rounded up to whole blocks.
    pub fn new(bytes: usize) -> AlignedBuffer {
        AlignedBuffer(vec![Page([0xff; BLOCK_BYTES]); bytes.div_ceil(BLOCK_BYTES)])
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: Page is repr(C) of exactly BLOCK_BYTES bytes, so a slice of them is that many plain bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * BLOCK_BYTES) }
    }

    /// The bytes, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; the exclusive borrow of self covers the slice.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * BLOCK_BYTES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_rounded_up_to_whole_blocks() {
        let buffer = AlignedBuffer::new(BLOCK_BYTES + 1);
        assert_eq!(buffer.bytes().len(), 2 * BLOCK_BYTES);
        assert_eq!(buffer.bytes().as_ptr() as usize % BLOCK_BYTES, 0);
    }
}
