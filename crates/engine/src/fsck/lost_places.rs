//! Finds the places of fragments whose entries are damaged, in the directories of packs. The directory with the highest
//! order that names a number is right, if the content there has the tag that it says. If that content is damaged, the
//! fragment is lost: an older directory may name content that the number had before.

use hashbrown::{HashMap, HashSet};
use oncefs_compress::Expander;

use crate::base::part;
use crate::device::buffer::AlignedBuf;
use crate::format::fragment::FragmentPlace;
use crate::format::pack_directory::{Listed, PackDirectory};
use crate::format::page::{PAGE_ENTRIES, pbns_of};
use crate::fsck::check::Checker;
use crate::{BLOCK_BYTES, Pbn, Result, Tag};

/// Pages of the table read in one request.
const REQUEST_PAGES: u64 = 32;

/// Fragments by number: the tag of their content, and their place.
pub type FoundPlaces = HashMap<Pbn, (Tag, FragmentPlace)>;

part! {
    /// Searches directories of packs.
    pub struct LostPlaces {
        base: state, stored, data, hasher;
        checker: Checker
    }
}

impl LostPlaces {
    /// The places of these fragments, as far as directories name them and their content is sound. Reads a block of each
    /// pack.
    pub fn find(&self, lost: &HashSet<Pbn>) -> Result<FoundPlaces> {
        if lost.is_empty() {
            return Ok(FoundPlaces::new());
        }
        let mut newest: HashMap<Pbn, (u64, Listed, FragmentPlace)> = HashMap::new();
        let end = self.state.lock().totals.data.0.div_ceil(PAGE_ENTRIES);
        let mut number = 0;
        while let Some(first) = self.next_page(number)?.filter(|first| *first < end) {
            let count = REQUEST_PAGES.min(end - first);
            for (number, page) in (first..).zip(self.checker.pages_as_found(first, count)?) {
                let ends = pbns_of(number).filter(|pbn| page.entry(*pbn).pack_bytes().is_some());
                for directory in ends.filter_map(|end| Some((end, self.directory(end)?))) {
                    note_newest(&directory, lost, &mut newest);
                }
            }
            number = first + count;
        }
        let mut expander = Expander::default();
        let sound = newest.into_iter().filter(|(_, (_, listed, place))| self.is_sound(listed, place, &mut expander));
        Ok(sound.map(|(pbn, (_, listed, place))| (pbn, (listed.tag, place))).collect())
    }

    fn next_page(&self, from: u64) -> Result<Option<u64>> {
        let on_disk = self.stored.next_written_page(from)?;
        Ok([on_disk, self.state.lock().table.unwritten_from(from)].into_iter().flatten().min())
    }

    /// The directory at the end of a block. None: it cannot be read.
    fn directory(&self, end: Pbn) -> Option<PackDirectory> {
        let mut block = AlignedBuf::new(BLOCK_BYTES);
        self.data.read(end, &mut block).ok()?;
        PackDirectory::read(end, &block, |bytes| self.hasher.tag(bytes).0)
    }

    /// Whether the content at a place has the tag that its directory says.
    fn is_sound(&self, listed: &Listed, place: &FragmentPlace, expander: &mut Expander) -> bool {
        let blocks: Vec<Pbn> = place.blocks().collect();
        let mut bytes = AlignedBuf::new(blocks.len() * BLOCK_BYTES);
        if self.data.read(blocks[0], &mut bytes).is_err() {
            return false;
        }
        let from = (place.at % BLOCK_BYTES as u64) as usize;
        let mut block = vec![0; BLOCK_BYTES];
        let fragment = &bytes[from..from + usize::from(place.bytes)];
        expander.expand(place.coding, fragment, &mut block).is_ok() && self.hasher.tag(&block) == listed.tag
    }
}

/// Keeps what a directory says of lost fragments, unless a newer one was seen.
fn note_newest(
    (end, directory): &(Pbn, PackDirectory),
    lost: &HashSet<Pbn>,
    newest: &mut HashMap<Pbn, (u64, Listed, FragmentPlace)>,
) {
    for (listed, place) in directory.places(*end).filter(|(listed, _)| lost.contains(&listed.number)) {
        let known = newest.entry(listed.number).or_insert((directory.order, listed, place));
        if known.0 < directory.order {
            *known = (directory.order, listed, place);
        }
    }
}

#[cfg(test)]
mod tests {
    use oncefs_compress::Coding;

    use super::*;
    use crate::format::fragment::FIRST_NUMBER;

    #[test]
    fn the_newest_directory_is_right_in_whatever_order_they_are_seen() {
        let number = Pbn(FIRST_NUMBER + 7);
        let directory = |order: u64| PackDirectory {
            order,
            blocks: 1,
            fragments: vec![Listed { number, bytes: 100, coding: Coding::Lz4, tag: Tag(order) }],
        };
        let lost = HashSet::from([number]);
        for seen in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
            let mut newest = HashMap::new();
            seen.into_iter().for_each(|order| note_newest(&(Pbn(10 + order), directory(order)), &lost, &mut newest));
            assert_eq!(newest[&number].1.tag, Tag(3), "seen in the order {seen:?}");
            assert_eq!(newest[&number].2.pack_end(), Pbn(13));
        }
        let mut newest = HashMap::new();
        note_newest(&(Pbn(10), directory(1)), &HashSet::new(), &mut newest);
        assert!(newest.is_empty(), "only what is lost is looked for");
    }
}
