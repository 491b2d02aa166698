//! Finds packs that hold few live fragments for the blocks that they keep in use, in the order of the data area, from
//! the block table alone.

use crate::base::part;
use crate::format::fragment::PACK_BLOCKS_MAX;
use crate::format::pack_directory::directory_bytes;
use crate::format::page::{Entry, PAGE_ENTRIES, page_of, pbns_of};
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Pbn, Result};

/// Pages of the table read in one request.
const REQUEST_PAGES: u64 = 32;
/// Pages looked at in one turn: those of 256 MiB of data.
const PAGES_MAX: u64 = 512;

/// As many bits as a pack has blocks before its last one.
const OWN_BLOCKS: u16 = (1 << (PACK_BLOCKS_MAX - 1)) - 1;

/// A pack with gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SparsePack {
    /// Its last block.
    pub end: Pbn,
    /// The length of its fragments together.
    pub bytes: u64,
}

part! {
    /// Looks for packs with gaps.
    pub struct SparsePacks {
        base: ;
        metadata: Metadata
    }
}

impl SparsePacks {
    /// Packs of which less than `percent` of their blocks is needed, with at most `bytes_max` of fragments but for the
    /// first one, from block `from` on. Also the block to go on from, or None at the end of the data area.
    pub fn find(&self, mut from: Pbn, percent: u64, bytes_max: u64) -> Result<(Vec<SparsePack>, Option<Pbn>)> {
        let (mut found, mut bytes, mut looked_at) = (Vec::new(), 0, 0);
        while looked_at < PAGES_MAX {
            let Some((first, pages)) = self.metadata.pages_of_blocks(page_of(from), REQUEST_PAGES)? else {
                return Ok((found, None));
            };
            let mut before = 0;
            for (number, page) in (first..).zip(pages) {
                let Some(page) = page else { continue };
                let entries = pbns_of(number).map(|pbn| (pbn, page.entry(pbn)));
                let sparse = entries.filter_map(|(pbn, entry)| sparse_at(pbn, &entry, percent, &mut before));
                for pack in sparse.filter(|pack| pack.end >= from) {
                    if !found.is_empty() && bytes + pack.bytes > bytes_max {
                        return Ok((found, Some(pack.end)));
                    }
                    bytes += pack.bytes;
                    found.push(pack);
                }
            }
            looked_at += REQUEST_PAGES;
            from = Pbn((first + REQUEST_PAGES) * PAGE_ENTRIES);
        }
        Ok((found, Some(from)))
    }
}

/// The pack that ends with a block, if it is sparse. `before` has a bit for each of the blocks before it that may be
/// one of its own: those that hold fragments, behind the end of another pack.
fn sparse_at(pbn: Pbn, entry: &Entry, percent: u64, before: &mut u16) -> Option<SparsePack> {
    let Some(bytes) = entry.pack_bytes() else {
        *before = (*before << 1 | u16::from(entry.is_pack())) & OWN_BLOCKS;
        return None;
    };
    let blocks = u64::from(std::mem::take(before).count_ones()) + 1;
    let needed = bytes + directory_bytes(entry.count as usize) as u64;
    (needed * 100 < percent * blocks * BLOCK_BYTES as u64).then_some(SparsePack { end: pbn, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tag;
    use crate::format::page::PACK;

    #[test]
    fn a_pack_is_sparse_by_the_blocks_that_it_still_keeps_in_use() {
        let holder = Entry { count: 1, flags: PACK, ..Entry::default() };
        let end = |bytes| Entry { count: 10, tag: Tag(bytes), ..holder };
        let free = Entry::default();
        let find = |entries: &[Entry], percent| {
            let mut before = 0;
            let entries = (0..).map(Pbn).zip(entries);
            entries.filter_map(|(pbn, entry)| sparse_at(pbn, entry, percent, &mut before)).collect::<Vec<_>>()
        };
        // 192 bytes of directory each.
        let entries = [holder, holder, holder, end(7_999), holder, end(7_999), free, end(1_000)];
        let sparse = |end, bytes| SparsePack { end: Pbn(end), bytes };
        assert_eq!(find(&entries, 50), [sparse(3, 7_999), sparse(7, 1_000)]);
        assert_eq!(find(&entries, 25), []);
        let around_free_ones = [end(9_000), holder, free, holder, free, end(5_000)];
        assert_eq!(find(&around_free_ones, 42), [], "three blocks are in use");
        assert_eq!(find(&around_free_ones, 43), [sparse(5, 5_000)]);
        let far = [&[holder][..], &[free; 15], &[end(4_096 / 2)]].concat();
        assert_eq!(find(&far, 50), [], "a pack has at most 16 blocks");
    }
}
