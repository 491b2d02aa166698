//! Hints in groups by the leading bits of their tag: SmartDedup's prefix tree (section 3.2).
//!
//! Owns the tree and its growth, its sorted leaves, and the nine bytes of a hint. Leaves to [`super::eviction`] which
//! hints leave when it is full.
//!
//! The tree is flat: every leaf has one of two neighbouring depths, so the leading bits read backwards are a leaf's
//! index in an array (linear hashing). It grows by one leaf at a time as hints come, so no insertion waits for a
//! reorganisation. While groups are small, several share a leaf, so a long prefix costs no memory.

use std::ops::Range;

use super::{HINT_PBN_BITS, HOLDERS_MAX, Hint, HintOptions, Inserted, PREFIX_BITS_MIN, Pbn, Tag};

/// Bytes of a hint in a leaf.
const ENTRY_BYTES: usize = 9;

/// Mean hints per leaf at which the tree grows. While the store grows, a leaf has between half and twice as many. Once
/// groups are evicted, any number up to twice as many. More would save little memory (24 bytes of 3.4 KiB) and move
/// more bytes per insertion.
pub(super) const LEAF_HINTS: usize = 384;
/// Entries by which a leaf's memory grows: half a step of slack per leaf, about 1 %.
const LEAF_STEP: usize = 8;
/// Leaves per batch of the tree's array, so that the array grows without being moved.
const BATCH_LEAVES: usize = 256;
/// The tree starts with its full depth less these bits, and at least [`PREFIX_BITS_MIN`]. So an entry, which keeps 32
/// bits of the tag after the root bits, competes with the leaves of at most 2^10 others: at worst one false match in
/// 20,000 look-ups.
const GROWTH_BITS: u32 = 10;
/// Bounds the empty tree at 1.5 MiB; only bounds above 100 GB come near it.
const ROOT_BITS_MAX: u32 = 16;

const BATCH_BYTES: u64 = (BATCH_LEAVES * size_of::<Leaf>()) as u64;

/// Hints in groups, bounded in bytes.
///
/// Invariants, asserted by [`GroupedHints::check`]:
/// 1. A hint lies in the leaf that its tag's leading bits name.
/// 2. A leaf's entries are strictly ascending: by tag bits, then by pbn. No hint is there twice.
/// 3. `hints` counts the entries of all leaves.
/// 4. `bytes` is the tree's array plus what the leaves have allocated, and at most `bytes_max`.
/// 5. At most [`HOLDERS_MAX`] entries agree in their tag bits.
/// 6. No leaf is named by more bits than a group's prefix has: a group is never divided.
/// 7. Evicted hints are kept only if the options ask for it.
pub(crate) struct GroupedHints {
    pub(super) options: HintOptions,
    tree: Vec<Box<[Leaf]>>,
    /// Leaves in use. Leaves of the last batch that are not in use yet are empty.
    leaves: usize,
    pub(super) root_bits: u32,
    /// Bits that the groups of one eviction agree in; None: one group at a time.
    pub(super) range_bits: Option<u32>,
    /// The tag that eviction comes to next.
    pub(super) hand: u64,
    pub(super) hints: usize,
    pub(super) bytes: u64,
    pub(super) evicted: Vec<Hint>,
}

fn low_bits(number: u64, bits: u32) -> usize {
    (number & ((1 << bits) - 1)) as usize
}

impl GroupedHints {
    pub(super) fn new(options: HintOptions) -> Self {
        let leaves_at_most = options.bytes_max / (LEAF_HINTS * ENTRY_BYTES) as u64;
        let depth = leaves_at_most.checked_ilog2().unwrap_or(0);
        let root_bits_max = options.prefix_bits.unwrap_or(ROOT_BITS_MAX).min(ROOT_BITS_MAX);
        let root_bits = depth.saturating_sub(GROWTH_BITS).clamp(PREFIX_BITS_MIN, root_bits_max);
        let mut store = Self {
            options,
            tree: Vec::new(),
            leaves: 0,
            root_bits,
            range_bits: None,
            hand: 0,
            hints: 0,
            bytes: 0,
            evicted: Vec::new(),
        };
        if options.bytes_max >= BATCH_BYTES {
            (0..1 << root_bits).for_each(|_| store.add_leaf());
        }
        store
    }

    pub(super) fn lookup(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        if self.leaves == 0 {
            return;
        }
        let spot = self.spot(tag);
        let leaf = self.leaf_mut(spot.address);
        let holders = leaf.holders(spot);
        for entry in &mut leaf.0[holders] {
            entry.set_matched(true);
            pbns.push(entry.pbn());
        }
    }

    pub(super) fn peek(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        if self.leaves == 0 {
            return;
        }
        let spot = self.spot(tag);
        let leaf = self.leaf_mut(spot.address);
        let holders = leaf.holders(spot);
        pbns.extend(leaf.0[holders].iter().map(Entry::pbn));
    }

    pub(super) fn insert(&mut self, tag: Tag, pbn: Pbn) -> Inserted {
        let mut inserted = Inserted::default();
        if self.leaves == 0 {
            return inserted;
        }
        let spot = self.spot(tag);
        let leaf = self.leaf_mut(spot.address);
        let holders = leaf.holders(spot);
        if holders.len() >= HOLDERS_MAX || leaf.0[holders].iter().any(|entry| entry.pbn() == pbn) {
            return inserted;
        }
        let Some(evicted) = self.reserve_one(spot.address) else { return inserted };
        // Not earlier: the eviction may have changed this leaf.
        let leaf = self.leaf_mut(spot.address);
        let place = leaf.place_among(leaf.holders(spot), pbn);
        leaf.0.insert(place, Entry::new(spot.tag_bits, pbn));
        self.hints += 1;
        self.split_when_due();
        inserted.added = true;
        inserted.evicted = evicted;
        inserted
    }

    pub(super) fn remove(&mut self, tag: Tag, pbn: Pbn) -> bool {
        if self.leaves == 0 {
            return false;
        }
        let spot = self.spot(tag);
        let leaf = self.leaf_mut(spot.address);
        let holders = leaf.holders(spot);
        let place = leaf.place_among(holders.clone(), pbn);
        if place == holders.end || leaf.0[place].pbn() != pbn {
            return false;
        }
        leaf.0.remove(place);
        self.hints -= 1;
        self.give_back(spot.address);
        true
    }

    pub(super) fn take_evicted(&mut self) -> Vec<Hint> {
        std::mem::take(&mut self.evicted)
    }

    pub(super) fn len(&self) -> usize {
        self.hints
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.options.bytes_max
    }

    pub(super) fn clear(&mut self) {
        let range_bits = self.range_bits;
        *self = Self { range_bits, ..Self::new(self.options) };
    }

    pub(super) fn check(&self) {
        let mut bytes = self.tree.len() as u64 * BATCH_BYTES;
        let mut hints = 0;
        for (address, leaf) in self.tree.iter().flatten().enumerate() {
            bytes += leaf.bytes();
            hints += leaf.0.len();
            self.check_leaf(address, leaf);
        }
        assert_eq!(hints, self.hints, "invariant 3");
        assert_eq!(bytes, self.bytes, "invariant 4");
        assert!(bytes <= self.bytes_max(), "invariant 4: {bytes} bytes of {}", self.bytes_max());
        let leaves_max = self.options.prefix_bits.map_or(usize::MAX, |bits| 1 << bits);
        assert!(self.leaves <= leaves_max, "invariant 6: {} leaves", self.leaves);
        assert!(self.options.keep_evicted || self.evicted.is_empty(), "invariant 7");
    }

    fn check_leaf(&self, address: usize, leaf: &Leaf) {
        assert!(address < self.leaves || leaf.0.is_empty(), "invariant 1: leaf {address}");
        for entry in &leaf.0 {
            let spot = self.spot(self.tag_of(address, entry));
            assert_eq!(spot.address, address, "invariant 1: {entry:?}");
            assert!(leaf.holders(spot).len() <= HOLDERS_MAX, "invariant 5: {entry:?}");
        }
        let ascending = leaf.0.is_sorted_by(|a, b| a.rank() < b.rank());
        assert!(ascending, "invariant 2: leaf {address}");
    }

    /// The known tag bits of an entry. The entry lacks the root bits; the leaf's own address supplies them.
    pub(super) fn tag_of(&self, address: usize, entry: &Entry) -> Tag {
        let root = (address as u64).reverse_bits() & !(u64::MAX >> self.root_bits);
        Tag(root | u64::from(entry.tag_bits()) << (u32::BITS - self.root_bits))
    }

    /// Depth of the leaves that this round of growth has not split.
    fn depth(&self) -> u32 {
        self.leaves.ilog2()
    }

    /// A leaf's address is the tag's leading bits backwards, with one bit more if this round has already split the
    /// leaf.
    pub(super) fn spot(&self, tag: Tag) -> Spot {
        let depth = self.depth();
        let backwards = tag.0.reverse_bits();
        let (shallow, deep) = (low_bits(backwards, depth), low_bits(backwards, depth + 1));
        let split = shallow < self.leaves - (1 << depth);
        let (address, leaf_bits) = if split { (deep, depth + 1) } else { (shallow, depth) };
        let tag_bits = (tag.0 << self.root_bits >> u32::BITS) as u32;
        Spot { address, leaf_bits, tag_bits, shared_bits: leaf_bits - self.root_bits }
    }

    pub(super) fn leaf_mut(&mut self, address: usize) -> &mut Leaf {
        &mut self.tree[address / BATCH_LEAVES][address % BATCH_LEAVES]
    }

    fn add_leaf(&mut self) {
        if self.leaves == self.tree.len() * BATCH_LEAVES {
            self.tree.push(vec![Leaf::default(); BATCH_LEAVES].into_boxed_slice());
            self.bytes += BATCH_BYTES;
        }
        self.leaves += 1;
    }

    /// Sets how many entries a leaf has memory for, at least those it holds.
    fn resize(&mut self, address: usize, capacity: usize) {
        let entries = &mut self.leaf_mut(address).0;
        let before = allocation_bytes(entries.capacity());
        entries.shrink_to(capacity);
        entries.reserve_exact(capacity - entries.len());
        let after = allocation_bytes(entries.capacity());
        self.bytes = self.bytes - before + after;
    }

    /// Frees memory that a leaf no longer needs, except one step, so that alternating removals and insertions do not
    /// reallocate it each time.
    pub(super) fn give_back(&mut self, address: usize) {
        let entries = &self.leaf_mut(address).0;
        let needed = entries.len().next_multiple_of(LEAF_STEP);
        if entries.capacity() - entries.len() >= 2 * LEAF_STEP || entries.is_empty() {
            self.resize(address, needed);
        }
    }

    /// Makes room for one more entry in a leaf. Returns how many hints were evicted for it;
    /// None if there is no room even in an empty store.
    fn reserve_one(&mut self, address: usize) -> Option<usize> {
        let mut evicted = 0;
        loop {
            let entries = &self.leaf_mut(address).0;
            if entries.len() < entries.capacity() {
                return Some(evicted);
            }
            let capacity = entries.len() + LEAF_STEP;
            let grown = allocation_bytes(capacity) - allocation_bytes(entries.capacity());
            if self.bytes + grown <= self.bytes_max() {
                self.resize(address, capacity);
                return Some(evicted);
            }
            if self.hints == 0 {
                return None;
            }
            evicted += self.evict();
        }
    }

    /// Splits one leaf if leaves are large on average and memory allows it.
    fn split_when_due(&mut self) {
        let batch = if self.leaves == self.tree.len() * BATCH_LEAVES { BATCH_BYTES } else { 0 };
        let slack = 2 * allocation_bytes(2 * LEAF_STEP);
        let fits = self.bytes + batch + slack <= self.bytes_max();
        let undivided = self.options.prefix_bits.is_none_or(|bits| self.leaves < 1 << bits);
        if self.hints > self.leaves * LEAF_HINTS && fits && undivided {
            self.split_leaf();
        }
    }

    /// Gives the next leaf one more leading bit: the hints that have it set move to a new leaf.
    fn split_leaf(&mut self) {
        let depth = self.depth();
        let new = self.leaves;
        let old = new - (1 << depth);
        // Entries of one leaf agree in all bits above this one, so it cuts them in two.
        let bit = 1 << (u32::BITS - 1 - (depth - self.root_bits));
        self.add_leaf();
        let leaf = self.leaf_mut(old);
        let middle = leaf.0.partition_point(|entry| entry.tag_bits() & bit == 0);
        let moved = leaf.0.split_off(middle);
        self.resize(old, middle.next_multiple_of(LEAF_STEP));
        self.bytes += allocation_bytes(moved.capacity());
        let count = moved.len();
        *self.leaf_mut(new) = Leaf(moved);
        self.resize(new, count.next_multiple_of(LEAF_STEP));
    }

    /// Undoes splits while leaves are small on average, so that the tree does not use up a lowered bound.
    pub(super) fn join_when_due(&mut self) {
        while self.leaves > 1 << self.root_bits && self.hints < self.leaves * LEAF_HINTS / 2 {
            self.join_leaf();
        }
    }

    /// Undoes the last split.
    fn join_leaf(&mut self) {
        let last = self.leaves - 1;
        let moved = std::mem::take(self.leaf_mut(last)).0;
        self.bytes -= allocation_bytes(moved.capacity());
        self.leaves = last;
        if last == (self.tree.len() - 1) * BATCH_LEAVES {
            self.tree.pop();
            self.bytes -= BATCH_BYTES;
        }
        let old = last - (1 << self.depth());
        let count = self.leaf_mut(old).0.len() + moved.len();
        self.resize(old, count.next_multiple_of(LEAF_STEP));
        self.leaf_mut(old).0.extend(moved);
    }
}

/// 32 bits of a tag, the mark "matched" and 39 bits of a pbn, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry([u8; ENTRY_BYTES]);

impl Entry {
    const MATCHED: u8 = 0x80;

    pub(super) fn new(tag_bits: u32, pbn: Pbn) -> Self {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&tag_bits.to_be_bytes());
        bytes[4..].copy_from_slice(&pbn.0.to_be_bytes()[3..]);
        Self(bytes)
    }

    pub(super) fn tag_bits(&self) -> u32 {
        u32::from_be_bytes(*self.0.first_chunk().expect("an entry has 9 bytes"))
    }

    pub(super) fn pbn(&self) -> Pbn {
        let low = u64::from_be_bytes(*self.0.last_chunk().expect("an entry has 9 bytes"));
        Pbn(low & ((1 << HINT_PBN_BITS) - 1))
    }

    pub(super) fn rank(&self) -> (u32, Pbn) {
        (self.tag_bits(), self.pbn())
    }

    /// Whether a look-up found the entry since the eviction hand passed.
    pub(super) fn matched(&self) -> bool {
        self.0[4] & Self::MATCHED != 0
    }

    pub(super) fn set_matched(&mut self, matched: bool) {
        self.0[4] = self.0[4] & !Self::MATCHED | if matched { Self::MATCHED } else { 0 };
    }
}

/// Where the hints of a tag are.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    /// The leaf's index in the tree's array.
    pub(super) address: usize,
    /// Leading bits of the tag that name the leaf.
    pub(super) leaf_bits: u32,
    /// The 32 bits of the tag that an entry keeps.
    pub(super) tag_bits: u32,
    /// How many of these are the same throughout the leaf.
    pub(super) shared_bits: u32,
}

/// The hints of one or more neighbouring groups, sorted by tag bits, then by pbn.
#[derive(Clone, Default)]
pub(super) struct Leaf(pub(super) Vec<Entry>);

impl Leaf {
    /// The entries that match a tag. The search starts where an even spread would put them, typically within a cache
    /// line of the goal. A binary search would touch one line per step.
    pub(super) fn holders(&self, spot: Spot) -> Range<usize> {
        let fraction = u64::from(spot.tag_bits << spot.shared_bits);
        let mut start = ((fraction * self.0.len() as u64) >> u32::BITS) as usize;
        while start > 0 && self.0[start - 1].tag_bits() >= spot.tag_bits {
            start -= 1;
        }
        while self.0.get(start).is_some_and(|entry| entry.tag_bits() < spot.tag_bits) {
            start += 1;
        }
        let rest = self.0[start..].iter();
        start..start + rest.take_while(|entry| entry.tag_bits() == spot.tag_bits).count()
    }

    /// Index of the first of these holders that is not below the pbn.
    pub(super) fn place_among(&self, holders: Range<usize>, pbn: Pbn) -> usize {
        holders.start + self.0[holders].partition_point(|entry| entry.pbn() < pbn)
    }

    pub(super) fn bytes(&self) -> u64 {
        allocation_bytes(self.0.capacity())
    }
}

/// Bytes that the allocator takes for this many entries: 8 bytes of overhead, rounded up to 16, and an eighth for the
/// gaps between allocations of many sizes. This gives 10.3 bytes a hint. With glibc, 12.3 resident bytes were measured
/// in a store of 3 MiB that was replaced many times over, because small stores suffer more from gaps, and 10.3 in one
/// of 40 MiB that was replaced once.
pub(super) fn allocation_bytes(entries: usize) -> u64 {
    if entries == 0 {
        return 0;
    }
    let asked = (entries * ENTRY_BYTES + 8).next_multiple_of(16).max(32) as u64;
    asked + asked / 8
}
