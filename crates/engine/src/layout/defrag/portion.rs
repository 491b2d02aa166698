//! A portion of a defrag: its blocks are read, compared with their table entries and written to a free run. Then they
//! are published under the file's lock: the places get the new blocks, and the old ones are released. A block moves
//! only if its place in the map is unchanged.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_dedup::{BatchSize, FileRun};

use crate::base::part;
use crate::format::extent_leaf::LEAF_BLOCKS;
use crate::format::fragment::is_fragment;
use crate::format::group_bytes::GroupBytes;
use crate::format::page::Entry;
use crate::layout::defrag::outcome::{DefragOutcome, ExtentsLeft};
use crate::place::free_blocks::FreeBlocks;
use crate::policy::effective::FilePolicies;
use crate::read::damage_reports::DamageReports;
use crate::read::device::DataReader;
use crate::read::parts::{Part, copy_repeated, cut_spans, take_repeated};
use crate::space::allocator::{Run, blocks_in};
use crate::state::loading::Metadata;
use crate::state::published::{Plan, StoredBlock};
use crate::write::lazy_clone::LazyClones;
use crate::write::map_edit::MapEdit;
use crate::write::publish::Publisher;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId, Pbn, Result};

/// Most requests made at once: programs' requests wait until these are done.
const SPANS_AT_ONCE: usize = 16;
/// A group without a long enough free run is halved, at most this often.
const HALVINGS_MAX: u32 = 3;
/// One part in this many of the data area stays free for other work.
const ROOM_SHARE: u64 = 64;
/// While programs make requests, each portion is followed by a rest of the same length, but at most this.
const REST_MAX: Duration = Duration::from_millis(250);
/// A request this recent means that programs are active.
const BUSY_WITHIN: Duration = Duration::from_millis(50);

/// A block of a file, and its table entry.
#[derive(Clone, Copy)]
struct Seen {
    lbn: Lbn,
    pbn: Pbn,
    entry: Entry,
}

/// A run to move: its blocks, and the index of the first among the portion's blocks that are read.
struct Moving {
    blocks: Vec<Seen>,
    at: usize,
}

/// Adjacent runs of the file that become one: at least two.
type Group = Vec<Moving>;

/// Cuts a portion of this many blocks, and of at least two runs, from a range of runs. No single run is left over.
pub fn first_of(stretch: &[FileRun], portion_blocks: u64) -> (&[FileRun], &[FileRun]) {
    assert!(!stretch.is_empty(), "a portion of {portion_blocks} blocks of nothing");
    let mut blocks = 0;
    let is_before_end = |run: &&FileRun| {
        blocks += run.blocks;
        blocks < portion_blocks
    };
    let runs = stretch.iter().take_while(is_before_end).count() + 1;
    let runs = if runs + 1 >= stretch.len() { stretch.len() } else { runs.max(2) };
    stretch.split_at(runs)
}

part! {
    /// Rewrites the short runs of files.
    pub struct Defragmenter {
        pub(super) base: signals, worker, foreground, staging, policy, stats;
        metadata: Metadata, file_policies: FilePolicies, free_blocks: FreeBlocks, data_reader: DataReader,
        damage_reports: DamageReports, lazy_clones: LazyClones, publisher: Publisher
    }
}

impl Defragmenter {
    /// Defragments a portion, adds the result to the outcome, and learns how long it took. False: the portion is
    /// unchanged, because a program made a request before it was read.
    pub fn defrag_portion(
        &self,
        map: MapId,
        portion: &[FileRun],
        gives_way: bool,
        size: &mut BatchSize,
        outcome: &mut DefragOutcome,
    ) -> Result<bool> {
        self.publisher.room().wait_for_background_room();
        let began = self.foreground.now();
        // From here on no visited block is reused, so each holds the content that the table names.
        let pin = self.metadata.pin();
        // What a clone has not taken yet is shared: moving it takes space.
        self.lazy_clones.own(map, leaves_between(portion))?;
        let seen = self.as_planned(map, portion)?;
        let blocks = seen.iter().flatten().map(|run| run.blocks.len()).sum::<usize>();
        let mut bytes = self.data_reader.take_buffer(blocks * BLOCK_BYTES);
        let mut left = ExtentsLeft::default();
        let mut sound = Vec::new();
        for group in together(seen, &mut left.changed) {
            let Some(read) = self.read_group(group, &mut bytes, gives_way) else { return Ok(false) };
            sound.extend(together(read, &mut left.damaged));
        }
        outcome.left.add(&left);
        for group in sound {
            self.defrag_group(map, group, &bytes, HALVINGS_MAX, outcome)?;
        }
        // Other work may reuse these during the rest.
        drop((pin, bytes));
        let took = self.foreground.now() - began;
        size.ran(blocks as u64, took);
        self.rest_beside_requests(took);
        Ok(true)
    }

    /// Each run of a portion as it is now. None: it is not as planned, or costs more.
    fn as_planned(&self, map: MapId, portion: &[FileRun]) -> Result<Vec<Option<Moving>>> {
        let places = self.places_in(map, portion)?;
        let mut pbns: Vec<Pbn> = places.iter().map(|(_, pbn)| *pbn).collect();
        pbns.sort_unstable();
        pbns.dedup();
        let entries = self.metadata.known_entries(&pbns);
        let mut at = 0;
        let mut moving = |run: &FileRun| {
            let from = places.partition_point(|(lbn, _)| *lbn < run.first);
            let to = places.partition_point(|(lbn, _)| *lbn < run.end);
            let seen = |&(lbn, pbn): &(Lbn, Pbn)| Some(Seen { lbn, pbn, entry: *entries.get(&pbn)? });
            let blocks: Vec<Seen> = places[from..to].iter().map_while(seen).collect();
            let is_same = match is_fragment(run.pbn) {
                true => blocks.len() as u64 == run.blocks && blocks.iter().all(|block| is_fragment(block.pbn)),
                false => Run { pbn: run.pbn, blocks: run.blocks }.pbns().eq(blocks.iter().map(|block| block.pbn)),
            };
            let shared = blocks.iter().filter(|block| block.entry.count > 1).count() as u64;
            let begins = at;
            (is_same && shared <= run.shared).then(|| {
                at += blocks.len();
                Moving { blocks, at: begins }
            })
        };
        Ok(portion.iter().map(&mut moving).collect())
    }

    /// The map's blocks at a portion's place, in the order of lbns, up to twice as many: more would not be as planned.
    fn places_in(&self, map: MapId, portion: &[FileRun]) -> Result<Vec<(Lbn, Pbn)>> {
        let planned = portion.iter().map(|run| run.blocks as usize).sum::<usize>();
        let mut places: Vec<(Lbn, Pbn)> = Vec::with_capacity(planned);
        let _map = self.metadata.lock_of(map).read();
        self.metadata.attached(map)?;
        let mut from = Some(portion[0].first);
        let until = portion[portion.len() - 1].end;
        while let Some(at) = from.filter(|_| places.len() <= 2 * planned) {
            (_, from) = self.each_extent(map, at, until, &mut |lbn, pbn, blocks| {
                places.extend((0..blocks).map(|n| (lbn.plus(n), pbn.plus(n))));
            })?;
        }
        Ok(places)
    }

    /// Reads runs to their places in `bytes`. None in place of a run: a block of it contradicts the table. None as the
    /// result: a program made a request.
    fn read_group(&self, group: Group, bytes: &mut [u8], gives_way: bool) -> Option<Vec<Option<Moving>>> {
        let (at, end) = (group[0].at, end_of(&group));
        let read = group.iter().map(|run| run.blocks.len()).sum::<usize>();
        assert_eq!(read, end - at, "the blocks of a group of {} runs from place {at} on", group.len());
        let contents = bytes[at * BLOCK_BYTES..end * BLOCK_BYTES].chunks_exact_mut(BLOCK_BYTES);
        let pbns = group.iter().flat_map(|run| &run.blocks).map(|block| block.pbn);
        if !self.read_past_cache(pbns.zip(contents).collect(), gives_way) {
            return None;
        }
        let is_sound = |(n, seen): (usize, &Seen)| {
            let is_sound = self.damage_reports.is_sound(seen.pbn, &seen.entry, block_at(bytes, n));
            is_sound && seen.entry.serves(seen.entry.tag)
        };
        Some(group.into_iter().map(|run| (run.at..).zip(&run.blocks).all(is_sound).then_some(run)).collect())
    }

    /// Reads blocks past the read cache, because most of them are read only once. Neighbouring blocks are read in one
    /// request. An unreadable block becomes zeros, which no stored block has. False: a program made a request before
    /// the end.
    fn read_past_cache(&self, blocks: Vec<(Pbn, &mut [u8])>, gives_way: bool) -> bool {
        let mut parts = Vec::with_capacity(blocks.len());
        for (pbn, bytes) in blocks {
            match self.staging.get(pbn) {
                Some(staged) => bytes.copy_from_slice(&staged),
                None => parts.push(Part { pbn, bytes }),
            }
        }
        let repeated = take_repeated(&mut parts);
        for spans in cut_spans(&mut parts).chunks_mut(SPANS_AT_ONCE) {
            if gives_way && self.foreground.calls() {
                return false;
            }
            self.data_reader.read_or_clear(spans);
        }
        copy_repeated(&parts, repeated);
        true
    }

    /// Writes a group to one free run and publishes it. If no such run exists, each half gets its own.
    fn defrag_group(
        &self,
        map: MapId,
        mut group: Group,
        bytes: &[u8],
        halvings_left: u32,
        outcome: &mut DefragOutcome,
    ) -> Result<()> {
        let blocks = group.iter().map(|run| run.blocks.len() as u64).sum();
        let left_min = Blocks(self.free_blocks.totals().data.0 / ROOM_SHARE);
        let Some(run) = self.free_blocks.allocate_contiguous(blocks, left_min)? else {
            if halvings_left == 0 || group.len() < 4 {
                outcome.left.no_free_run += group.len() as u64 - 1;
                return Ok(());
            }
            outcome.left.no_free_run += 1;
            let second = group.split_off(group.len() / 2);
            self.defrag_group(map, group, bytes, halvings_left - 1, outcome)?;
            return self.defrag_group(map, second, bytes, halvings_left - 1, outcome);
        };
        assert_eq!(run.blocks, blocks, "{run:?} for a group of {} runs", group.len());
        let mut contents = group.iter().flat_map(|run| (run.at..run.at + run.blocks.len()).map(|n| block_at(bytes, n)));
        self.free_blocks.write_run(run, &mut contents).inspect_err(|_| self.free_blocks.give_back(&[run]))?;
        self.publish_group(map, group, run, outcome).inspect_err(|_| self.free_blocks.give_back(&[run]))
    }

    /// Publishes the unchanged part of a group. An error leaves all of the new run unpublished.
    fn publish_group(&self, map: MapId, group: Group, run: Run, outcome: &mut DefragOutcome) -> Result<()> {
        let begins = group[0].at;
        let _map = self.lazy_clones.lock_to_change(map, group.iter().flat_map(leaves_of))?;
        let _room = self.publisher.room().claim_log_room(GroupBytes::of_fragments(run.blocks));
        self.metadata.attached(map)?;
        let mut edit = MapEdit::new(&self.metadata, map);
        let mut changed = 0;
        let moved = unchanged(&mut edit, group, &mut changed)?;
        let run_of = |moving: &Moving| {
            let pbn = run.pbn.plus((moving.at - begins) as u64);
            Run { pbn, blocks: moving.blocks.len() as u64 }
        };
        let taken: Vec<Run> = moved.iter().map(run_of).collect();
        if !moved.is_empty() {
            let plan = plan_of(edit, &moved, &taken)?;
            self.publisher.apply_certain(Plan { claimed: blocks_in(&taken), ..plan })?;
            self.policy.accounts().forget(map);
        }
        self.free_blocks.give_back(&without(run, &taken));
        outcome.left.changed += changed;
        self.count_moved(&moved, outcome);
        Ok(())
    }

    fn count_moved(&self, moved: &[Moving], outcome: &mut DefragOutcome) {
        let blocks = || moved.iter().flat_map(|moving| &moving.blocks);
        outcome.blocks_moved += blocks().count() as u64;
        outcome.blocks_unshared += blocks().filter(|block| block.entry.count > 1).count() as u64;
        self.stats.counters.blocks_defragmented.fetch_add(blocks().count() as u64, Relaxed);
    }

    /// Programs come first: while they make requests, half of the time is theirs.
    fn rest_beside_requests(&self, took: Duration) {
        let is_busy = self.foreground.last().is_some_and(|last| self.foreground.now() < last + BUSY_WITHIN);
        if is_busy {
            std::thread::sleep(took.min(REST_MAX));
        }
    }
}

/// Groups of at least two remaining adjacent runs. Runs that could not become fewer are counted.
fn together(runs: Vec<Option<Moving>>, lost: &mut u64) -> Vec<Group> {
    let possible = runs.len().saturating_sub(1);
    let mut groups: Vec<Group> = vec![Vec::new()];
    for run in runs {
        match run {
            Some(run) => groups.last_mut().expect("there is always one").push(run),
            None => groups.push(Vec::new()),
        }
    }
    groups.retain(|group| group.len() > 1);
    *lost += (possible - groups.iter().map(|group| group.len() - 1).sum::<usize>()) as u64;
    groups
}

fn leaves_between(portion: &[FileRun]) -> impl Iterator<Item = u64> + use<> {
    let end = portion.last().map_or(0, |run| run.end.0);
    portion.first().map_or(0, |run| run.first.0) / LEAF_BLOCKS..end.div_ceil(LEAF_BLOCKS)
}

fn leaves_of(moving: &Moving) -> impl Iterator<Item = u64> + Clone + '_ {
    moving.blocks.iter().map(|block| block.lbn.0 / LEAF_BLOCKS)
}

fn end_of(group: &Group) -> usize {
    group.last().map_or(0, |run| run.at + run.blocks.len())
}

fn block_at(bytes: &[u8], n: usize) -> &[u8] {
    &bytes[n * BLOCK_BYTES..(n + 1) * BLOCK_BYTES]
}

/// The unchanged runs of a group, except those without a gain any more.
fn unchanged(edit: &mut MapEdit<'_>, group: Group, changed: &mut u64) -> Result<Vec<Moving>> {
    let mut seen = Vec::with_capacity(group.len());
    for moving in group {
        seen.push(is_unchanged(edit, &moving.blocks)?.then_some(moving));
    }
    Ok(together(seen, changed).into_iter().flatten().collect())
}

/// The plan for moving these runs to those.
fn plan_of(mut edit: MapEdit<'_>, moved: &[Moving], to: &[Run]) -> Result<Plan> {
    assert_eq!(moved.len(), to.len(), "each run that moves has a place");
    let mut stores = Vec::new();
    for (moving, run) in moved.iter().zip(to) {
        assert_eq!(moving.blocks.len() as u64, run.blocks, "the blocks that move to {run:?}");
        edit.set_blocks(moving.blocks.iter().map(|block| block.lbn).zip(run.pbns()))?;
        let store =
            |(pbn, seen): (Pbn, &Seen)| StoredBlock { pbn, tag: seen.entry.tag, fingerprint: seen.entry.fingerprint };
        stores.extend(run.pbns().zip(&moving.blocks).map(store));
    }
    Ok(Plan { stores, ..edit.into_plan() })
}

/// Whether the map has every block where it was seen.
fn is_unchanged(edit: &mut MapEdit<'_>, blocks: &[Seen]) -> Result<bool> {
    for block in blocks {
        if !edit.has(block.lbn, block.pbn)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The rest of a run without parts of it, which come in order.
fn without(run: Run, taken: &[Run]) -> Vec<Run> {
    let mut left = Vec::new();
    let mut at = run.pbn;
    for taken in taken.iter().chain([&Run { pbn: run.end(), blocks: 0 }]) {
        if at < taken.pbn {
            left.push(Run { pbn: at, blocks: taken.pbn.0 - at.0 });
        }
        assert!(at <= taken.pbn && taken.end() <= run.end(), "{taken:?} is not the next part of {run:?} from {at} on");
        at = taken.end();
    }
    let kept = taken.iter().chain(&left).map(|part| part.blocks).sum::<u64>();
    assert_eq!(kept, run.blocks, "the blocks of the parts of {run:?}");
    left
}
