//! Repacking by the worker: the live fragments of packs with gaps go to new packs, and all blocks of the old ones
//! become free. A fragment keeps its number, so no map, hint or record changes: only its place in the block table does.
//!
//! A pass looks for the packs with the largest gaps first. It begins when gaps take more than a twentieth of what packs
//! take and fragments were freed since the last one. The bytes that it writes are bounded by what else was written
//! ([`budget`]), because a flash device wears out by writes.
//!
//! A crash before the group is durable leaves the fragments in their old places and the new packs free; a crash after
//! it leaves them in the new ones. The old blocks become free with the group, after the readers that may look there.

use std::sync::atomic::Ordering::Relaxed;

use hashbrown::HashSet;

use crate::base::part;
use crate::format::fragment::{FragmentPlace, PACK_BLOCKS_MAX};
use crate::format::fragment_totals::FragmentTotals;
use crate::format::group_bytes::GroupBytes;
use crate::format::pack_directory::directory_bytes;
use crate::place::free_blocks::FreeBlocks;
use crate::state::published::{MovedFragment, Plan};
use crate::sync::{LockRank, Mutex};
use crate::worker::live_fragments::{LiveFragment, PackReader};
use crate::worker::pack::Pack;
use crate::worker::sparse_packs::SparsePacks;
use crate::write::publish::Publisher;
use crate::{BLOCK_BYTES, Error, Pbn, Result};

/// How much of a pack's blocks may be needed for it to be packed anew, in percent, one after the other.
const PERCENT_NEEDED: [u64; 3] = [50, 75, 92];
/// A pass begins if gaps take more than one part in this many of what packs take,
const GAP_SHARE: u64 = 20;
/// and if fragments with one part in this many of it were freed since the last one.
const FREED_SHARE: u64 = 64;
/// Three tenths of what else is written may be written by repacking.
const BUDGET_TENTHS: u64 = 3;
/// Bytes of fragments moved in one turn, at least and at most: fewer would waste the ends of packs.
const TURN_BYTES_MIN: u64 = 256 << 10;
const TURN_BYTES_MAX: u64 = 1 << 20;
/// Blocks of a new pack, the next if the free space has no such run.
const PACK_BLOCKS: [u64; 5] = [PACK_BLOCKS_MAX, 8, 4, 2, 1];

/// Where the pass is.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// The next block. None: no pass is under way.
    next: Option<Pbn>,
    /// The index in [`PERCENT_NEEDED`].
    level: usize,
    /// Bytes of fragments that were freed before the last pass began. None: none began since the mount.
    freed_before: Option<u64>,
    /// Bytes of blocks that packs took at the first turn. None: there was none.
    packed_before: Option<u64>,
}

/// The result of a turn.
#[derive(PartialEq, Eq)]
enum Turn {
    /// It moved this many bytes of fragments.
    Moved(u64),
    /// No block is free now.
    NoRoom,
}

part! {
    /// Packs fragments anew.
    pub struct Repacker {
        base: damage, pins, state, hasher, stats;
        free_blocks: FreeBlocks, publisher: Publisher, sparse_packs: SparsePacks, pack_reader: PackReader
    } own {
        /// None while a turn has it.
        pass: Mutex<Option<Pass>> = Mutex::new(LockRank::Leaf, Some(Pass::default()))
    }
}

impl Repacker {
    /// One turn: moves fragments of about `blocks_max` blocks. Returns how many blocks it wrote. None: gaps are small,
    /// nothing was freed since the last pass, or the budget of writes or the free space is used up for now.
    pub fn repack_some(&self, blocks_max: u64) -> Result<Option<u64>> {
        self.publisher.usable()?;
        let Some(mut pass) = self.pass.lock().take() else { return Ok(None) };
        let written = self.advance(&mut pass, blocks_max);
        *self.pass.lock() = Some(pass);
        written
    }

    fn advance(&self, pass: &mut Pass, blocks_max: u64) -> Result<Option<u64>> {
        let (totals, freed) = {
            let state = self.state.lock();
            (state.fragment_totals, state.fragment_bytes_freed)
        };
        let packed_before = *pass.packed_before.get_or_insert(packed_bytes(&totals));
        if pass.next.is_none() {
            if !is_due(&totals, freed, pass.freed_before) {
                return Ok(None);
            }
            *pass = Pass { next: Some(Pbn(0)), level: 0, freed_before: Some(freed), ..*pass };
        }
        let left = self.budget_left(packed_before);
        if left < TURN_BYTES_MIN.min(packed_bytes(&totals) / 4) {
            return Ok(None);
        }
        let bytes_max = blocks_max.saturating_mul(BLOCK_BYTES as u64).clamp(TURN_BYTES_MIN, TURN_BYTES_MAX).min(left);
        self.publisher.room().wait_for_background_room();
        let from = pass.next.unwrap_or_default();
        let (packs, next) = self.sparse_packs.find(from, PERCENT_NEEDED[pass.level], bytes_max)?;
        // From here on no block of these packs is reused, so each holds what its directory says.
        let pin = self.pins.pin();
        // The pass moves on even after a failure, so that it does not try the same packs for ever.
        pass.next = next;
        let turn = self.repack(&self.pack_reader.read(&packs))?;
        drop(pin);
        let Turn::Moved(bytes) = turn else {
            pass.next = Some(from);
            return Ok(None);
        };
        if next.is_none() && pass.level + 1 < PERCENT_NEEDED.len() {
            (pass.level, pass.next) = (pass.level + 1, Some(Pbn(0)));
        }
        Ok(Some(bytes.div_ceil(BLOCK_BYTES as u64)))
    }

    fn budget_left(&self, packed_before: u64) -> u64 {
        let counters = &self.stats.counters;
        let by_us = counters.repack_bytes_written.load(Relaxed);
        let by_others = counters.data_bytes_written.load(Relaxed).saturating_sub(by_us);
        budget(by_others, packed_before).saturating_sub(by_us)
    }

    /// Moves fragments to new packs, if these take fewer blocks than the fragments keep in use.
    fn repack(&self, live: &[LiveFragment]) -> Result<Turn> {
        let kept: HashSet<Pbn> = live.iter().flat_map(|live| live.place.holders()).collect();
        for blocks_max in PACK_BLOCKS {
            let mut packs = filled(live, blocks_max);
            if packs.iter().map(Pack::blocks).sum::<u64>() >= kept.len() as u64 {
                return Ok(Turn::Moved(0));
            }
            packs[0].run = self.free_blocks.take_to_repack(packs[0].blocks())?;
            if packs[0].run.is_some() {
                return self.move_to(packs, live);
            }
        }
        Ok(Turn::NoRoom)
    }

    /// Writes new packs, as far as there is room, and publishes them one by one.
    fn move_to(&self, packs: Vec<Pack>, mut live: &[LiveFragment]) -> Result<Turn> {
        let mut moved = 0;
        for mut pack in packs {
            let (here, rest) = live.split_at(pack.len());
            live = rest;
            let run = match pack.run {
                Some(run) => run,
                None => match self.free_blocks.take_to_repack(pack.blocks())? {
                    Some(run) => run,
                    None => break,
                },
            };
            pack.run = Some(run);
            let published = self.write(&pack).and_then(|()| self.publish(&pack, here));
            if !matches!(published, Ok(true)) {
                self.free_blocks.give_back_unclaimed(&[run]);
            }
            // The table contradicts these fragments. The next packs may be sound.
            if self.damage.pass_over_contradiction(published)? == Some(true) {
                moved += pack.fragment_bytes();
                self.stats.counters.fragments_repacked.fetch_add(here.len() as u64, Relaxed);
            }
        }
        Ok(Turn::Moved(moved))
    }

    fn write(&self, pack: &Pack) -> Result<()> {
        let run = pack.run.expect("its caller gave it a place");
        let bytes = pack.sealed(self.free_blocks.pack_order(), &self.hasher);
        self.stats.counters.repack_bytes_written.fetch_add(bytes.len() as u64, Relaxed);
        self.free_blocks.write_run(run, &mut bytes.chunks_exact(BLOCK_BYTES))
    }

    /// Publishes the fragments of a pack in their new places: all of them, because a directory that names a fragment
    /// elsewhere would be taken for the newest one of its number. False: one of them was freed or moved meanwhile, or
    /// the totals have no room.
    fn publish(&self, pack: &Pack, live: &[LiveFragment]) -> Result<bool> {
        let moved = |(live, to): (&LiveFragment, FragmentPlace)| {
            let LiveFragment { listed, place, .. } = live;
            MovedFragment { pbn: listed.number, tag: listed.tag, from: *place, to }
        };
        let moves = live.iter().zip(pack.places()).map(moved).collect();
        match self
            .publisher
            .claim_and_publish(GroupBytes::of_fragments(live.len() as u64), Plan { moves, ..Plan::default() })
        {
            Err(Error::NoSpace) => Ok(false),
            published => Ok(published?.is_none()),
        }
    }
}

/// Packs of at most this many blocks, with these fragments in their order.
fn filled(live: &[LiveFragment], blocks_max: u64) -> Vec<Pack> {
    let mut packs: Vec<Pack> = Vec::new();
    for LiveFragment { listed, bytes, .. } in live {
        if packs.last().is_none_or(|pack| !pack.has_room_for(bytes.len(), blocks_max)) {
            packs.push(Pack::default());
        }
        let last = packs.len() - 1;
        packs[last].add(listed.number, listed.tag, bytes, listed.coding);
    }
    packs
}

/// The bytes that packs take.
fn packed_bytes(totals: &FragmentTotals) -> u64 {
    totals.blocks.saturating_mul(BLOCK_BYTES as u64)
}

/// Whether gaps are large enough for a pass, and whether enough was freed since the last one began.
fn is_due(totals: &FragmentTotals, freed: u64, freed_before: Option<u64>) -> bool {
    let packed = packed_bytes(totals);
    let directories = (directory_bytes(1) - directory_bytes(0)) as u64 * totals.fragments;
    let gaps = totals.gap_bytes().saturating_sub(directories);
    let since = freed_before.map_or(u64::MAX, |before| freed.saturating_sub(before));
    gaps > packed / GAP_SHARE && since > packed / FREED_SHARE
}

/// How much repacking may have written since the mount: three tenths of what was written otherwise since, and of what
/// packs took when it began, which was written earlier.
fn budget(by_others: u64, packed_before: u64) -> u64 {
    by_others.saturating_add(packed_before) / 10 * BUDGET_TENTHS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_is_due_when_gaps_and_what_was_freed_are_large() {
        // 400 KiB of packs, with 300 KiB of fragments in them.
        let totals = FragmentTotals { fragments: 300, bytes: 300 << 10, blocks: 100 };
        assert!(is_due(&totals, 0, None), "after a mount nothing is known of what was freed");
        assert!(!is_due(&totals, 9_000, Some(9_000)));
        assert!(!is_due(&totals, 9_000 + 6_400, Some(9_000)));
        assert!(is_due(&totals, 9_000 + 6_401, Some(9_000)));
        // Directories of 300 fragments take 4.7 KiB of the gaps.
        let dense = FragmentTotals { bytes: (400 << 10) - 4_800 - 20_480, ..totals };
        assert!(!is_due(&dense, 0, None));
        assert!(is_due(&FragmentTotals { bytes: dense.bytes - 1, ..dense }, 0, None));
        assert!(!is_due(&FragmentTotals::default(), 0, None), "nothing is compressed");
    }

    #[test]
    fn the_budget_follows_what_else_was_written() {
        assert_eq!(budget(0, 0), 0);
        assert_eq!(budget(1_000, 0), 300);
        assert_eq!(budget(1_000, 3_000), 1_200);
    }
}
