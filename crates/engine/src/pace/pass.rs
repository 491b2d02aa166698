//! The worker's position: in a map that it visits as a whole, or in a pass over all maps.

use std::time::Duration;

use oncefs_dedup::{Progress, Skipped};

use crate::MapId;
use crate::format::keys::LeafKey;

/// Listed blocks of one file that are visited together, if it has that many: runs are found within a batch, however
/// small the device's speed wants batches to be.
const RANGE_BLOCKS_MIN: u64 = 256;

/// The worker's position in work that is not listed block by block.
#[derive(Debug, Default)]
pub struct Pass {
    /// The map that is visited as a whole, and its next leaf.
    map: Option<(MapId, u64)>,
    /// The next leaf of a pass over all maps.
    all: Option<LeafKey>,
    /// Blocks visited by the pass over all maps.
    done: u64,
    /// Approximate number of blocks that it will visit.
    blocks: u64,
    /// When it began, as time since the volume was opened.
    began: Option<Duration>,
    /// Whether the disk level is being swept first: stale hints would take the place of live ones.
    is_sweeping: bool,
    /// Whether another pass is due after the current one.
    is_wanted_again: bool,
    /// Blocks that could not be merged because the references to their equals were not known.
    left: u64,
    /// Whether some blocks of the last batch belong to a full pass.
    is_batch_full: bool,
    /// Whether all of them were skipped one by one.
    is_batch_listed: bool,
    /// How often a batch was interrupted by a program, less the batches completed since.
    interrupted: u32,
}

impl Pass {
    /// Whether a map, or all of them, are being visited.
    pub fn is_under_way(&self) -> bool {
        self.map.is_some() || self.all.is_some()
    }

    /// Whether a pass over all maps is due or under way.
    pub fn is_full(&self) -> bool {
        self.all.is_some()
    }

    /// Starts a new pass over all maps, which will visit about this many blocks.
    pub fn begin_full(&mut self, blocks: u64, now: Duration) {
        self.all = Some(LeafKey { map: MapId(0), leaf: 0 });
        (self.blocks, self.done, self.began) = (blocks, 0, Some(now));
        (self.is_sweeping, self.left) = (true, 0);
    }

    /// Requests a full pass while one is under way: it follows later. If it restarted each time, a pass that is often
    /// requested would never end.
    pub fn want_full_again(&mut self) {
        assert!(self.is_full(), "a second full pass is wanted, and none is under way");
        self.is_wanted_again = true;
    }

    /// After the end of a full pass: whether another one follows. Returns true once.
    pub fn take_full_again(&mut self) -> bool {
        !self.is_full() && std::mem::take(&mut self.is_wanted_again)
    }

    /// Whether a full pass waits until the disk level is swept.
    pub fn is_sweeping(&self) -> bool {
        self.is_sweeping && self.is_full()
    }

    /// Learns that the disk level is swept.
    pub fn end_sweep(&mut self) {
        self.is_sweeping = false;
    }

    /// Begins a batch: until other blocks join it, its blocks are listed ones.
    pub fn begin_batch(&mut self) {
        (self.is_batch_full, self.is_batch_listed) = (false, true);
    }

    /// How many listed blocks of a file a batch takes together, at least, if runs count. Fewer while batches are
    /// interrupted.
    pub fn range_blocks_min(&self) -> u64 {
        let blocks = RANGE_BLOCKS_MIN >> self.interrupted;
        assert!(blocks > 0, "{RANGE_BLOCKS_MIN} blocks halved {} times", self.interrupted);
        blocks
    }

    /// The map that is visited as a whole, and its next leaf.
    pub fn map(&self) -> Option<(MapId, u64)> {
        self.map
    }

    /// Begins to visit a map as a whole.
    pub fn begin_map(&mut self, map: MapId) {
        assert_eq!(self.map, None, "map {} begins before another one has ended", map.0);
        self.map = Some((map, 0));
    }

    /// Learns that leaves of the map were added to the batch. `next` is the next leaf. None: the map is done.
    pub fn advance_map(&mut self, next: Option<(MapId, u64)>) {
        let before = self.map.expect("a map is being looked at");
        assert!(next.is_none_or(|next| next.0 == before.0 && next.1 > before.1), "from {before:?} to {next:?}");
        self.map = next;
        self.is_batch_listed = false;
    }

    /// The next leaf of the pass over all maps.
    pub fn all(&self) -> Option<LeafKey> {
        self.all
    }

    /// Learns that blocks of the pass over all maps were added to the batch. `next` is the next leaf. None: the pass
    /// is done.
    pub fn advance_all(&mut self, next: Option<LeafKey>, blocks: u64) {
        let before = self.all.expect("a full pass is under way");
        assert!(next.is_none_or(|next| next > before), "from {before:?} to {next:?}");
        self.all = next;
        self.done += blocks;
        (self.is_batch_full, self.is_batch_listed) = (true, false);
    }

    /// The part of it that a checkpoint has to keep.
    pub fn unfinished(&self) -> Vec<Skipped> {
        let map = self.map.map(|(map, _)| Skipped::Owner(map.0));
        map.into_iter().chain(self.all.map(|_| Skipped::Everything)).collect()
    }

    /// Whether all blocks of the last batch were skipped one by one. Such blocks are newer than most others.
    pub fn is_batch_listed(&self) -> bool {
        self.is_batch_listed
    }

    /// Blocks that had to stay although equal ones remain elsewhere.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Notes blocks that wait for their equals to be visited, and blocks that were merged with such. A full pass visits
    /// all of them.
    pub fn note_left(&mut self, waiting: u64, merged: u64) {
        if !self.is_batch_full {
            self.left = (self.left + waiting).saturating_sub(merged);
        }
    }

    /// Notes whether a batch was completed. If a batch is interrupted by programs again and again, because its look-up
    /// takes longer than their pauses, the next one takes half as many blocks of a file, until one completes.
    pub fn note_end(&mut self, is_whole: bool) {
        self.interrupted = match is_whole {
            true => self.interrupted.saturating_sub(1),
            false => (self.interrupted + 1).min(RANGE_BLOCKS_MIN.ilog2()),
        };
    }

    /// Whether a leaf is still to be visited with others of its map or of all maps.
    pub fn is_ahead_of(&self, key: LeafKey) -> bool {
        let is_of_map = self.map.is_some_and(|(map, leaf)| map == key.map && leaf <= key.leaf);
        is_of_map || self.all.is_some_and(|next| next <= key)
    }

    /// The progress of the last pass over all maps.
    pub fn progress(&self, now: Duration) -> Progress {
        let spent = self.began.map_or(Duration::ZERO, |began| now.saturating_sub(began));
        Progress { done: self.done, all: self.blocks, spent }
    }
}
