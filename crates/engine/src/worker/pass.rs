//! Where the worker is: in a map that it looks at as a whole, or in a pass over all maps.

use std::time::Duration;

use oncefs_dedup::Skipped;

use crate::MapId;
use crate::format::keys::ShardKey;

/// Listed blocks of one file that are looked at together, if it has so many: runs are found within a batch, however
/// small the device's speed wants that to be.
pub const STRETCH_BLOCKS: u64 = 256;

/// Where the worker is in what it cannot know block by block.
#[derive(Debug, Default)]
pub struct Pass {
    /// A map looked at as a whole, and its next shard.
    pub map: Option<(MapId, u64)>,
    /// The next shard of a pass over all maps.
    pub all: Option<ShardKey>,
    /// Blocks of the pass over all maps seen.
    pub done: u64,
    /// Blocks that it will see, about.
    pub blocks: u64,
    /// When it began, since the volume was opened.
    pub began: Option<Duration>,
    /// Whether the disk level is being swept first: stale hints would stand in the place of live ones.
    pub is_sweeping: bool,
    /// Whether another one is due behind the one under way.
    pub is_wanted_again: bool,
    /// Blocks that could not be merged because who refers to their equals was not known.
    pub left: u64,
    /// Whether some of the blocks handed out last are of a full pass.
    pub is_batch_full: bool,
    /// Whether all of them were skipped one by one.
    pub is_batch_listed: bool,
    /// How often a batch was left for a program, less those that came to their end since.
    pub called_away: u32,
}

impl Pass {
    /// Whether a pass over all maps is due or under way.
    pub fn is_full(&self) -> bool {
        self.all.is_some()
    }

    /// What a checkpoint has to keep of it.
    pub fn left(&self) -> Vec<Skipped> {
        let map = self.map.map(|(map, _)| Skipped::Owner(map.0));
        map.into_iter().chain(self.all.map(|_| Skipped::Everything)).collect()
    }

    /// Whether the blocks handed out last were skipped one by one: they are newer than most others.
    pub fn is_batch_listed(&self) -> bool {
        self.is_batch_listed
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
        self.called_away = match is_whole {
            true => self.called_away.saturating_sub(1),
            false => (self.called_away + 1).min(STRETCH_BLOCKS.ilog2()),
        };
    }

    /// Whether a shard is still to be looked at with others of its map or of all maps.
    pub fn is_ahead_of(&self, key: ShardKey) -> bool {
        let is_of_map = self.map.is_some_and(|(map, shard)| map == key.map && shard <= key.shard);
        is_of_map || self.all.is_some_and(|next| next <= key)
    }

    pub fn is_under_way(&self) -> bool {
        self.map.is_some() || self.all.is_some()
    }
}
