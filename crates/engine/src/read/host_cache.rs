//! Which reads go through the host's page cache of the device: those of blocks that files share.
//!
//! The kernel keeps what was read of each file, but file by file: it does not know that a block of the next file is one
//! that it holds. The page cache of the device does, because there a shared block has one place. So a block is read
//! from the device once, as long as the host has memory for it, however small the daemon's own read cache is
//! (SmartDedup, section 3.4, which looks for blocks in the kernel's page cache). This memory is the kernel's: it takes
//! it back when programs need it.
//!
//! What no other file refers to is read past that cache. The pages of its file hold it already.

use std::sync::atomic::Ordering::Relaxed;

use crate::read::parts::{Part, Way};
use crate::read::stored::BlockReader;
use crate::{BLOCK_BYTES, Pbn};

impl BlockReader {
    /// The way of each span. A run is shared as a whole most of the time, so the first block of each part decides. A
    /// block whose page of the block table memory lacks counts as shared if the read brings in that page.
    pub fn ways_of(&self, spans: &[&mut [Part<'_>]]) -> Vec<Way> {
        if !self.tuning.uses_host_cache() {
            return vec![Way::PastHostCache; spans.len()];
        }
        let firsts = spans.iter().flat_map(|span| span.iter()).map(|part| part.pbn);
        let mut known = self.metadata.references_of(firsts).into_iter();
        let ways: Vec<Way> = spans.iter().map(|span| way_of(span, &mut known, self.tuning.verifies_reads())).collect();
        assert!(known.next().is_none(), "a part was looked up that no span has");
        let through = spans.iter().zip(&ways).filter(|(_, way)| **way != Way::PastHostCache);
        let blocks: usize = through.flat_map(|(span, _)| span.iter()).map(Part::blocks).sum();
        self.stats.counters.blocks_read_through_host.fetch_add(blocks as u64, Relaxed);
        ways
    }

    /// Makes the host's page cache give up what was read through it at first, and turns out to be shared by nobody.
    /// `references` has those of all blocks of the parts.
    pub fn leave_host_cache(&self, parts: &[(&mut Part<'_>, Way)], references: &[u32]) {
        let mut at = 0;
        for (part, way) in parts {
            if *way == Way::ThroughHostCacheAtFirst && references[at] == 1 {
                self.data_reader.leave_host_cache(part.pbn, part.blocks());
            }
            at += part.blocks();
        }
        assert_eq!(at, references.len(), "references, one for each block");
    }

    /// Reads a block that has wrong content once more, past the host's page cache, whose copy may be what is wrong.
    /// False: the device has no right one.
    pub fn read_past_host_cache(&self, pbn: Pbn, bytes: &mut [u8]) -> bool {
        self.data_reader.leave_host_cache(pbn, 1);
        let mut block = self.data_reader.take_buffer(BLOCK_BYTES);
        if self.data_reader.read_device(pbn, &mut block).is_err() || !self.is_right(pbn, &block) {
            return false;
        }
        bytes.copy_from_slice(&block);
        true
    }
}

fn way_of(span: &[Part<'_>], known: &mut impl Iterator<Item = u32>, learns_others: bool) -> Way {
    let (mut shared, mut unknown, mut blocks) = (0, 0, 0);
    for part in span {
        blocks += part.blocks();
        match known.next().expect("one for each part") {
            0 if learns_others => unknown += part.blocks(),
            0 | 1 => {}
            2.. => shared += part.blocks(),
        }
    }
    match (shared * 2 >= blocks, (shared + unknown) * 2 >= blocks) {
        (true, _) => Way::ThroughHostCache,
        (false, true) => Way::ThroughHostCacheAtFirst,
        (false, false) => Way::PastHostCache,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of a span with parts of these references and lengths.
    fn way(parts: &[(u32, usize)], learns_others: bool) -> Way {
        let mut bytes: Vec<Vec<u8>> = parts.iter().map(|(_, blocks)| vec![0; blocks * BLOCK_BYTES]).collect();
        let span: Vec<Part<'_>> = bytes.iter_mut().map(|bytes| Part { pbn: Pbn(1), bytes }).collect();
        way_of(&span, &mut parts.iter().map(|(references, _)| *references), learns_others)
    }

    #[test]
    fn a_request_goes_through_the_hosts_cache_if_half_of_its_blocks_are_shared() {
        assert_eq!(way(&[(2, 1)], true), Way::ThroughHostCache);
        assert_eq!(way(&[(1, 1)], true), Way::PastHostCache);
        assert_eq!(way(&[(1, 4), (3, 4)], true), Way::ThroughHostCache);
        assert_eq!(way(&[(1, 5), (3, 4)], true), Way::PastHostCache);
    }

    #[test]
    fn what_is_unknown_goes_through_it_at_first_if_the_read_tells() {
        assert_eq!(way(&[(0, 1)], true), Way::ThroughHostCacheAtFirst);
        assert_eq!(way(&[(0, 1)], false), Way::PastHostCache);
        assert_eq!(way(&[(0, 2), (2, 2)], true), Way::ThroughHostCache);
        assert_eq!(way(&[(0, 2), (2, 1), (1, 3)], true), Way::ThroughHostCacheAtFirst);
        assert_eq!(way(&[(0, 2), (1, 3)], true), Way::PastHostCache);
    }
}
