//! The directory of extendible hashing: which page has the hints of a prefix.
//!
//! Owns prefixes and the array of slots. Knows neither the content of pages nor which pages are free.

use super::PageNo;
use crate::Tag;

/// Shortest prefix of a page: entries on disk keep the bits of a tag after these.
pub(super) const DEPTH_MIN: u32 = 8;
/// Longest prefix of a page. 2^26 pages have the hints of 90 TB, and the directory then takes 256 MiB.
pub(super) const DEPTH_MAX: u32 = 26;

/// No page: no hint has this prefix.
const NONE: u32 = u32::MAX;

/// The leading bits in which all tags of a page agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// These bits as a number.
    pub bits: u32,
    /// How many bits, 8 to 26.
    pub depth: u32,
}

impl Prefix {
    /// The tag's first `depth` bits.
    pub fn of(tag: Tag, depth: u32) -> Self {
        Self { bits: (tag.0 >> (u64::BITS - depth)) as u32, depth }
    }

    /// Whether the tag begins with this prefix.
    pub fn holds(self, tag: Tag) -> bool {
        Self::of(tag, self.depth) == self
    }

    /// The lowest tag that begins with this prefix.
    pub fn first_tag(self) -> Tag {
        Tag(u64::from(self.bits) << (u64::BITS - self.depth))
    }

    /// Whether a page can have this prefix.
    pub(super) fn is_valid(self) -> bool {
        (DEPTH_MIN..=DEPTH_MAX).contains(&self.depth) && self.bits >> self.depth == 0
    }

    /// The lowest tag above all that begin with this prefix. None if no tag is.
    pub(super) fn end(self) -> Option<Tag> {
        self.first_tag().0.checked_add(1 << (u64::BITS - self.depth)).map(Tag)
    }

    /// The two prefixes with one bit more.
    pub(super) fn halves(self) -> [Self; 2] {
        [0, 1].map(|bit| Self { bits: self.bits << 1 | bit, depth: self.depth + 1 })
    }

    /// The prefix with one bit less. None for the shortest.
    pub(super) fn parent(self) -> Option<Self> {
        (self.depth > DEPTH_MIN).then(|| Self { bits: self.bits >> 1, depth: self.depth - 1 })
    }

    /// The other half of the parent.
    pub(super) fn buddy(self) -> Self {
        Self { bits: self.bits ^ 1, depth: self.depth }
    }
}

/// One slot for each prefix of the depth of the deepest page, now or before.
/// A page with a shorter prefix has several adjacent slots.
pub(super) struct Directory {
    slots: Vec<u32>,
    depth: u32,
}

impl Directory {
    pub(super) fn new() -> Self {
        Self { slots: vec![NONE; 1 << DEPTH_MIN], depth: DEPTH_MIN }
    }

    pub(super) fn page(&self, tag: Tag) -> Option<PageNo> {
        self.page_in(self.slot(tag))
    }

    /// The page of a tag with its prefix. If it has no page, the shortest prefix without one.
    pub(super) fn region(&self, tag: Tag) -> (Prefix, Option<PageNo>) {
        let content = self.slots[self.slot(tag)];
        let mut prefix = Prefix::of(tag, self.depth);
        while let Some(parent) = prefix.parent() {
            let buddy = self.range(prefix.buddy());
            if self.slots[buddy].iter().any(|&slot| slot != content) {
                break;
            }
            prefix = parent;
        }
        (prefix, self.page(tag))
    }

    /// The first page with a tag that is not below this one.
    pub(super) fn next_page(&self, tag: Tag) -> Option<(Prefix, PageNo)> {
        let slot = (self.slot(tag)..self.slots.len()).find(|&slot| self.slots[slot] != NONE)?;
        let first = Prefix { bits: slot as u32, depth: self.depth }.first_tag();
        let (prefix, page) = self.region(first);
        page.map(|page| (prefix, page))
    }

    /// The first page with a tag of this prefix, whatever its own prefix.
    pub(super) fn first_within(&self, prefix: Prefix) -> Option<(Prefix, PageNo)> {
        let (found, page) = self.next_page(prefix.first_tag())?;
        (prefix.holds(found.first_tag()) || found.holds(prefix.first_tag())).then_some((found, page))
    }

    /// Assigns a page, or none, to all tags with this prefix.
    pub(super) fn set(&mut self, prefix: Prefix, page: Option<PageNo>) {
        while self.depth < prefix.depth {
            self.slots = self.slots.iter().flat_map(|&slot| [slot, slot]).collect();
            self.depth += 1;
        }
        let range = self.range(prefix);
        self.slots[range].fill(page.map_or(NONE, |page| page.0));
    }

    /// Halves the array while no page needs its last bit.
    pub(super) fn shrink(&mut self) {
        while self.depth > DEPTH_MIN && self.slots.chunks(2).all(|pair| pair[0] == pair[1]) {
            self.slots = self.slots.iter().step_by(2).copied().collect();
            self.depth -= 1;
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        (self.slots.capacity() * size_of::<u32>()) as u64
    }

    /// All pages with their prefixes, in prefix order.
    pub(super) fn pages(&self) -> impl Iterator<Item = (Prefix, PageNo)> {
        let first = self.next_page(Tag(0));
        std::iter::successors(first, |(prefix, _)| self.next_page(prefix.end()?))
    }

    pub(super) fn check(&self) {
        assert!((DEPTH_MIN..=DEPTH_MAX).contains(&self.depth), "invariant 1: depth {}", self.depth);
        assert_eq!(self.slots.len(), 1 << self.depth, "invariant 1");
    }

    fn slot(&self, tag: Tag) -> usize {
        Prefix::of(tag, self.depth).bits as usize
    }

    fn page_in(&self, slot: usize) -> Option<PageNo> {
        Some(self.slots[slot]).filter(|&slot| slot != NONE).map(PageNo)
    }

    /// The slots of a prefix that is not longer than theirs.
    fn range(&self, prefix: Prefix) -> std::ops::Range<usize> {
        let spare = self.depth - prefix.depth;
        (prefix.bits as usize) << spare..(prefix.bits as usize + 1) << spare
    }
}
