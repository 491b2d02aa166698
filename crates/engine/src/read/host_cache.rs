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

use crate::format::fragment::is_fragment;
use crate::read::cache::NOBODY;
use crate::read::parts::{Part, Way};
use crate::read::stored::BlockReader;
use crate::{BLOCK_BYTES, MapId, Pbn, Tag};

impl BlockReader {
    /// Gives each span its way. A run is shared as a whole most of the time, so the first block of each part decides. A
    /// block whose page of the block table memory lacks is read past the cache, and that read brings in the page.
    ///
    /// A span that goes through the cache is cut at its gaps: nobody has the blocks of a gap pinned, so they may be
    /// written while the cache reads them. Only verified reads go through it, because its copies lie in memory for long.
    pub fn with_ways<'p, 'a>(
        &self,
        reader: MapId,
        spans: Vec<&'p mut [Part<'a>]>,
    ) -> (Vec<&'p mut [Part<'a>]>, Vec<Way>) {
        if reader == NOBODY
            || !self.tuning.uses_host_cache()
            || !self.tuning.verifies_reads()
            || !self.data_reader.has_host_cache()
        {
            let ways = vec![Way::PastHostCache; spans.len()];
            return (spans, ways);
        }
        let firsts = spans.iter().flat_map(|span| span.iter()).map(|part| part.pbn);
        let mut known = self.metadata.references_of(firsts).into_iter();
        let (mut cut, mut ways) = (Vec::with_capacity(spans.len()), Vec::with_capacity(spans.len()));
        for span in spans {
            let way = way_of(span, &mut known);
            match way {
                Way::PastHostCache => cut.push(span),
                Way::ThroughHostCache => {
                    let blocks: usize = span.iter().map(Part::blocks).sum();
                    self.stats.counters.blocks_read_through_host.fetch_add(blocks as u64, Relaxed);
                    cut.extend(span.chunk_by_mut(|a, b| a.end() == b.pbn));
                }
            }
            ways.resize(cut.len(), way);
        }
        assert!(known.next().is_none(), "a part was looked up that no span has");
        (cut, ways)
    }

    /// Reads a block that has wrong content once more, past the host's page cache, whose copy may be what is wrong.
    /// False: the device has none with the right tag.
    pub fn read_past_host_cache(&self, pbn: Pbn, tag: Tag, bytes: &mut [u8]) -> bool {
        self.data_reader.leave_host_cache(pbn);
        let mut block = self.data_reader.take_buffer(BLOCK_BYTES);
        if self.data_reader.read_device(pbn, &mut block).is_err() || self.hasher.tag(&block) != tag {
            return false;
        }
        if self.stats.counters.blocks_wrong_in_host_cache.fetch_add(1, Relaxed) == 0 {
            log::warn!(
                "block {pbn} is right on the device, and was wrong in the host's page cache: failing memory, or a change \
                 from outside; stats count further ones as blocks_wrong_in_host_cache"
            );
        }
        bytes.copy_from_slice(&block);
        true
    }
}

/// Through the host's page cache if at least half of its blocks are in parts whose first block is shared. Fragments are
/// read past it: what is read for them has others beside them.
fn way_of(span: &[Part<'_>], known: &mut impl Iterator<Item = u32>) -> Way {
    let (mut shared, mut blocks) = (0, 0);
    for part in span {
        blocks += part.blocks();
        if known.next().expect("one for each part") >= 2 {
            shared += part.blocks();
        }
    }
    let is_of_fragments = span.first().is_some_and(|part| is_fragment(part.pbn));
    if shared * 2 >= blocks && !is_of_fragments { Way::ThroughHostCache } else { Way::PastHostCache }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The way of a span with parts of these references and lengths.
    fn way(parts: &[(u32, usize)]) -> Way {
        let mut bytes: Vec<Vec<u8>> = parts.iter().map(|(_, blocks)| vec![0; blocks * BLOCK_BYTES]).collect();
        let span: Vec<Part<'_>> = bytes.iter_mut().map(|bytes| Part { pbn: Pbn(1), bytes }).collect();
        way_of(&span, &mut parts.iter().map(|(references, _)| *references))
    }

    #[test]
    fn a_request_goes_through_the_hosts_cache_if_half_of_its_blocks_are_known_to_be_shared() {
        assert_eq!(way(&[(2, 1)]), Way::ThroughHostCache);
        assert_eq!(way(&[(1, 1)]), Way::PastHostCache);
        assert_eq!(way(&[(0, 1)]), Way::PastHostCache);
        assert_eq!(way(&[(1, 4), (3, 4)]), Way::ThroughHostCache);
        assert_eq!(way(&[(1, 5), (3, 4)]), Way::PastHostCache);
        assert_eq!(way(&[(0, 5), (3, 4)]), Way::PastHostCache);
    }
}
