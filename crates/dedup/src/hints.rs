//! The hint store's memory level: which pbns may hold the content with a tag.
//!
//! Owns the vocabulary of hints, the choice of the contents that get hints ([`Sample`]), and the common interface of
//! both ways to store them: in groups by the leading bits of the tag ([`grouped`], SmartDedup's prefix tree, section
//! 3.2), and as single hints by recency ([`crate::single_hints`], iDedup's cache, section 4.1). Leaves the truth to the
//! block table: a hint may be stale, or, as its tag is shortened, about another content. Hints that leave the memory
//! level are handed out for the disk level ([`crate::disk_level`]).

mod eviction;
mod grouped;

use std::num::NonZeroU32;

pub use crate::single_hints::SINGLE_HINT_BYTES;
use crate::single_hints::SingleHints;
use crate::{Pbn, Tag};
use grouped::GroupedHints;

/// Maximum holders of one content; further ones are refused. Bounds the work of an insertion and the size of a
/// look-up's answer when a million blocks are equal. One holder is enough to share. The others give the run detector a
/// choice.
pub const HOLDERS_MAX: usize = 16;
/// Leading bits of its tag that a hint keeps outside the memory level: of a billion hints, one
/// look-up in a thousand finds a hint about another content, which the block table then refuses.
pub const TAG_BITS_KEPT: u32 = 40;
/// Bits of a pbn in a hint: 2 PiB of blocks. Blocks beyond are never found as duplicates.
pub const HINT_PBN_BITS: u32 = 39;
/// Shortest prefix of a group. Shorter ones would leave fewer than [`TAG_BITS_KEPT`] bits of a tag.
pub const PREFIX_BITS_MIN: u32 = 8;
/// Longest prefix of a group: one group per hint in a store of 160 MB.
pub const PREFIX_BITS_MAX: u32 = 24;

/// A hint outside the store. Ordered by tag, then by pbn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hint {
    /// The first [`TAG_BITS_KEPT`] bits of the content's tag; the rest is zero.
    pub tag: Tag,
    /// The block that may hold the content.
    pub pbn: Pbn,
}

impl Hint {
    /// The hint that this pbn may hold the content with this tag.
    pub fn new(tag: Tag, pbn: Pbn) -> Self {
        Self { tag: Tag(tag.0 & !(u64::MAX >> TAG_BITS_KEPT)), pbn }
    }
}

/// One content in N, chosen by its tag: every copy of a content is in the sample, or none is. The sample is spread
/// evenly among the tags of a group, because hints are grouped by a tag's leading bits and sampled by its trailing
/// bits.
///
/// A long run of duplicates needs one hint, not one for each of its blocks: [`crate::Extension`] finds the neighbours
/// of a block with a hint in the block table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample(NonZeroU32);

impl Sample {
    /// Every content.
    pub const ALL: Self = Self(NonZeroU32::MIN);

    /// One content in `number`; 0 counts as 1: every one.
    pub fn one_of(number: u32) -> Self {
        NonZeroU32::new(number).map_or(Self::ALL, Self)
    }

    /// N: one content in this many is in the sample.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// Whether the content with this tag is in the sample. Takes a whole tag, not the shortened tag of a [`Hint`].
    pub fn has(self, tag: Tag) -> bool {
        tag.0.is_multiple_of(u64::from(self.number()))
    }

    /// Whether this sample contains the other one. Then hints that are complete for this one are complete for the other
    /// too.
    pub fn covers(self, other: Self) -> bool {
        other.number().is_multiple_of(self.number())
    }
}

/// Which hints leave the memory level when it is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// SmartDedup's G-LRU (section 3.2) as a clock: the hand visits the groups in the order of their prefixes and
    /// evicts whole groups. A group that matched since the hand last passed stays.
    Groups,
    /// The same clock, but within a group only the hints that matched stay. So one match keeps 9 bytes, not a group.
    #[default]
    ColdOfGroups,
    /// The least recently used single hints, nearly three times as large ([`SINGLE_HINT_BYTES`]): iDedup's cache of
    /// dedup metadata (section 4.1), the baseline for groups.
    Singles,
}

/// The options of a hint store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintOptions {
    /// Memory allowed, in bytes.
    pub bytes_max: u64,
    /// Length of the prefix that the hints of a group share (SmartDedup: 14 bits with 3 MB, 18 with
    /// 40 MB), from [`PREFIX_BITS_MIN`] to [`PREFIX_BITS_MAX`]. None: grows with the content.
    pub prefix_bits: Option<u32>,
    /// Which hints leave when it is full.
    pub eviction: Eviction,
    /// Whether hints that leave are kept for [`HintStore::take_evicted`].
    pub keep_evicted: bool,
    /// Which contents get hints.
    pub sample: Sample,
}

/// The result of an insertion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Whether the hint was added. False: it exists already, its content has enough holders or is not in the sample, or
    /// its pbn has more than [`HINT_PBN_BITS`] bits.
    pub added: bool,
    /// Hints evicted to keep the bound.
    pub evicted: usize,
}

/// Hints in memory, bounded in bytes, for the contents of one [`Sample`] only. The same sequence of calls leaves the
/// same hints.
pub struct HintStore {
    level: Level,
    sample: Sample,
}

enum Level {
    Grouped(GroupedHints),
    Single(SingleHints),
}

/// The same call on either level.
macro_rules! on_level {
    ($store:ident, $hints:ident => $call:expr) => {
        match &$store.level {
            Level::Grouped($hints) => $call,
            Level::Single($hints) => $call,
        }
    };
    (mut $store:ident, $hints:ident => $call:expr) => {
        match &mut $store.level {
            Level::Grouped($hints) => $call,
            Level::Single($hints) => $call,
        }
    };
}

impl HintStore {
    /// An empty store for all contents that never takes more than `bytes_max` bytes. Below about 8 KiB it stays empty.
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let (eviction, sample) = (Eviction::default(), Sample::ALL);
        Self::new(HintOptions { bytes_max, prefix_bits: None, eviction, keep_evicted: false, sample })
    }

    /// An empty store. Panics if the prefix length is out of range.
    pub fn new(options: HintOptions) -> Self {
        let allowed = PREFIX_BITS_MIN..=PREFIX_BITS_MAX;
        assert!(options.prefix_bits.is_none_or(|bits| allowed.contains(&bits)), "{options:?}");
        let level = match options.eviction {
            Eviction::Groups | Eviction::ColdOfGroups => Level::Grouped(GroupedHints::new(options)),
            Eviction::Singles => Level::Single(SingleHints::new(options.bytes_max, options.keep_evicted)),
        };
        Self { level, sample: options.sample }
    }

    /// Which contents get hints.
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// Appends the pbns that may hold the content with this tag, ascending. A found hint counts as used, so insert a
    /// hint promoted from the disk level first and look it up then.
    pub fn lookup(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        if self.sample.has(tag) {
            on_level!(mut self, hints => hints.lookup(tag, pbns));
        }
    }

    /// As `lookup`, without counting as a use: for callers that look at every block.
    pub fn peek(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        if self.sample.has(tag) {
            on_level!(mut self, hints => hints.peek(tag, pbns));
        }
    }

    /// Adds a hint, and evicts others if the bound is reached.
    pub fn insert(&mut self, tag: Tag, pbn: Pbn) -> Inserted {
        if pbn.0 >> HINT_PBN_BITS != 0 || !self.sample.has(tag) {
            return Inserted::default();
        }
        on_level!(mut self, hints => hints.insert(tag, pbn))
    }

    /// Removes a hint. False if it does not exist.
    pub fn remove(&mut self, tag: Tag, pbn: Pbn) -> bool {
        self.sample.has(tag) && on_level!(mut self, hints => hints.remove(tag, pbn))
    }

    /// Returns the hints evicted since the last call, ascending, if the store is set up to keep them.
    /// They take 16 bytes each beyond the bound, so call it after every batch.
    pub fn take_evicted(&mut self) -> Vec<Hint> {
        let mut evicted = on_level!(mut self, hints => hints.take_evicted());
        evicted.sort_unstable();
        evicted
    }

    /// Removes and returns the next batch of hints, used or not, ascending. Empty when the store is empty. Batches come
    /// in prefix order, starting at the eviction hand.
    pub fn drain_next(&mut self) -> Vec<Hint> {
        on_level!(mut self, hints => hints.drain_next())
    }

    /// Makes one eviction take all groups that agree in this many leading bits, because they lie in one page of the
    /// disk level. None: one group at a time.
    pub fn set_eviction_range_bits(&mut self, bits: Option<u32>) {
        match &mut self.level {
            Level::Grouped(hints) => hints.set_eviction_range_bits(bits),
            Level::Single(_) => (),
        }
    }

    /// Changes the bound, in bytes; returns how many hints were evicted to keep it.
    pub fn set_bytes_max(&mut self, bytes_max: u64) -> usize {
        on_level!(mut self, hints => hints.set_bytes_max(bytes_max))
    }

    /// Number of hints.
    pub fn len(&self) -> usize {
        on_level!(self, hints => hints.len())
    }

    /// Whether there are no hints.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory taken, in bytes: hints, slack, tree and the allocator's overhead.
    pub fn bytes(&self) -> u64 {
        on_level!(self, hints => hints.bytes())
    }

    /// Memory allowed, in bytes.
    pub fn bytes_max(&self) -> u64 {
        on_level!(self, hints => hints.bytes_max())
    }

    /// Forgets all hints, evicted ones too, and frees their memory.
    pub fn clear(&mut self) {
        on_level!(mut self, hints => hints.clear());
    }

    /// Asserts the invariants of the level in use; visits every hint.
    pub fn check(&self) {
        on_level!(self, hints => hints.check());
    }
}

#[cfg(test)]
mod tests;
