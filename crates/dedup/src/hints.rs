//! The hint store's memory level: which pbns may hold the content behind a tag.
//!
//! Owns the vocabulary of hints and the one interface of both ways to keep them: in groups by the
//! leading bits of the tag ([`grouped`], SmartDedup's prefix tree), and as single hints by recency
//! ([`crate::single_hints`], iDedup's cache). Leaves the truth to the block table: a hint may be stale
//! or, its tag being shortened, about another content. What leaves the memory level is handed out
//! for the disk level ([`crate::disk_level`]).

mod entry;
mod eviction;
mod grouped;

pub use crate::single_hints::SINGLE_HINT_BYTES;
use crate::single_hints::SingleHints;
use crate::{Pbn, Sample, Tag};
use grouped::GroupedHints;

/// Holders of one content that are kept; further ones are refused. Bounds what an insertion moves
/// and what a look-up returns when a million blocks are equal. One holder suffices for a share;
/// the others give the run detector a choice.
pub const HOLDERS_MAX: usize = 16;
/// Leading bits of its tag that a hint keeps outside the memory level: of a billion hints, one
/// look-up in a thousand finds a hint about another content, which the block table then refuses.
pub const TAG_BITS_KEPT: u32 = 40;
/// Bits of a pbn that a hint holds: 2 PiB of blocks. Blocks beyond are never found as duplicates.
pub const HINT_PBN_BITS: u32 = 39;
/// Shortest prefix of a group. Shorter ones would leave fewer than [`TAG_BITS_KEPT`] bits of a tag.
pub const PREFIX_BITS_MIN: u32 = 8;
/// Longest prefix of a group: one group per hint in a store of 160 MB.
pub const PREFIX_BITS_MAX: u32 = 24;

/// What the hint store answers, outside of it. Ordered by tag, then by pbn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hint {
    /// The first [`TAG_BITS_KEPT`] bits of the content's tag; the rest is zero.
    pub tag: Tag,
    /// The block that may hold the content.
    pub pbn: Pbn,
}

impl Hint {
    /// The hint that the pbn may hold the tag's content.
    pub fn new(tag: Tag, pbn: Pbn) -> Self {
        Self { tag: Tag(tag.0 & !(u64::MAX >> TAG_BITS_KEPT)), pbn }
    }
}

/// What leaves the memory level when its bound is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// SmartDedup's G-LRU, by a clock: the hand goes through the groups in the order of their
    /// prefixes and takes whole groups; one that matched since the hand last passed stays.
    Groups,
    /// The same clock, but within a group only the hints that matched themselves stay. One match
    /// then keeps 9 bytes, not a group.
    #[default]
    ColdOfGroups,
    /// Least recently used single hints, nearly three times as large ([`SINGLE_HINT_BYTES`]): iDedup's cache of dedup
    /// metadata, and the baseline to compare groups with.
    Singles,
}

/// How a hint store is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintOptions {
    /// Memory allowed.
    pub bytes_max: u64,
    /// Length of the prefix that the hints of a group share (SmartDedup: 14 bits with 3 MB, 18 with
    /// 40 MB), from [`PREFIX_BITS_MIN`] to [`PREFIX_BITS_MAX`]. None: grows with the content.
    pub prefix_bits: Option<u32>,
    /// What leaves when the bound is reached.
    pub eviction: Eviction,
    /// Whether hints that leave are kept for [`HintStore::take_evicted`].
    pub keep_evicted: bool,
    /// Which contents are named at all.
    pub sample: Sample,
}

/// What an insertion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Whether the hint is new in the store. False: it was there, or is one holder too many, or its content is not
    /// in the sample, or its pbn has more than [`HINT_PBN_BITS`] bits.
    pub added: bool,
    /// Hints that left to keep the bound.
    pub evicted: usize,
}

/// Hints in memory, bounded in bytes, on contents of one [`Sample`]: nothing is known of others, whoever asks. The
/// same calls in the same order leave the same hints.
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
    /// An empty store for a complete index that never takes more than `bytes_max`. Below some
    /// 8 KiB it holds nothing.
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let (eviction, sample) = (Eviction::default(), Sample::ALL);
        Self::new(HintOptions { bytes_max, prefix_bits: None, eviction, keep_evicted: false, sample })
    }

    /// An empty store. Panics on a prefix length out of range.
    pub fn new(options: HintOptions) -> Self {
        let allowed = PREFIX_BITS_MIN..=PREFIX_BITS_MAX;
        assert!(options.prefix_bits.is_none_or(|bits| allowed.contains(&bits)), "{options:?}");
        let level = match options.eviction {
            Eviction::Groups | Eviction::ColdOfGroups => Level::Grouped(GroupedHints::new(options)),
            Eviction::Singles => Level::Single(SingleHints::new(options.bytes_max, options.keep_evicted)),
        };
        Self { level, sample: options.sample }
    }

    /// Which contents are named at all.
    pub fn sample(&self) -> Sample {
        self.sample
    }

    /// Appends the pbns that may hold the tag's content, in ascending order. What is found counts as
    /// used; so a hint promoted from the disk level is inserted and then looked up.
    pub fn lookup(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        if self.sample.has(tag) {
            on_level!(mut self, hints => hints.lookup(tag, pbns));
        }
    }

    /// As `lookup`, without counting as a use: for who looks at every block.
    pub fn peek(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        if self.sample.has(tag) {
            on_level!(mut self, hints => hints.peek(tag, pbns));
        }
    }

    /// Adds a hint; evicts others when the bound is reached.
    pub fn insert(&mut self, tag: Tag, pbn: Pbn) -> Inserted {
        if pbn.0 >> HINT_PBN_BITS != 0 || !self.sample.has(tag) {
            return Inserted::default();
        }
        on_level!(mut self, hints => hints.insert(tag, pbn))
    }

    /// Removes a hint; false if it is not there.
    pub fn remove(&mut self, tag: Tag, pbn: Pbn) -> bool {
        self.sample.has(tag) && on_level!(mut self, hints => hints.remove(tag, pbn))
    }

    /// Hands out what was evicted since the last call, ascending, when the store is set up to keep
    /// it. Takes 16 bytes a hint beyond the bound until then, so it is called after every batch.
    pub fn take_evicted(&mut self) -> Vec<Hint> {
        let mut evicted = on_level!(mut self, hints => hints.take_evicted());
        evicted.sort_unstable();
        evicted
    }

    /// Takes out the next portion of hints, used lately or not, ascending; none when the store is
    /// empty. One portion follows the other in prefix order, from where eviction stands.
    pub fn drain_next(&mut self) -> Vec<Hint> {
        on_level!(mut self, hints => hints.drain_next())
    }

    /// Lets one eviction take all groups that agree in so many leading bits, since these lie in one
    /// page of the disk level. None: one group at a time.
    pub fn set_eviction_span_bits(&mut self, bits: Option<u32>) {
        match &mut self.level {
            Level::Grouped(hints) => hints.set_eviction_span_bits(bits),
            Level::Single(_) => (),
        }
    }

    /// Changes the bound; returns how many hints were evicted to keep it.
    pub fn set_bytes_max(&mut self, bytes_max: u64) -> usize {
        on_level!(mut self, hints => hints.set_bytes_max(bytes_max))
    }

    /// Hints held.
    pub fn len(&self) -> usize {
        on_level!(self, hints => hints.len())
    }

    /// Whether no hint is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory taken: hints, slack, tree and the allocator's own.
    pub fn bytes(&self) -> u64 {
        on_level!(self, hints => hints.bytes())
    }

    /// Memory allowed.
    pub fn bytes_max(&self) -> u64 {
        on_level!(self, hints => hints.bytes_max())
    }

    /// Forgets all hints, evicted ones too, and gives their memory back.
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
