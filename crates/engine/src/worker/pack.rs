//! Packs: the fragments of a batch, one behind the other across the borders of blocks, in up to 64 KiB of adjacent space.

use hashbrown::{HashMap, HashSet};
use oncefs_compress::Coding;

use crate::format::fragment::FragmentPlace;
use crate::format::page::Entry;
use crate::space::allocator::Run;
use crate::state::published::{Incref, StoredFragment};
use crate::{BLOCK_BYTES, Pbn};

/// Most bytes of a pack.
const PACK_BYTES_MAX: usize = 64 << 10;

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
    /// The index of its pack, its first byte there, and its length.
    within: (usize, usize, u16),
    coding: Coding,
}

/// Adjacent fragments.
#[derive(Default)]
pub struct Pack {
    bytes: Vec<u8>,
    /// Where it lies. None: it has no place.
    pub run: Option<Run>,
    /// Its blocks that hold published fragments.
    used: Vec<Pbn>,
}

impl Pack {
    /// How many blocks it takes.
    pub fn blocks(&self) -> u64 {
        self.bytes.len().div_ceil(BLOCK_BYTES) as u64
    }

    /// Its bytes, up to the end of its last block.
    pub fn padded(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }
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

    /// Adds the fragment of a block behind the others.
    pub fn add(&mut self, pbn: Pbn, entry: Entry, fragment: &[u8], coding: Coding) {
        if self.packs.last().is_none_or(|pack| pack.bytes.len() + fragment.len() > PACK_BYTES_MAX) {
            self.packs.push(Pack::default());
        }
        let index = self.packs.len() - 1;
        let pack = &mut self.packs[index];
        let within = (index, pack.bytes.len(), fragment.len() as u16);
        pack.bytes.extend_from_slice(fragment);
        self.order.push(pbn);
        let made = Fragment { entry, number: Pbn(0), place: None, is_published: false, within, coding };
        self.fragments.insert(pbn, made);
    }

    /// Drops the last pack if it takes as many blocks as its fragments did. They are no worse off in a later batch.
    pub fn drop_worthless(&mut self) {
        let Some(last) = self.packs.len().checked_sub(1) else { return };
        let here = self.fragments.values().filter(|fragment| fragment.within.0 == last).count() as u64;
        if self.packs[last].blocks() >= here {
            self.packs.pop();
            self.order.truncate(self.order.len() - here as usize);
            self.fragments.retain(|_, fragment| fragment.within.0 < last);
        }
    }

    /// Gives each fragment a number, in the order of their blocks.
    pub fn give_numbers(&mut self, numbers: Vec<Run>) {
        let each = numbers.iter().flat_map(|run| run.pbns());
        for (pbn, number) in self.order.iter().zip(each) {
            self.fragments.get_mut(pbn).expect("each block in order has a fragment").number = number;
        }
        self.numbers = numbers;
    }

    /// The fragment of a block, with its place if its pack has one.
    pub fn fragment_of(&self, pbn: Pbn) -> Option<Fragment> {
        let fragment = self.fragments.get(&pbn)?;
        let (pack, from, bytes) = fragment.within;
        let place = self.packs[pack].run.map(|run| FragmentPlace {
            at: run.pbn.0 * BLOCK_BYTES as u64 + from as u64,
            bytes,
            coding: fragment.coding,
        });
        Some(Fragment { place, ..*fragment })
    }

    /// The blocks that these fragments are the first published ones in.
    pub fn newly_used(&self, stores: &[StoredFragment]) -> Vec<Pbn> {
        let mut blocks: Vec<Pbn> = stores.iter().flat_map(|store| store.place.blocks()).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.retain(|pbn| !self.packs.iter().any(|pack| pack.used.contains(pbn)));
        blocks
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
