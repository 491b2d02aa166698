//! The way back from compression (`oncefs expand`): fragments become blocks again. It is a remap to a larger copy: the
//! file's place gets a new block with the same content, and the fragment is released.
//!
//! A batch is read, compared with the table, written to free blocks in the order of the files, and published leaf by
//! leaf. A crash before a publication is durable leaves its fragments in their places and the blocks free; a crash
//! after it leaves the blocks.
//!
//! A fragment that several places share is expanded once: its block is remembered until all of them are moved. If too
//! many are remembered, shared fragments stay as they are until the next pass, and the command counts them, so no pass
//! separates what was shared.

use std::sync::atomic::Ordering::Relaxed;

use hashbrown::{HashMap, HashSet};

use crate::base::part;
use crate::format::extent_leaf::LEAF_BLOCKS;
use crate::format::fragment::is_fragment;
use crate::format::group_bytes::GroupBytes;
use crate::format::page::Entry;
use crate::place::free_blocks::{Claim, FreeBlocks};
use crate::read::damage_reports::DamageReports;
use crate::read::device::DataReader;
use crate::read::parts::{cut_spans, runs_into};
use crate::space::allocator::Run;
use crate::state::loading::Metadata;
use crate::state::published::{Incref, Plan, StoredBlock};
use crate::worker::status::Converted;
use crate::write::lazy_clone::LazyClones;
use crate::write::map_edit::MapEdit;
use crate::write::publish::Publisher;
use crate::write::visit::{Place, ascending, by_leaf};
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Pbn, Result};

/// Most shared fragments that are remembered: bounds their memory at about 2 MB.
const REMEMBERED_MAX: usize = 64 << 10;

/// The blocks of shared fragments, by number. Advice: a number may have other content by now.
pub struct Moved {
    blocks: HashMap<Pbn, Pbn>,
    /// How many are remembered at most.
    most: usize,
}

impl Default for Moved {
    fn default() -> Self {
        Self::at_most(REMEMBERED_MAX)
    }
}

impl Moved {
    /// Nothing yet, and never more than this many.
    pub fn at_most(most: usize) -> Self {
        Self { blocks: HashMap::new(), most }
    }

    /// Forgets all: a pass begins.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    fn is_full(&self) -> bool {
        self.blocks.len() >= self.most
    }

    fn has(&self, number: Pbn) -> bool {
        self.blocks.contains_key(&number)
    }

    fn block_of(&self, number: Pbn) -> Option<Pbn> {
        self.blocks.get(&number).copied()
    }
}

/// Shared fragments whose room is counted, as many as are remembered when they are expanded.
pub type Measured = HashSet<Pbn>;

/// The blocks of a batch.
#[derive(Default)]
struct Batch {
    /// The block of each fragment, by number.
    blocks: HashMap<Pbn, NewBlock>,
    /// The numbers of those that are written, in the order of their first places.
    order: Vec<Pbn>,
    runs: Vec<Run>,
}

/// The block that a fragment becomes.
#[derive(Clone, Copy)]
struct NewBlock {
    /// The fragment's entry, with a fingerprint if it is shared.
    entry: Entry,
    /// Where its content is among the bytes that were read.
    at: usize,
    /// Where it lies. None: it has no place.
    pbn: Option<Pbn>,
    /// Whether a map has it.
    is_published: bool,
}

part! {
    /// Expands fragments of files.
    pub struct BlockExpander {
        base: hasher, stats, policy;
        metadata: Metadata, free_blocks: FreeBlocks, data_reader: DataReader, damage_reports: DamageReports,
        lazy_clones: LazyClones, publisher: Publisher
    }
}

impl BlockExpander {
    /// Expands the fragments at these places, and counts them.
    pub fn expand_places(&self, places: &[Place], moved: &mut Moved, done: &mut Converted) -> Result<()> {
        self.publisher.usable()?;
        // From here on no visited fragment is reused, so each has the content that the table names.
        let _pin = self.metadata.pin();
        let candidates = self.candidates(places, moved, done);
        let mut bytes = self.data_reader.take_buffer(candidates.len() * BLOCK_BYTES);
        self.data_reader.read_or_clear(&mut cut_spans(&mut runs_into(&candidates, &mut bytes)));
        let mut batch = self.batch_of(places, &candidates, &bytes, moved, done);
        if !self.allocate(&mut batch)? {
            done.without_room += batch.order.len() as u64;
            for number in batch.order.drain(..) {
                batch.blocks.remove(&number);
            }
        }
        let published = self
            .write(&batch, &bytes)
            .and_then(|()| by_leaf(places, |map, places| self.publish_leaf(map, places, &mut batch, moved, done)));
        self.free_blocks.give_back(&batch.unused());
        published
    }

    /// How many blocks of room it takes at most to expand the fragments at these places and nothing else: a block for
    /// each, less the blocks of packs in which no other fragment is left then. Shared fragments that were measured
    /// before take none, and the others join them.
    pub fn room_for(&self, places: &[Place], measured: &mut Measured) -> u64 {
        let numbers = ascending(places.iter().map(|(_, _, pbn)| *pbn).filter(|pbn| is_fragment(*pbn)));
        let entries = self.metadata.known_entries(&numbers);
        let mut new = 0_u64;
        for (number, entry) in &entries {
            new += u64::from(!measured.contains(number));
            if entry.count > 1 && measured.len() < REMEMBERED_MAX {
                measured.insert(*number);
            }
        }
        // A clone that has no references yet keeps what it reads.
        if self.lazy_clones.are_any() {
            return new;
        }
        let mut places_left: HashMap<Pbn, u32> = entries.iter().map(|(number, entry)| (*number, entry.count)).collect();
        for (_, _, pbn) in places {
            places_left.entry(*pbn).and_modify(|left| *left = left.saturating_sub(1));
        }
        let released = places_left.iter().filter(|(_, left)| **left == 0).map(|(number, _)| *number);
        let mut released_in: HashMap<Pbn, u32> = HashMap::new();
        for place in self.metadata.known_places(released).values() {
            place.holders().for_each(|block| *released_in.entry(block).or_default() += 1);
        }
        let holders = self.metadata.known_entries(&ascending(released_in.keys().copied()));
        let freed = holders.iter().filter(|(block, holder)| holder.count == released_in[*block]).count();
        new.saturating_sub(freed as u64)
    }

    /// The fragments at these places that may be expanded, ascending.
    fn candidates(&self, places: &[Place], moved: &Moved, done: &mut Converted) -> Vec<(Pbn, Entry)> {
        let numbers = ascending(places.iter().map(|(_, _, pbn)| *pbn).filter(|pbn| is_fragment(*pbn)));
        let entries = self.metadata.known_entries(&numbers);
        let is_full = moved.is_full();
        let mut candidates = Vec::with_capacity(numbers.len());
        for number in numbers {
            match entries.get(&number) {
                // It was released meanwhile.
                Some(entry) if entry.count == 0 => {}
                Some(entry) if entry.serves(entry.tag) => match entry.count == 1 || moved.has(number) || !is_full {
                    true => candidates.push((number, *entry)),
                    false => done.for_another_pass += 1,
                },
                _ => done.damaged += 1,
            }
        }
        candidates
    }

    /// The blocks that fragments become, in the order of the files. Shared ones get fingerprints, so that the next
    /// place that has them is known to have the content of their blocks.
    fn batch_of(
        &self,
        places: &[Place],
        candidates: &[(Pbn, Entry)],
        bytes: &[u8],
        moved: &Moved,
        done: &mut Converted,
    ) -> Batch {
        let mut batch = Batch::default();
        let targets = ascending(candidates.iter().filter_map(|(number, _)| moved.block_of(*number)));
        let targets = self.metadata.known_entries(&targets);
        for (at, ((number, entry), block)) in candidates.iter().zip(bytes.chunks_exact(BLOCK_BYTES)).enumerate() {
            if !self.damage_reports.is_sound(*number, entry, block) {
                done.damaged += 1;
                continue;
            }
            let is_shared = entry.count > 1 || moved.has(*number);
            let fingerprint = if is_shared { Some(self.hasher.fingerprint_of(block)) } else { entry.fingerprint };
            let entry = Entry { fingerprint, ..*entry };
            let holds = |pbn: &Pbn| {
                targets.get(pbn).is_some_and(|held| held.serves(entry.tag) && held.fingerprint == entry.fingerprint)
            };
            let pbn = moved.block_of(*number).filter(holds);
            batch.blocks.insert(*number, NewBlock { entry, at, pbn, is_published: pbn.is_some() });
        }
        let mut seen = HashSet::new();
        let new = |pbn: &Pbn| batch.blocks.get(pbn).is_some_and(|block| block.pbn.is_none());
        batch.order = places.iter().map(|(_, _, pbn)| *pbn).filter(|pbn| new(pbn) && seen.insert(*pbn)).collect();
        batch
    }

    /// Gives each new block a place: adjacent ones if there is such a run. False: the volume has no room.
    fn allocate(&self, batch: &mut Batch) -> Result<bool> {
        let blocks = batch.order.len() as u64;
        if blocks == 0 {
            return Ok(true);
        }
        let run = self.free_blocks.allocate_contiguous(blocks, Blocks(0))?;
        let runs = run.map_or_else(
            || self.free_blocks.allocate(blocks, Claim::Ordinary { from_reserved: 0 }),
            |run| Ok(vec![run]),
        );
        batch.runs = match runs {
            Err(Error::NoSpace) => return Ok(false),
            other => other?,
        };
        let pbns = batch.runs.iter().flat_map(|run| run.pbns());
        for (number, pbn) in batch.order.iter().zip(pbns) {
            batch.blocks.get_mut(number).expect("each number in order has a block").pbn = Some(pbn);
        }
        Ok(true)
    }

    fn write(&self, batch: &Batch, bytes: &[u8]) -> Result<()> {
        let at = |number: &Pbn| batch.blocks[number].at * BLOCK_BYTES;
        let mut contents = batch.order.iter().map(|number| &bytes[at(number)..at(number) + BLOCK_BYTES]);
        batch.runs.iter().try_for_each(|run| self.free_blocks.write_run(*run, &mut contents))
    }

    /// Moves the places of one leaf to blocks.
    fn publish_leaf(
        &self,
        map: MapId,
        places: &[Place],
        batch: &mut Batch,
        moved: &mut Moved,
        done: &mut Converted,
    ) -> Result<()> {
        if !places.iter().any(|(_, _, pbn)| batch.blocks.contains_key(pbn)) {
            return Ok(());
        }
        let leaf = places[0].1.0 / LEAF_BLOCKS;
        let _map = self.lazy_clones.lock_to_change(map, std::iter::once(leaf))?;
        let _room = self.publisher.room().claim_log_room(GroupBytes::of_fragments(places.len() as u64));
        self.metadata.attached(map)?;
        let mut edit = MapEdit::new(&self.metadata, map);
        let (mut stores, mut increfs) = (Vec::new(), Vec::new());
        let mut targets: Vec<(Lbn, Pbn, Pbn)> = Vec::new();
        let mut first_here: HashSet<Pbn> = HashSet::new();
        for (_, lbn, number) in places {
            let Some(NewBlock { entry, pbn: Some(pbn), is_published, .. }) = batch.blocks.get(number).copied() else {
                continue;
            };
            if !edit.has(*lbn, *number)? {
                continue;
            }
            match is_published || !first_here.insert(*number) {
                true => increfs.push(Incref { pbn, tag: entry.tag }),
                false => stores.push(StoredBlock { pbn, tag: entry.tag, fingerprint: entry.fingerprint }),
            }
            targets.push((*lbn, *number, pbn));
        }
        if targets.is_empty() {
            return Ok(());
        }
        edit.set_blocks(targets.iter().map(|(lbn, _, pbn)| (*lbn, *pbn)))?;
        let claimed = stores.len() as u64;
        let plan = Plan { stores, increfs, claimed, ..edit.into_plan() };
        if self.publisher.publish_plan(plan)?.is_some() {
            // A block that was remembered is gone. The next pass expands its fragment anew.
            targets.iter().for_each(|(_, number, _)| {
                moved.blocks.remove(number);
            });
            return Ok(());
        }
        self.policy.accounts().forget(map);
        for (_, number, pbn) in &targets {
            let block = batch.blocks.get_mut(number).expect("each target is of the batch");
            block.is_published = true;
            if block.entry.count > 1 {
                moved.blocks.insert(*number, *pbn);
            }
        }
        done.converted += targets.len() as u64;
        self.stats.counters.blocks_expanded.fetch_add(targets.len() as u64, Relaxed);
        Ok(())
    }
}

impl Batch {
    /// The blocks that no map has.
    fn unused(&self) -> Vec<Run> {
        let pbns = self.runs.iter().flat_map(|run| run.pbns());
        let unused = self.order.iter().zip(pbns).filter(|(number, _)| !self.blocks[*number].is_published);
        unused.map(|(_, pbn)| Run { pbn, blocks: 1 }).collect()
    }
}
