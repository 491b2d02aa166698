//! Finds the places of fragments whose entries are damaged, in the directories of packs. The directory with the highest
//! order that names a number is right, if the content there has the tag that it says. If that content is damaged, the
//! fragment is lost: an older directory may name content that the number had before.

use std::sync::atomic::Ordering::Relaxed;

use hashbrown::{HashMap, HashSet};
use oncefs_compress::Expander;

use crate::base::part;
use crate::device::Io;
use crate::device::buffer::PooledBuf;
use crate::format::fragment::FragmentPlace;
use crate::format::pack_directory::{Listed, PackDirectory};
use crate::format::page::pbns_of;
use crate::state::loading::Metadata;
use crate::{BLOCK_BYTES, Pbn, Result, Tag};

/// Pages of the table looked at in one step.
const STEP_PAGES: u64 = 8;

/// Fragments by number: the tag of their content, and their place.
pub type Places = HashMap<Pbn, (Tag, FragmentPlace)>;

/// A search that goes in steps.
pub struct Search {
    lost: HashSet<Pbn>,
    /// The next page of the block table.
    next: u64,
    newest: HashMap<Pbn, (u64, Listed, FragmentPlace)>,
}

impl Search {
    /// Begins a search for these fragments.
    pub fn new(lost: HashSet<Pbn>) -> Self {
        Self { lost, next: 0, newest: HashMap::new() }
    }

    /// The fragments that it searches for.
    pub fn lost(&self) -> &HashSet<Pbn> {
        &self.lost
    }
}

part! {
    /// Searches directories of packs.
    pub struct LostPlaces { base: data, hasher, stats; metadata: Metadata }
}

impl LostPlaces {
    /// The places of these fragments, as far as directories name them and their content is sound. Reads a block of each
    /// pack.
    pub fn find(&self, lost: HashSet<Pbn>) -> Result<Places> {
        let mut search = Search::new(lost);
        while !search.lost.is_empty() && self.search_some(&mut search)?.is_some() {}
        Ok(self.sound(&search))
    }

    /// One step. Returns how many blocks it read. None: all packs were seen.
    pub fn search_some(&self, search: &mut Search) -> Result<Option<u64>> {
        let Some((first, pages)) = self.metadata.pages_of_blocks(search.next, STEP_PAGES)? else { return Ok(None) };
        let mut read = 0;
        for (number, page) in (first..).zip(pages) {
            let Some(page) = page else { continue };
            let ends: Vec<Pbn> = pbns_of(number).filter(|pbn| page.entry(*pbn).pack_bytes().is_some()).collect();
            read += ends.len() as u64;
            for directory in self.directories(&ends) {
                note_newest(&directory, &search.lost, &mut search.newest);
            }
        }
        search.next = first + STEP_PAGES;
        Ok(Some(read))
    }

    /// The places that a search has found, as far as the content there matches its directory.
    pub fn sound(&self, search: &Search) -> Places {
        let mut expander = Expander::default();
        let sound = search.newest.iter().filter(|(_, (_, listed, place))| self.is_sound(listed, place, &mut expander));
        sound.map(|(pbn, (_, listed, place))| (*pbn, (listed.tag, *place))).collect()
    }

    /// The directories at the end of blocks, as far as they can be read. They are read all at once.
    fn directories(&self, ends: &[Pbn]) -> Vec<(Pbn, PackDirectory)> {
        let mut blocks: Vec<_> = ends.iter().map(|_| self.data.take_buffer(BLOCK_BYTES)).collect();
        let at = |end: Pbn| end.0 * BLOCK_BYTES as u64;
        let mut reads: Vec<Io<'_>> =
            ends.iter().zip(&mut blocks).map(|(end, block)| Io::read(at(*end), &mut block[..])).collect();
        let results = self.data.read_many(&mut reads);
        drop(reads);
        self.stats.counters.data_bytes_read.fetch_add((ends.len() * BLOCK_BYTES) as u64, Relaxed);
        let read = ends.iter().zip(&blocks).zip(results).filter(|(_, result)| result.is_ok());
        let directory = |((end, block), _): ((&Pbn, _), _)| {
            let block: &PooledBuf = block;
            Some((*end, PackDirectory::read(*end, block, |bytes| self.hasher.tag(bytes).0)?))
        };
        read.filter_map(directory).collect()
    }

    /// Whether the content at a place has the tag that its directory says.
    fn is_sound(&self, listed: &Listed, place: &FragmentPlace, expander: &mut Expander) -> bool {
        let blocks: Vec<Pbn> = place.blocks().collect();
        let mut bytes = self.data.take_buffer(blocks.len() * BLOCK_BYTES);
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
