//! The worker's position: in a map that it looks at as a whole, or in a pass over all maps.

use std::time::Duration;

use oncefs_dedup::{Progress, Skipped};

use crate::MapId;
use crate::format::keys::ShardKey;

/// Listed blocks of one file that are looked at together, if it has so many: runs are found within a batch, however
/// small the device's speed wants that to be.
const RANGE_BLOCKS_MIN: u64 = 256;

/// The worker's position in what is not listed block by block.
#[derive(Debug, Default)]
pub struct Pass {
    /// A map looked at as a whole, and its next shard.
    map: Option<(MapId, u64)>,
    /// The next shard of a pass over all maps.
    all: Option<ShardKey>,
    /// Blocks of the pass over all maps seen.
    done: u64,
    /// Blocks that it will see, about.
    blocks: u64,
    /// When it began, since the volume was opened.
    began: Option<Duration>,
    /// Whether the disk level is being swept first: stale hints would stand in the place of live ones.
    is_sweeping: bool,
    /// Whether another one is due after the one under way.
    is_wanted_again: bool,
    /// Blocks that could not be merged because the references to their equals were not known.
    left: u64,
    /// Whether some of the blocks in the last batch are of a full pass.
    is_batch_full: bool,
    /// Whether all of them were skipped one by one.
    is_batch_listed: bool,
    /// How often a batch was left for a program, less those that came to their end since.
    interrupted: u32,
}

impl Pass {
    /// Whether a map, or all of them, are being looked at.
    pub fn is_under_way(&self) -> bool {
        self.map.is_some() || self.all.is_some()
    }

    /// Whether a pass over all maps is due or under way.
    pub fn is_full(&self) -> bool {
        self.all.is_some()
    }

    /// A pass over all maps starts over; it will see about so many blocks.
    pub fn begin_full(&mut self, blocks: u64, now: Duration) {
        self.all = Some(ShardKey { map: MapId(0), shard: 0 });
        (self.blocks, self.done, self.began) = (blocks, 0, Some(now));
        (self.is_sweeping, self.left) = (true, 0);
    }

    /// A full pass is wanted while one is under way: it follows. From the beginning each time, one that is often wanted
    /// would never come to its end.
    pub fn want_full_again(&mut self) {
        assert!(self.is_full(), "a second full pass is wanted, and none is under way");
        self.is_wanted_again = true;
    }

    /// After the end of a full pass: whether another one is to follow. Says so once.
    pub fn take_full_again(&mut self) -> bool {
        !self.is_full() && std::mem::take(&mut self.is_wanted_again)
    }

    /// Whether a full pass waits until the disk level is swept.
    pub fn is_sweeping(&self) -> bool {
        self.is_sweeping && self.is_full()
    }

    /// The disk level is swept.
    pub fn end_sweep(&mut self) {
        self.is_sweeping = false;
    }

    /// A batch begins: as long as nothing else joins it, its blocks are listed ones.
    pub fn begin_batch(&mut self) {
        (self.is_batch_full, self.is_batch_listed) = (false, true);
    }

    /// Listed blocks of a file that a batch takes together, at least, if runs count: fewer while batches are interrupted.
    pub fn range_blocks_min(&self) -> u64 {
        let blocks = RANGE_BLOCKS_MIN >> self.interrupted;
        assert!(blocks > 0, "{RANGE_BLOCKS_MIN} blocks halved {} times", self.interrupted);
        blocks
    }

    /// The map looked at as a whole, and its next shard.
    pub fn map(&self) -> Option<(MapId, u64)> {
        self.map
    }

    /// A map is to be looked at as a whole.
    pub fn begin_map(&mut self, map: MapId) {
        assert_eq!(self.map, None, "map {} begins before another one has ended", map.0);
        self.map = Some((map, 0));
    }

    /// Shards of the map were added to the batch; the next one, or none: it has ended.
    pub fn advance_map(&mut self, next: Option<(MapId, u64)>) {
        let before = self.map.expect("a map is being looked at");
        assert!(next.is_none_or(|next| next.0 == before.0 && next.1 > before.1), "from {before:?} to {next:?}");
        self.map = next;
        self.is_batch_listed = false;
    }

    /// The next shard of the pass over all maps.
    pub fn all(&self) -> Option<ShardKey> {
        self.all
    }

    /// Blocks of the pass over all maps were added to the batch; its next shard, or none: it has ended.
    pub fn advance_all(&mut self, next: Option<ShardKey>, blocks: u64) {
        let before = self.all.expect("a full pass is under way");
        assert!(next.is_none_or(|next| next > before), "from {before:?} to {next:?}");
        self.all = next;
        self.done += blocks;
        (self.is_batch_full, self.is_batch_listed) = (true, false);
    }

    /// What a checkpoint has to keep of it.
    pub fn unfinished(&self) -> Vec<Skipped> {
        let map = self.map.map(|(map, _)| Skipped::Owner(map.0));
        map.into_iter().chain(self.all.map(|_| Skipped::Everything)).collect()
    }

    /// Whether all blocks of the last batch were skipped one by one: they are newer than most others.
    pub fn is_batch_listed(&self) -> bool {
        self.is_batch_listed
    }

    /// Blocks that had to stay although equal ones are left elsewhere.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Notes blocks that have to wait for their equals to be looked at, and those that came to such. A full pass looks
    /// at all.
    pub fn note_left(&mut self, waiting: u64, merged: u64) {
        if !self.is_batch_full {
            self.left = (self.left + waiting).saturating_sub(merged);
        }
    }

    /// Notes whether a batch came to its end. One that is left for a program again and again, since looking it up takes
    /// longer than programs pause, has half as many blocks of a file each time, until it does.
    pub fn note_end(&mut self, is_whole: bool) {
        self.interrupted = match is_whole {
            true => self.interrupted.saturating_sub(1),
            false => (self.interrupted + 1).min(RANGE_BLOCKS_MIN.ilog2()),
        };
    }

    /// Whether a shard is still to be looked at with others of its map or of all maps.
    pub fn is_ahead_of(&self, key: ShardKey) -> bool {
        let is_of_map = self.map.is_some_and(|(map, shard)| map == key.map && shard <= key.shard);
        is_of_map || self.all.is_some_and(|next| next <= key)
    }

    /// How far the last pass over all maps has come.
    pub fn progress(&self, now: Duration) -> Progress {
        let spent = self.began.map_or(Duration::ZERO, |began| now.saturating_sub(began));
        Progress { done: self.done, all: self.blocks, spent }
    }
}
