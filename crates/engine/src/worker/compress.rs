//! Compression by the worker (`compress=later`): blocks of files become fragments, which lie one behind the other in
//! packs. It is a remap to a smaller copy: the fragment is a new number with the same content, the file's place gets
//! it, and the block is released.
//!
//! A pass visits all maps in order. Each batch is read, compared with the table, compressed, written to packs, and
//! published map by map. A crash before a publication is durable leaves its blocks in their places and the pack free; a
//! crash after it leaves the fragments.
//!
//! A block that several places share is compressed once: the pass remembers its fragment until all of them are moved.
//! If too many are remembered, shared blocks stay as they are until the next pass, so no pass separates what was
//! shared. That holds for files too whose policy is not to be compressed: what they share with files that are stays
//! whole if the pass comes to them first, and becomes a fragment otherwise.
//!
//! `oncefs compress` makes passes of its own, and counts what each leaves. What it remembers is kept beside what the
//! worker remembers, each bounded by itself, and both look in both: neither compresses anew what the other has moved in
//! part. The worker goes on looking there after the command, until another one begins.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use oncefs_compress::Compressor;
use oncefs_dedup::{Compress, Rank};

use crate::base::part;
use crate::format::extent_leaf::LEAF_BLOCKS;
use crate::format::fragment::is_fragment;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys::LeafKey;
use crate::format::page::{COPIED, Entry, INCOMPRESSIBLE};
use crate::place::free_blocks::FreeBlocks;
use crate::policy::effective::FilePolicies;
use crate::read::damage_reports::DamageReports;
use crate::read::device::DataReader;
use crate::read::parts::{cut_spans, runs_into};
use crate::state::flag_change::FlagChange;
use crate::state::loading::Metadata;
use crate::state::published::{Incref, Plan, StoredBlock, StoredFragment};
use crate::sync::{LockRank, Mutex};
use crate::worker::pack::PackedBatch;
use crate::worker::status::Converted;
use crate::worker::worklist::Worklist;
use crate::write::lazy_clone::LazyClones;
use crate::write::map_edit::MapEdit;
use crate::write::publish::Publisher;
use crate::write::visit::{Place, ascending, by_leaf};
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn, Result};

/// Most blocks of a batch: 4 MiB of data.
const BATCH_BLOCKS_MAX: u64 = 1_024;
/// Leaves that are looked at together, and how often for a batch: small files have a leaf each.
const PORTION_LEAVES: usize = 4;
const PORTIONS_MAX: usize = 128;
/// Most shared blocks that a pass remembers, of each kind: bounds the memory of each kind at about 1.5 MB.
const REMEMBERED_MAX: usize = 64 << 10;
/// One part in this many of the data area stays free for other work.
const ROOM_SHARE: u64 = 64;
/// How often a request looks whether the worker's turn has ended.
const TURN_WAIT: Duration = Duration::from_millis(2);

/// Where the pass over all maps is.
struct Pass {
    /// The next leaf. None: no pass is under way.
    next: Option<LeafKey>,
    /// Whether only cold files are visited yet. All files follow.
    is_cold_round: bool,
    /// How many blocks had been placed when it began.
    placed_before: u64,
    /// `PolicyFacts::compression_allowed` when it began.
    allowed_before: u64,
    moved: Moved,
    /// Shared blocks of files that are not compressed, which the pass has met.
    left: HashSet<Pbn>,
}

impl Pass {
    fn new(placed_before: u64, allowed_before: u64, moved: Moved) -> Self {
        Self { next: Some(FIRST_LEAF), is_cold_round: true, placed_before, allowed_before, moved, left: HashSet::new() }
    }
}

/// The fragments of shared blocks, by block, in a pass of the worker and in one of a command. Advice: a block may have
/// other content by now.
struct Moved {
    worker: HashMap<Pbn, Pbn>,
    command: HashMap<Pbn, Pbn>,
    /// How many of each are remembered at most.
    most: usize,
}

impl Moved {
    fn at_most(most: usize) -> Self {
        Self { worker: HashMap::new(), command: HashMap::new(), most }
    }

    fn fragment_of(&self, block: Pbn) -> Option<Pbn> {
        self.worker.get(&block).or_else(|| self.command.get(&block)).copied()
    }

    fn of(&mut self, who: Who) -> &mut HashMap<Pbn, Pbn> {
        match who {
            Who::Worker => &mut self.worker,
            Who::Command => &mut self.command,
        }
    }

    fn is_full(&mut self, who: Who) -> bool {
        let most = self.most;
        self.of(who).len() >= most
    }

    fn forget(&mut self, block: Pbn) {
        self.worker.remove(&block);
        self.command.remove(&block);
    }
}

/// Who compresses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Worker,
    Command,
}

/// A block that may be compressed.
struct Candidate {
    pbn: Pbn,
    entry: Entry,
    /// Its fragment, if the pass made one, and that one's entry.
    moved: Option<(Pbn, Entry)>,
}

part! {
    /// Compresses blocks of files.
    pub struct BlockCompressor {
        base: policy, tuning, staging, hasher, stats;
        metadata: Metadata, free_blocks: FreeBlocks, data_reader: DataReader, damage_reports: DamageReports,
        lazy_clones: LazyClones, publisher: Publisher, worklist: Worklist, file_policies: FilePolicies
    } own {
        /// None while a turn has it.
        pass: Mutex<Option<Pass>> = Mutex::new(LockRank::Leaf, Some(Pass::new(0, 0, Moved::at_most(REMEMBERED_MAX))))
    }
}

impl BlockCompressor {
    /// One turn: compresses a batch of about `blocks_max` blocks. Returns how many blocks it looked at. None:
    /// compression is off, or nothing was placed since the last pass began.
    pub fn compress_some(&self, blocks_max: u64) -> Result<Option<u64>> {
        if self.tuning.with(|settings| settings.compress) == Compress::Off {
            return Ok(None);
        }
        self.publisher.usable()?;
        let Some(mut pass) = self.pass.lock().take() else { return Ok(None) };
        let looked_at = self.advance(&mut pass, blocks_max.clamp(1, BATCH_BLOCKS_MAX));
        *self.pass.lock() = Some(pass);
        looked_at
    }

    /// Compresses the blocks at these places because an administrator asks for it, whatever their files' policies are,
    /// and counts them.
    pub fn compress_asked(&self, places: &[Place], done: &mut Converted) -> Result<()> {
        let wanted = places.iter().map(|(_, _, pbn)| *pbn).collect();
        self.between_turns(|pass| self.compress_places(places, &wanted, pass, Who::Command, done))
    }

    /// A command begins to compress. Blocks that lie in the log get their places, because only those are compressed.
    pub fn begin_asked(&self) -> Result<()> {
        self.publisher.place_logged_blocks()
    }

    /// A pass of a command begins: it forgets what the last one has moved.
    pub fn begin_asked_pass(&self) {
        self.between_turns(|pass| pass.moved.command = HashMap::new());
    }

    /// Lets passes remember at most this many shared blocks.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn remember_at_most(&self, most: usize) {
        self.between_turns(|pass| pass.moved.most = most);
    }

    /// Works between turns of the worker, which needs the same memory.
    fn between_turns<T>(&self, work: impl FnOnce(&mut Pass) -> T) -> T {
        let mut pass = loop {
            match self.pass.lock().take() {
                Some(pass) => break pass,
                None => std::thread::sleep(TURN_WAIT),
            }
        };
        let done = work(&mut pass);
        *self.pass.lock() = Some(pass);
        done
    }

    fn advance(&self, pass: &mut Pass, blocks_max: u64) -> Result<Option<u64>> {
        let Some(from) = pass.next else {
            let placed = self.stats.counters.blocks_placed.load(Relaxed);
            let allowed = self.policy.compression_allowed();
            if (placed, allowed) == (pass.placed_before, pass.allowed_before) {
                return Ok(None);
            }
            let mut moved = std::mem::replace(&mut pass.moved, Moved::at_most(0));
            moved.worker = HashMap::new();
            *pass = Pass::new(placed, allowed, moved);
            return Ok(Some(0));
        };
        let cold_first = self.tuning.with(|settings| settings.compress == Compress::Auto && settings.ranks_files());
        let only_cold = pass.is_cold_round && cold_first;
        let is_wanted = |map: MapId| !only_cold || self.file_policies.file_policy(map).rank == Rank::Cold;
        self.publisher.room().wait_for_background_room();
        let (mut places, mut next) = (Vec::new(), Some(from));
        for _ in 0..PORTIONS_MAX {
            let Some(from) = next.filter(|_| (places.len() as u64) < blocks_max) else { break };
            next = self.worklist.add_leaves_from(from, PORTION_LEAVES, is_wanted, &mut places)?;
        }
        let wanted = self.wanted(&places);
        self.compress_places(&places, &wanted, pass, Who::Worker, &mut Converted::default())?;
        pass.next = next;
        if next.is_none() && only_cold {
            (pass.next, pass.is_cold_round) = (Some(FIRST_LEAF), false);
        }
        Ok(Some(places.len() as u64))
    }

    /// Compresses the wanted blocks at these places, as far as it pays, and counts what stays that could be compressed.
    fn compress_places(
        &self,
        places: &[Place],
        wanted: &HashSet<Pbn>,
        pass: &mut Pass,
        who: Who,
        done: &mut Converted,
    ) -> Result<()> {
        // From here on no visited block is reused, so each holds the content that the table names.
        let _pin = self.metadata.pin();
        let candidates = self.candidates(places, wanted, pass, who, done);
        let mut bytes = self.data_reader.take_buffer(candidates.len() * BLOCK_BYTES);
        let sound = self.read(&candidates, &mut bytes);
        done.damaged += sound.iter().filter(|is_sound| !**is_sound).count() as u64;
        let mut batch = self.compressed(&candidates, &sound, &bytes);
        self.mark_incompressible(&batch.kept)?;
        let moved = &mut pass.moved;
        let published = self.write(&mut batch, done).and_then(|()| {
            by_leaf(places, |map, places| self.publish_leaf(map, places, &mut batch, (&mut *moved, who), done))
        });
        let (blocks, numbers) = batch.unused();
        self.free_blocks.give_back(&blocks);
        self.free_blocks.give_back_numbers(&numbers);
        published
    }

    /// Those of the wanted blocks at these places that may be compressed, ascending. Notes shared blocks of files that
    /// are not.
    fn candidates(
        &self,
        places: &[Place],
        wanted: &HashSet<Pbn>,
        pass: &mut Pass,
        who: Who,
        done: &mut Converted,
    ) -> Vec<Candidate> {
        let is_known = |pbn: &Pbn| !is_fragment(*pbn) && self.staging.get(*pbn).is_none();
        let pbns = ascending(places.iter().map(|(_, _, pbn)| *pbn).filter(is_known));
        let Pass { moved, left, .. } = pass;
        let numbers = ascending(pbns.iter().filter_map(|pbn| moved.fragment_of(*pbn)));
        let (entries, fragments) = (self.metadata.known_entries(&pbns), self.metadata.known_entries(&numbers));
        let is_full = moved.is_full(who);
        let most = moved.most;
        let mut candidate = |pbn: Pbn| {
            let entry = *entries.get(&pbn)?;
            let moved = moved.fragment_of(pbn).and_then(|number| Some((number, *fragments.get(&number)?)));
            let is_left = moved.is_none() && !wanted.contains(&pbn);
            if is_left && entry.count > 1 && left.len() < most {
                left.insert(pbn);
            }
            let may_move = entry.flags & (INCOMPRESSIBLE | COPIED) == 0 && entry.serves(entry.tag);
            let is_with_others = who == Who::Worker && (left.len() >= most || left.contains(&pbn));
            let may_be_remembered = entry.count == 1 || moved.is_some() || !(is_full || is_with_others);
            done.for_another_pass += u64::from(may_move && !may_be_remembered);
            (may_move && may_be_remembered && !is_left).then_some(Candidate { pbn, entry, moved })
        };
        pbns.into_iter().filter_map(&mut candidate).collect()
    }

    /// The blocks at those of these places whose files are compressed.
    fn wanted(&self, places: &[Place]) -> HashSet<Pbn> {
        let of_maps = places.chunk_by(|a, b| a.0 == b.0);
        let compressed = of_maps.filter(|places| self.file_policies.compress(places[0].0) != Compress::Off);
        compressed.flatten().map(|(_, _, pbn)| *pbn).collect()
    }

    /// Reads candidates into adjacent places of `bytes`, past the read cache, and tells which are what the table says.
    fn read(&self, candidates: &[Candidate], bytes: &mut [u8]) -> Vec<bool> {
        let blocks: Vec<(Pbn, ())> = candidates.iter().map(|candidate| (candidate.pbn, ())).collect();
        self.data_reader.read_or_clear(&mut cut_spans(&mut runs_into(&blocks, bytes)));
        let blocks = candidates.iter().zip(bytes.chunks_exact(BLOCK_BYTES));
        blocks.map(|(Candidate { pbn, entry, .. }, block)| self.damage_reports.is_sound(*pbn, entry, block)).collect()
    }

    /// Compresses the sound ones into packs. Shared blocks get fingerprints, so that the next place that has them is
    /// known to have the content of their fragments.
    fn compressed(&self, candidates: &[Candidate], sound: &[bool], bytes: &[u8]) -> PackedBatch {
        let method = self.tuning.with(|settings| settings.compress_method_later);
        let mut compressor = Compressor::new(method);
        let mut batch = PackedBatch::default();
        let blocks = candidates.iter().zip(bytes.chunks_exact(BLOCK_BYTES)).zip(sound);
        for ((Candidate { pbn, entry, moved }, block), _) in blocks.filter(|(_, is_sound)| **is_sound) {
            let is_needed = entry.count > 1 || moved.is_some();
            let fingerprint = if is_needed { Some(self.hasher.fingerprint_of(block)) } else { entry.fingerprint };
            if let Some((number, fragment)) = moved
                && fragment.serves(entry.tag)
                && fragment.fingerprint == fingerprint
            {
                batch.moved.insert(*pbn, Incref { pbn: *number, tag: entry.tag });
                continue;
            }
            match compressor.compress(block) {
                Some(fragment) => batch.add(*pbn, Entry { fingerprint, ..*entry }, fragment, method.coding()),
                None => batch.kept.push((*pbn, *entry)),
            }
        }
        batch.drop_worthless();
        batch
    }

    /// Notes that blocks did not shrink, so that later passes leave them out.
    fn mark_incompressible(&self, kept: &[(Pbn, Entry)]) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        let plan = Plan {
            expected: kept.iter().map(|(pbn, entry)| Incref { pbn: *pbn, tag: entry.tag }).collect(),
            flags: kept.iter().map(|(pbn, _)| FlagChange::set(*pbn, INCOMPRESSIBLE)).collect(),
            ..Plan::default()
        };
        // If one of them was freed meanwhile, the next pass marks the others.
        self.publisher.claim_and_publish(GroupBytes::of_blocks(kept.len() as u64), plan).map(drop)
    }

    /// Gives fragments numbers, and packs places, and writes the packs.
    fn write(&self, batch: &mut PackedBatch, done: &mut Converted) -> Result<()> {
        if batch.len() > 0 {
            batch.give_numbers(self.free_blocks.take_numbers(batch.len() as u64)?);
        }
        let left_min = Blocks(self.free_blocks.totals().data.0 / ROOM_SHARE);
        for pack in &mut batch.packs {
            let Some(run) = self.free_blocks.allocate_contiguous(pack.blocks(), left_min)? else {
                done.without_room += pack.len() as u64;
                continue;
            };
            pack.run = Some(run);
            let bytes = pack.sealed(self.free_blocks.pack_order(), &self.hasher);
            self.free_blocks.write_run(run, &mut bytes.chunks_exact(BLOCK_BYTES))?;
        }
        Ok(())
    }

    /// Moves the places of one leaf to fragments.
    fn publish_leaf(
        &self,
        map: MapId,
        places: &[Place],
        batch: &mut PackedBatch,
        (moved, who): (&mut Moved, Who),
        done: &mut Converted,
    ) -> Result<()> {
        if !places.iter().any(|(_, _, pbn)| batch.has(*pbn)) {
            return Ok(());
        }
        let leaf = places[0].1.0 / LEAF_BLOCKS;
        let _map = self.lazy_clones.lock_to_change(map, std::iter::once(leaf))?;
        let _room = self.publisher.room().claim_log_room(GroupBytes::of_fragments(places.len() as u64));
        self.metadata.attached(map)?;
        let mut edit = MapEdit::new(&self.metadata, map);
        let mut stores: Vec<StoredFragment> = Vec::new();
        let mut increfs: Vec<Incref> = Vec::new();
        let mut targets: Vec<(Lbn, Pbn, Pbn)> = Vec::new();
        let mut first_here: HashSet<Pbn> = HashSet::new();
        for (_, lbn, pbn) in places {
            if !edit.has(*lbn, *pbn)? {
                continue;
            }
            let target = match (batch.moved.get(pbn), batch.fragment_of(*pbn)) {
                (Some(incref), _) => {
                    increfs.push(*incref);
                    incref.pbn
                }
                (None, Some(fragment)) => {
                    let Some(place) = fragment.place else { continue };
                    let Entry { tag, fingerprint, .. } = fragment.entry;
                    match fragment.is_published || !first_here.insert(*pbn) {
                        true => increfs.push(Incref { pbn: fragment.number, tag }),
                        false => {
                            let block = StoredBlock { pbn: fragment.number, tag, fingerprint };
                            stores.push(StoredFragment { block, place });
                        }
                    }
                    fragment.number
                }
                (None, None) => continue,
            };
            targets.push((*lbn, *pbn, target));
        }
        if targets.is_empty() {
            return Ok(());
        }
        edit.set_blocks(targets.iter().map(|(lbn, _, number)| (*lbn, *number)))?;
        let (newly_used, entered) = batch.holders(&stores);
        let claimed = newly_used.len() as u64;
        let plan = Plan { fragments: stores, increfs, entered, claimed, ..edit.into_plan() };
        if self.publisher.publish_plan(plan)?.is_some() {
            // A fragment that was remembered is gone, or all that were published in a block of a pack. The next pass
            // compresses these blocks anew.
            targets.iter().for_each(|(_, pbn, _)| moved.forget(*pbn));
            done.for_another_pass += targets.len() as u64;
            return Ok(());
        }
        batch.note_published(targets.iter().map(|(_, pbn, _)| *pbn), &newly_used);
        for (_, pbn, number) in &targets {
            if batch.fragment_of(*pbn).is_some_and(|fragment| fragment.entry.count > 1) {
                moved.of(who).insert(*pbn, *number);
            }
        }
        done.converted += targets.len() as u64;
        self.stats.counters.blocks_compressed.fetch_add(targets.len() as u64, Relaxed);
        Ok(())
    }
}

/// Where a pass begins.
const FIRST_LEAF: LeafKey = LeafKey { map: MapId(0), leaf: 0 };

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;
    use crate::BackgroundStep;
    use crate::tests::compress::{assert_content, text, written, zstd};
    use crate::tests::fixture::{Devices, unique};

    #[test]
    fn a_note_that_a_block_does_not_shrink_keeps_what_was_noted_since_it_was_read() {
        let devices = Devices::new(Blocks(600), zstd());
        let files = vec![(MapId(1), unique(1, 1))];
        let volume = written(&devices, &files);
        volume.commits.checkpoint().unwrap();
        let compressor = &volume.block_compressor;
        let pbn = crate::tests::compress::pbns_of(&volume, MapId(1))[0];
        let entry = volume.metadata.known_entry(pbn).unwrap();
        let plan = Plan { flags: vec![FlagChange::set(pbn, COPIED)], ..Plan::default() };
        volume.publisher.publish_plan(plan).unwrap();
        compressor.mark_incompressible(&[(pbn, entry)]).unwrap();
        assert_eq!(volume.metadata.known_entry(pbn).unwrap().flags, COPIED | INCOMPRESSIBLE);
        let plan = Plan { flags: vec![FlagChange::clear(pbn, COPIED)], ..Plan::default() };
        volume.publisher.publish_plan(plan).unwrap();
        assert_eq!(volume.metadata.known_entry(pbn).unwrap().flags, INCOMPRESSIBLE);
        assert_content(&volume, &files);
    }

    #[test]
    fn a_block_whose_fragments_are_gone_before_the_rest_of_its_pack_is_published_gets_no_others() {
        let devices = Devices::new(Blocks(600), zstd());
        let mut files = vec![(MapId(1), text(2, 1)), (MapId(2), text(2, 2))];
        let volume = written(&devices, &files);
        volume.commits.checkpoint().unwrap();
        let compressor = &volume.block_compressor;
        let mut places = Vec::new();
        compressor.worklist.add_leaves_from(FIRST_LEAF, 64, |_| true, &mut places).unwrap();
        let (first, second) = places.split_at(2);
        let (mut pass, mut done) = (Pass::new(0, 0, Moved::at_most(9)), Converted::default());
        let pin = compressor.metadata.pin();
        let wanted = compressor.wanted(&places);
        let candidates = compressor.candidates(&places, &wanted, &mut pass, Who::Worker, &mut done);
        let mut bytes = compressor.data_reader.take_buffer(candidates.len() * BLOCK_BYTES);
        let sound = compressor.read(&candidates, &mut bytes);
        let mut batch = compressor.compressed(&candidates, &sound, &bytes);
        compressor.write(&mut batch, &mut done).unwrap();
        assert_eq!((batch.packs.len(), batch.len()), (1, 4), "both files are in one pack");
        let mut publish = |map, places| {
            compressor.publish_leaf(map, places, &mut batch, (&mut pass.moved, Who::Worker), &mut done).unwrap();
        };
        publish(MapId(1), first);
        files[0].1 = unique(2, 3);
        volume.write(MapId(1), 0, &files[0].1, |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
        publish(MapId(2), second);
        let (blocks, numbers) = batch.unused();
        compressor.free_blocks.give_back(&blocks);
        compressor.free_blocks.give_back_numbers(&numbers);
        drop(pin);
        volume.commits.commit().unwrap();
        volume.run(BackgroundStep::Release).unwrap();
        for map in 3.. {
            let content = unique(16, map);
            match volume.write(MapId(map), 0, &content, |_, _| ()) {
                Ok(_) => files.push((MapId(map), content)),
                Err(_) => break,
            }
        }
        volume.commits.checkpoint().unwrap();
        assert!(files.len() > 20, "the volume is full of new blocks");
        assert_content(&volume, &files);
    }
}
