//! The hint store's memory level: which pbns may hold the content behind a tag.
//!
//! Owns the hints, their bound in bytes and the choice of what leaves when it is reached. Leaves
//! the truth to the block table: a hint may be stale or, its tag being shortened, about another
//! content. The disk level takes what [`HintStore`] evicts, group by group, in its own module.
//!
//! Hints are grouped by the leading bits of their tag, as the leaves of SmartDedup's prefix tree.
//! The tree is kept flat: as every leaf has one of two neighbouring depths, the leading bits read
//! backwards are a leaf's place in an array (linear hashing). It grows by one leaf at a time, as
//! hints come, so no insertion waits for a reorganisation.

use std::ops::Range;

use crate::{Pbn, Tag};

/// Holders of one content that are kept; further ones are refused. Bounds what an insertion moves
/// and what a look-up returns when a million blocks are equal. One holder suffices for a share;
/// the others give the run detector a choice.
pub const HOLDERS_MAX: usize = 16;

/// Mean hints per group at which the tree grows: a group holds half to twice as many while the
/// store grows, any number up to twice that once whole groups are evicted.
/// More would save little memory (32 bytes of 2 KiB) and move more bytes per insertion.
const GROUP_HINTS: usize = 192;
/// Entries by which a group's memory grows: half a step of slack per group, about 2 %.
const GROUP_STEP: usize = 8;
/// Groups per piece of the tree's array, so that the array grows without being moved.
const PIECE_GROUPS: usize = 256;
/// The tree starts with its full depth less these bits. So an entry, which keeps 32 bits of the
/// tag after the root bits, is told from 2^10 groups' worth of others: one false match in 20,000
/// look-ups at the worst.
const GROWTH_BITS: u32 = 10;
/// Bounds the empty tree at 2 MiB; only bounds above 100 GB come near it.
const ROOT_BITS_MAX: u32 = 16;
/// Groups spared in a row because a look-up used them, so that one eviction takes bounded time.
const SPARED_MAX: usize = 64;

const ENTRY_BYTES: usize = 9;
const PBN_BITS: u32 = 40;
const PIECE_BYTES: u64 = (PIECE_GROUPS * size_of::<Group>()) as u64;

/// What an insertion did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inserted {
    /// Whether the hint is new in the store. False: it was there, or is one holder too many, or
    /// its pbn has more than 40 bits (4 PiB; such blocks are never found as duplicates).
    pub added: bool,
    /// Hints that left to keep the bound.
    pub evicted: usize,
}

/// Hints in memory, bounded in bytes. The same calls in the same order leave the same hints.
///
/// Invariants, asserted by [`HintStore::check`]:
/// 1. A hint lies in the group that its tag's leading bits name.
/// 2. A group's entries are strictly ascending: by tag bits, then by pbn. No hint is there twice.
/// 3. `hints` counts the entries of all groups.
/// 4. `bytes` is the tree's array plus what the groups have allocated, and at most `bytes_max`.
/// 5. At most [`HOLDERS_MAX`] entries agree in their tag bits.
pub struct HintStore {
    tree: Vec<Box<[Group]>>,
    /// Groups in use; those of the last piece that are not yet in use are empty.
    groups: usize,
    root_bits: u32,
    hand: usize,
    hints: usize,
    bytes: u64,
    bytes_max: u64,
}

#[derive(Clone, Default)]
struct Group {
    entries: Vec<Entry>,
    /// A look-up matched here since the eviction hand passed.
    recent: bool,
}

/// 32 bits of a tag and 40 of a pbn, big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry([u8; ENTRY_BYTES]);

impl Entry {
    fn new(tag_bits: u32, pbn: Pbn) -> Self {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..4].copy_from_slice(&tag_bits.to_be_bytes());
        bytes[4..].copy_from_slice(&pbn.0.to_be_bytes()[3..]);
        Self(bytes)
    }

    fn tag_bits(&self) -> u32 {
        u32::from_be_bytes(*self.0.first_chunk().expect("an entry has 9 bytes"))
    }

    fn pbn(&self) -> Pbn {
        let low = u64::from_be_bytes(*self.0.last_chunk().expect("an entry has 9 bytes"));
        Pbn(low & ((1 << PBN_BITS) - 1))
    }

    fn rank(&self) -> (u32, Pbn) {
        (self.tag_bits(), self.pbn())
    }
}

/// Where a tag's hints lie.
#[derive(Clone, Copy)]
struct Spot {
    /// Group, by its place in the tree's array.
    address: usize,
    /// The 32 bits that an entry keeps.
    tag_bits: u32,
    /// How many of these are equal throughout the group.
    shared_bits: u32,
}

impl Group {
    /// The entries that agree with a tag. The search starts where even spreading would put them,
    /// typically within a cache line of the goal, where halving would touch one line per step.
    fn holders(&self, spot: Spot) -> Range<usize> {
        let fraction = u64::from(spot.tag_bits << spot.shared_bits);
        let mut start = ((fraction * self.entries.len() as u64) >> u32::BITS) as usize;
        while start > 0 && self.entries[start - 1].tag_bits() >= spot.tag_bits {
            start -= 1;
        }
        while self.entries.get(start).is_some_and(|entry| entry.tag_bits() < spot.tag_bits) {
            start += 1;
        }
        let rest = self.entries[start..].iter();
        start..start + rest.take_while(|entry| entry.tag_bits() == spot.tag_bits).count()
    }

    /// Place of the first of these holders that is not below the pbn.
    fn place_among(&self, holders: Range<usize>, pbn: Pbn) -> usize {
        holders.start + self.entries[holders].partition_point(|entry| entry.pbn() < pbn)
    }

    fn bytes(&self) -> u64 {
        allocation_bytes(self.entries.capacity())
    }
}

/// What the allocator takes for so many entries: 8 bytes of its own, rounded up to 16, and an
/// eighth for the holes between pieces of many sizes. Counted so, a hint takes 10.6 bytes. With
/// glibc 10.3 to 10.6 were measured resident while a store of 10 MB and more grows, 10.9 after it
/// was replaced many times over; 12.3 after that in one of 3.5 MB.
fn allocation_bytes(entries: usize) -> u64 {
    if entries == 0 {
        return 0;
    }
    let asked = (entries * ENTRY_BYTES + 8).next_multiple_of(16).max(32) as u64;
    asked + asked / 8
}

fn low_bits(number: u64, bits: u32) -> usize {
    (number & ((1 << bits) - 1)) as usize
}

impl HintStore {
    /// An empty store that never takes more than `bytes_max`. Below some 8 KiB it holds nothing.
    pub fn with_bytes_max(bytes_max: u64) -> Self {
        let groups_at_most = bytes_max / (GROUP_HINTS * ENTRY_BYTES) as u64;
        let depth = groups_at_most.checked_ilog2().unwrap_or(0);
        let root_bits = depth.saturating_sub(GROWTH_BITS).min(ROOT_BITS_MAX);
        let mut store = Self { tree: Vec::new(), groups: 0, root_bits, hand: 0, hints: 0, bytes: 0, bytes_max };
        if bytes_max >= PIECE_BYTES {
            (0..1 << root_bits).for_each(|_| store.add_group());
        }
        store
    }

    /// Appends the pbns that may hold the tag's content, in ascending order.
    pub fn lookup(&mut self, tag: Tag, pbns: &mut Vec<Pbn>) {
        if self.groups == 0 {
            return;
        }
        let spot = self.spot(tag);
        let group = self.group_mut(spot.address);
        let holders = group.holders(spot);
        group.recent |= !holders.is_empty();
        pbns.extend(group.entries[holders].iter().map(Entry::pbn));
    }

    /// Adds a hint; evicts others when the bound is reached.
    pub fn insert(&mut self, tag: Tag, pbn: Pbn) -> Inserted {
        let mut inserted = Inserted::default();
        if self.groups == 0 || pbn.0 >> PBN_BITS != 0 {
            return inserted;
        }
        let spot = self.spot(tag);
        let group = self.group_mut(spot.address);
        let holders = group.holders(spot);
        let place = group.place_among(holders.clone(), pbn);
        let known = place < holders.end && group.entries[place].pbn() == pbn;
        if known || holders.len() >= HOLDERS_MAX {
            return inserted;
        }
        let Some(evicted) = self.reserve_one(spot.address) else { return inserted };
        let entries = &mut self.group_mut(spot.address).entries;
        // If room was made by evicting this very group, it is empty now.
        entries.insert(place.min(entries.len()), Entry::new(spot.tag_bits, pbn));
        self.hints += 1;
        self.split_when_due();
        inserted.added = true;
        inserted.evicted = evicted;
        inserted
    }

    /// Removes a hint; false if it is not there.
    pub fn remove(&mut self, tag: Tag, pbn: Pbn) -> bool {
        if self.groups == 0 || pbn.0 >> PBN_BITS != 0 {
            return false;
        }
        let spot = self.spot(tag);
        let group = self.group_mut(spot.address);
        let holders = group.holders(spot);
        let place = group.place_among(holders.clone(), pbn);
        if place == holders.end || group.entries[place].pbn() != pbn {
            return false;
        }
        group.entries.remove(place);
        let entries = group.entries.len();
        if group.entries.capacity() - entries >= 2 * GROUP_STEP {
            self.resize(spot.address, entries.next_multiple_of(GROUP_STEP));
        }
        self.hints -= 1;
        true
    }

    /// Hints held.
    pub fn len(&self) -> usize {
        self.hints
    }

    /// Whether no hint is held.
    pub fn is_empty(&self) -> bool {
        self.hints == 0
    }

    /// Memory taken: hints, slack, tree and the allocator's own.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Memory allowed.
    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Forgets all hints and gives their memory back.
    pub fn clear(&mut self) {
        *self = Self::with_bytes_max(self.bytes_max);
    }

    /// Asserts the invariants; visits every hint.
    pub fn check(&self) {
        let mut bytes = self.tree.len() as u64 * PIECE_BYTES;
        let mut hints = 0;
        for (address, group) in self.tree.iter().flatten().enumerate() {
            bytes += group.bytes();
            hints += group.entries.len();
            self.check_group(address, group);
        }
        assert_eq!(hints, self.hints, "invariant 3");
        assert_eq!(bytes, self.bytes, "invariant 4");
        assert!(bytes <= self.bytes_max, "invariant 4: {bytes} bytes of {}", self.bytes_max);
    }

    fn check_group(&self, address: usize, group: &Group) {
        assert!(address < self.groups || group.entries.is_empty(), "invariant 1: group {address}");
        for entry in &group.entries {
            // The root bits are not in the entry; the group's own address supplies them.
            let root = (address as u64).reverse_bits() & !(u64::MAX >> self.root_bits);
            let tag = root | u64::from(entry.tag_bits()) << (u32::BITS - self.root_bits);
            let spot = self.spot(Tag(tag));
            assert_eq!(spot.address, address, "invariant 1: {entry:?}");
            assert!(group.holders(spot).len() <= HOLDERS_MAX, "invariant 5: {entry:?}");
        }
        let ascending = group.entries.is_sorted_by(|a, b| a.rank() < b.rank());
        assert!(ascending, "invariant 2: group {address}");
    }

    /// Depth of the groups that are not split in this round of growth.
    fn depth(&self) -> u32 {
        self.groups.ilog2()
    }

    /// A group's address is the tag's leading bits backwards, one more of them where this round
    /// has split the group already.
    fn spot(&self, tag: Tag) -> Spot {
        let depth = self.depth();
        let backwards = tag.0.reverse_bits();
        let (shallow, deep) = (low_bits(backwards, depth), low_bits(backwards, depth + 1));
        let split = shallow < self.groups - (1 << depth);
        let (address, bits) = if split { (deep, depth + 1) } else { (shallow, depth) };
        let tag_bits = (tag.0 << self.root_bits >> u32::BITS) as u32;
        Spot { address, tag_bits, shared_bits: bits - self.root_bits }
    }

    fn group_mut(&mut self, address: usize) -> &mut Group {
        &mut self.tree[address / PIECE_GROUPS][address % PIECE_GROUPS]
    }

    fn add_group(&mut self) {
        if self.groups == self.tree.len() * PIECE_GROUPS {
            self.tree.push(vec![Group::default(); PIECE_GROUPS].into_boxed_slice());
            self.bytes += PIECE_BYTES;
        }
        self.groups += 1;
    }

    /// Sets how many entries a group has memory for, at least those it holds.
    fn resize(&mut self, address: usize, capacity: usize) {
        let entries = &mut self.group_mut(address).entries;
        let before = allocation_bytes(entries.capacity());
        entries.shrink_to(capacity);
        entries.reserve_exact(capacity - entries.len());
        let after = allocation_bytes(entries.capacity());
        self.bytes = self.bytes - before + after;
    }

    /// Makes room for one more entry in a group. Returns how many hints were evicted for it;
    /// None if even an empty store is too large for it.
    fn reserve_one(&mut self, address: usize) -> Option<usize> {
        let mut evicted = 0;
        loop {
            let group = self.group_mut(address);
            if group.entries.len() < group.entries.capacity() {
                return Some(evicted);
            }
            let capacity = group.entries.len() + GROUP_STEP;
            let grown = allocation_bytes(capacity) - group.bytes();
            if self.bytes + grown <= self.bytes_max {
                self.resize(address, capacity);
                return Some(evicted);
            }
            if self.hints == 0 {
                return None;
            }
            evicted += self.evict_group().len();
        }
    }

    /// Takes out the next group that no look-up used lately. Only while there are hints.
    fn evict_group(&mut self) -> Vec<Entry> {
        let mut spared = 0;
        loop {
            let address = self.hand;
            self.hand = (address + 1) % self.groups;
            let group = self.group_mut(address);
            if group.entries.is_empty() {
                continue;
            }
            if group.recent && spared < SPARED_MAX {
                group.recent = false;
                spared += 1;
                continue;
            }
            let evicted = std::mem::take(group).entries;
            self.bytes -= allocation_bytes(evicted.capacity());
            self.hints -= evicted.len();
            return evicted;
        }
    }

    /// Splits one group when groups have become large on average and there is memory for it.
    fn split_when_due(&mut self) {
        let piece = if self.groups == self.tree.len() * PIECE_GROUPS { PIECE_BYTES } else { 0 };
        let slack = 2 * allocation_bytes(2 * GROUP_STEP);
        let fits = self.bytes + piece + slack <= self.bytes_max;
        if self.hints > self.groups * GROUP_HINTS && fits {
            self.split_group();
        }
    }

    /// Gives the next group one more leading bit: the hints that have it set move to a new group.
    fn split_group(&mut self) {
        let depth = self.depth();
        let new = self.groups;
        let old = new - (1 << depth);
        // Entries of one group agree in all bits above this one, so that it cuts them in two.
        let bit = 1 << (u32::BITS - 1 - (depth - self.root_bits));
        self.add_group();
        let group = self.group_mut(old);
        let recent = group.recent;
        let middle = group.entries.partition_point(|entry| entry.tag_bits() & bit == 0);
        let moved = group.entries.split_off(middle);
        self.resize(old, middle.next_multiple_of(GROUP_STEP));
        self.bytes += allocation_bytes(moved.capacity());
        let count = moved.len();
        *self.group_mut(new) = Group { entries: moved, recent };
        self.resize(new, count.next_multiple_of(GROUP_STEP));
    }
}

#[cfg(test)]
mod tests;
