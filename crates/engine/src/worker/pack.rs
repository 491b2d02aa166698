//! Packs: fragments one behind the other across the borders of blocks, in up to 64 KiB of adjacent space, with a
//! directory at the end.

use hashbrown::{HashMap, HashSet};
use oncefs_compress::Coding;

use crate::format::fragment::{FragmentPlace, PACK_BLOCKS_MAX};
use crate::format::pack_directory::{FRAGMENTS_MAX, Listed, PackDirectory, directory_bytes};
use crate::format::page::Entry;
use crate::hash::Hasher;
use crate::space::allocator::Run;
use crate::state::published::{Incref, StoredFragment};
use crate::{BLOCK_BYTES, Pbn, Tag};

/// Adjacent fragments.
#[derive(Default)]
pub struct Pack {
    bytes: Vec<u8>,
    listed: Vec<Listed>,
    /// Where it lies. None: it has no place.
    pub run: Option<Run>,
    /// Its blocks that hold published fragments.
    used: Vec<Pbn>,
}

impl Pack {
    /// Whether another fragment of this length makes it no longer than `blocks_max`.
    pub fn has_room_for(&self, bytes: usize, blocks_max: u64) -> bool {
        let fragments = self.listed.len() + 1;
        let whole = self.bytes.len() + bytes + directory_bytes(fragments);
        fragments <= FRAGMENTS_MAX && whole as u64 <= blocks_max * BLOCK_BYTES as u64
    }

    /// Appends a fragment. Its number may follow (`give_number`).
    pub fn add(&mut self, number: Pbn, tag: Tag, fragment: &[u8], coding: Coding) {
        self.bytes.extend_from_slice(fragment);
        self.listed.push(Listed { number, bytes: fragment.len() as u16, coding, tag });
    }

    /// How many fragments it has.
    pub fn len(&self) -> usize {
        self.listed.len()
    }

    /// The length of its fragments together.
    pub fn fragment_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// How many blocks it takes.
    pub fn blocks(&self) -> u64 {
        (self.bytes.len() + directory_bytes(self.listed.len())).div_ceil(BLOCK_BYTES) as u64
    }

    /// Its blocks, with the directory at the end. Its fragments have numbers, and it has a place.
    pub fn sealed(&self, order: u64, hasher: &Hasher) -> Vec<u8> {
        let run = self.run.expect("a pack is sealed for its place");
        debug_assert!(self.listed.iter().all(|listed| listed.number != Pbn(0)), "each fragment has a number");
        let mut bytes = self.bytes.clone();
        bytes.resize(self.blocks() as usize * BLOCK_BYTES, 0);
        let directory = PackDirectory { order, blocks: run.blocks as u8, fragments: self.listed.clone() };
        let last = bytes.len() - BLOCK_BYTES;
        directory.write(Pbn(run.end().0 - 1), &mut bytes[last..], |bytes| hasher.tag(bytes).0);
        bytes
    }

    /// Where a fragment that begins at this byte of the pack lies. None: the pack has no place.
    fn place(&self, from: usize, bytes: u16, coding: Coding) -> Option<FragmentPlace> {
        let run = self.run?;
        let at = run.pbn.0 * BLOCK_BYTES as u64 + from as u64;
        let blocks_after = (run.end().0 - 1 - at / BLOCK_BYTES as u64) as u8;
        Some(FragmentPlace { at, bytes, coding, blocks_after })
    }

    /// The places of all its fragments, in order. Empty: the pack has no place.
    pub fn places(&self) -> Vec<FragmentPlace> {
        let mut from = 0;
        let place = |listed: &Listed| {
            let place = self.place(from, listed.bytes, listed.coding);
            from += usize::from(listed.bytes);
            place
        };
        self.listed.iter().filter_map(place).collect()
    }
}

/// The fragment of a block.
#[derive(Clone, Copy, Debug)]
pub struct Fragment {
    /// The block's entry when it was read.
    pub entry: Entry,
    /// Its number. 0 before it has one.
    pub number: Pbn,
    /// Its place on the data area. None: its pack has none.
    pub place: Option<FragmentPlace>,
    /// Whether a map has it.
    pub is_published: bool,
    within: Within,
}

/// Where a fragment is in a batch.
#[derive(Clone, Copy, Debug)]
struct Within {
    /// The index of its pack.
    pack: usize,
    /// Its index there.
    index: usize,
    /// Its first byte there.
    from: usize,
    bytes: u16,
    coding: Coding,
}

/// The fragments of a batch of blocks, in packs.
#[derive(Default)]
pub struct PackedBatch {
    /// The packs, in the order of the blocks.
    pub packs: Vec<Pack>,
    /// Blocks that did not shrink.
    pub kept: Vec<(Pbn, Entry)>,
    /// Blocks whose content is a fragment that an earlier batch made.
    pub moved: HashMap<Pbn, Incref>,
    fragments: HashMap<Pbn, Fragment>,
    /// The blocks in their order.
    order: Vec<Pbn>,
    numbers: Vec<Run>,
}

impl PackedBatch {
    /// Whether there is a fragment with the content of a block.
    pub fn has(&self, pbn: Pbn) -> bool {
        self.moved.contains_key(&pbn) || self.fragments.contains_key(&pbn)
    }

    /// How many fragments there are.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Appends the fragment of a block.
    pub fn add(&mut self, pbn: Pbn, entry: Entry, fragment: &[u8], coding: Coding) {
        if self.packs.last().is_none_or(|pack| !pack.has_room_for(fragment.len(), PACK_BLOCKS_MAX)) {
            self.packs.push(Pack::default());
        }
        let index = self.packs.len() - 1;
        let pack = &mut self.packs[index];
        let (from, bytes) = (pack.bytes.len(), fragment.len() as u16);
        let within = Within { pack: index, index: pack.len(), from, bytes, coding };
        pack.add(Pbn(0), entry.tag, fragment, coding);
        self.order.push(pbn);
        let made = Fragment { entry, number: Pbn(0), place: None, is_published: false, within };
        self.fragments.insert(pbn, made);
    }

    /// Drops the last pack if it takes as many blocks as its fragments did. They are no worse off in a later batch.
    pub fn drop_worthless(&mut self) {
        let Some(last) = self.packs.len().checked_sub(1) else { return };
        let here = self.packs[last].len();
        if self.packs[last].blocks() >= here as u64 {
            self.packs.pop();
            self.order.truncate(self.order.len() - here);
            self.fragments.retain(|_, fragment| fragment.within.pack < last);
        }
    }

    /// Gives each fragment a number, in the order of their blocks.
    pub fn give_numbers(&mut self, numbers: Vec<Run>) {
        let each = numbers.iter().flat_map(|run| run.pbns());
        for (pbn, number) in self.order.iter().zip(each) {
            let fragment = self.fragments.get_mut(pbn).expect("each block in order has a fragment");
            fragment.number = number;
            self.packs[fragment.within.pack].listed[fragment.within.index].number = number;
        }
        self.numbers = numbers;
    }

    /// The fragment of a block, with its place if its pack has one.
    pub fn fragment_of(&self, pbn: Pbn) -> Option<Fragment> {
        let fragment = self.fragments.get(&pbn)?;
        let Within { pack, from, bytes, coding, .. } = fragment.within;
        Some(Fragment { place: self.packs[pack].place(from, bytes, coding), ..*fragment })
    }

    /// The blocks that hold these fragments: those that they are the first published ones in, and the others.
    pub fn holders(&self, stores: &[StoredFragment]) -> (Vec<Pbn>, Vec<Pbn>) {
        let mut blocks: Vec<Pbn> = stores.iter().flat_map(|store| store.place.holders()).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.into_iter().partition(|pbn| !self.packs.iter().any(|pack| pack.used.contains(pbn)))
    }

    /// Learns that the fragments of these blocks are published, and that they are the first in some blocks of packs.
    pub fn note_published(&mut self, published: impl Iterator<Item = Pbn>, newly_used: &[Pbn]) {
        for pbn in published {
            if let Some(fragment) = self.fragments.get_mut(&pbn) {
                fragment.is_published = true;
            }
        }
        for pack in &mut self.packs {
            let Some(run) = pack.run else { continue };
            pack.used.extend(newly_used.iter().copied().filter(|pbn| (run.pbn..run.end()).contains(pbn)));
        }
    }

    /// The blocks of packs, and the numbers, that no published fragment has.
    pub fn unused(&self) -> (Vec<Run>, Vec<Run>) {
        let one = |pbn| Run { pbn, blocks: 1 };
        let placed = self.packs.iter().filter_map(|pack| Some((pack, pack.run?)));
        let blocks = placed.flat_map(|(pack, run)| run.pbns().filter(|pbn| !pack.used.contains(pbn)).map(one));
        let published = self.fragments.values().filter(|fragment| fragment.is_published);
        let used: HashSet<Pbn> = published.map(|fragment| fragment.number).collect();
        let is_used = |number: &Pbn| used.contains(number);
        let numbers = self.numbers.iter().flat_map(|run| run.pbns()).filter(|number| !is_used(number)).map(one);
        (blocks.collect(), numbers.collect())
    }
}
