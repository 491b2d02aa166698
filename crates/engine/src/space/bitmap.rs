//! Which blocks of a region of the data area are free.

/// Blocks of a region.
pub const REGION_BLOCKS: u64 = 32_768;
const WORDS: usize = (REGION_BLOCKS / 64) as usize;

/// One bit per block of a region. A set bit means that the block must not be handed out.
#[derive(Clone)]
pub struct Bitmap {
    words: Box<[u64; WORDS]>,
    /// How many are clear.
    pub(super) free: u64,
    /// Upper bound of the free runs.
    pub(super) longest: u64,
}

impl Bitmap {
    /// A region with every block free.
    pub fn empty() -> Self {
        Self { words: Box::new([0; WORDS]), free: REGION_BLOCKS, longest: REGION_BLOCKS }
    }

    /// Takes a block. False: it was taken already.
    pub fn take(&mut self, block: u64) -> bool {
        let (word, bit) = ((block / 64) as usize, 1u64 << (block % 64));
        let was_free = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.free -= u64::from(was_free);
        debug_assert!(self.free <= REGION_BLOCKS, "{} of {REGION_BLOCKS} blocks are free", self.free);
        was_free
    }

    pub(super) fn is_free(&self, block: u64) -> bool {
        self.words[(block / 64) as usize] & (1 << (block % 64)) == 0
    }

    /// Makes blocks free. Returns the first one that was free already.
    pub(super) fn give_back_run(&mut self, blocks: std::ops::Range<u64>) -> Option<u64> {
        let mut was_free = None;
        for block in blocks.clone() {
            if !self.give_back(block) {
                was_free.get_or_insert(block);
            }
        }
        let end = self.next(blocks.start, u64::MAX).unwrap_or(REGION_BLOCKS);
        self.longest = self.longest.max(end - self.free_since(blocks.start));
        was_free
    }

    /// The first block of the free run that ends before `block`, or `block` itself.
    fn free_since(&self, block: u64) -> u64 {
        let mut at = block;
        while at > 0 {
            let word = self.words[((at - 1) / 64) as usize];
            let free = (word << (63 - (at - 1) % 64)).leading_zeros();
            let here = u64::from(free).min((at - 1) % 64 + 1);
            at -= here;
            if here == 0 || !at.is_multiple_of(64) {
                break;
            }
        }
        at
    }

    fn give_back(&mut self, block: u64) -> bool {
        let (word, bit) = ((block / 64) as usize, 1u64 << (block % 64));
        let was_taken = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        self.free += u64::from(was_taken);
        debug_assert!(self.free <= REGION_BLOCKS, "{} of {REGION_BLOCKS} blocks are free", self.free);
        was_taken
    }

    /// The first free run at or after `from`, cut to `blocks_max`.
    pub(super) fn free_run(&self, from: u64, blocks_max: u64) -> Option<(u64, u64)> {
        let start = self.next(from, 0)?;
        let end = self.next(start, u64::MAX).unwrap_or(REGION_BLOCKS);
        Some((start, (end - start).min(blocks_max)))
    }

    /// The first block at or after `from` whose bit is clear (`flip` 0) or set (`flip` all ones).
    fn next(&self, from: u64, flip: u64) -> Option<u64> {
        let mut at = from;
        while at < REGION_BLOCKS {
            let word = (!(self.words[(at / 64) as usize] ^ flip)) >> (at % 64);
            if word != 0 {
                return Some(at + u64::from(word.trailing_zeros()));
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_a_region_covers_a_run_that_several_releases_make() {
        let mut bitmap = Bitmap::empty();
        (0..REGION_BLOCKS).for_each(|block| {
            bitmap.take(block);
        });
        bitmap.longest = 0;
        for (release, longest) in [(100..101, 1), (164..200, 36), (101..130, 36), (130..164, 100), (0..1, 100)] {
            assert_eq!(bitmap.give_back_run(release.clone()), None);
            assert_eq!(bitmap.longest, longest, "{release:?}");
        }
        bitmap.give_back_run(REGION_BLOCKS - 200..REGION_BLOCKS);
        assert_eq!(bitmap.longest, 200);
        assert_eq!(bitmap.give_back_run(1..100), None);
        assert_eq!(bitmap.longest, 200, "blocks 0 to 199 are one run");
    }
}
