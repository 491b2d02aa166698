//! Which blocks the worker looks at next: those that were skipped one by one, then files as a whole, then, in a full
//! pass, all maps in the order of their ids.

use oncefs_dedup::{MountPolicy, Ranks, Work};

use crate::core::Core;
use crate::format::keys::ShardKey;
use crate::format::shard::{SHARD_BLOCKS, Target};
use crate::state::place::Place;
use crate::worker::pass::{Pass, STRETCH_BLOCKS};
use crate::write::publish::shard_parts;
use crate::{BLOCK_BYTES, Error, Lbn, MapId, Pbn, Result};

/// Shards fetched in one go, at most.
const PORTION_SHARDS_MAX: u64 = 16;

/// Files and portions of maps that one batch passes over, at most: where all files are left alone, a program that wants
/// the device waits no longer than for these.
const PASSED_OVER_MAX: usize = 512;

/// Pages of the disk level swept in one go.
const SWEEP_PAGES: usize = 16;

/// A full pass is worth it for more than one block in so many.
const LEFT_SHARE: u64 = 1_000;

impl Core {
    /// Whether there is anything to look at.
    pub fn is_revisit_left(&self) -> bool {
        self.worker.pass.lock().is_under_way() || !self.backlog.skipped.lock().is_empty()
    }

    /// Begins a full pass if that promises to merge something that could not be merged before. True: it does.
    pub fn begin_pass_for_left(&self) -> bool {
        let worth_it = self.state.lock().totals.mapped.0 / LEFT_SHARE;
        let is_worth_it = self.worker.pass.lock().left > worth_it;
        if is_worth_it {
            self.begin_full_pass();
        }
        is_worth_it
    }

    /// Begins a pass over all maps, behind what is skipped.
    pub fn begin_full_pass(&self) {
        self.restart_full_pass(&mut self.worker.pass.lock());
    }

    fn restart_full_pass(&self, pass: &mut Pass) {
        pass.all = Some(ShardKey { map: MapId(0), shard: 0 });
        pass.blocks = self.state.lock().totals.mapped.0;
        (pass.done, pass.began) = (0, Some(self.foreground.now()));
        (pass.is_sweeping, pass.left) = (true, 0);
        self.sweep_from_the_beginning();
    }

    /// Sweeps some pages of the disk level if a full pass waits for that. False: none does.
    pub fn is_sweep_due(&self) -> bool {
        let mut pass = self.worker.pass.lock();
        let is_wanted = pass.is_sweeping && pass.is_full();
        let mut pages = (0..SWEEP_PAGES).take_while(|_| !self.foreground.calls());
        pass.is_sweeping = is_wanted && pages.all(|_| self.sweep_some());
        pass.is_sweeping
    }

    /// Some `blocks_max` blocks to look at, in file order. What cannot be read is passed over, and so are files that
    /// are not deduplicated out of line: there may be none although something is left.
    pub fn gather(&self, blocks_max: u64) -> Vec<Place> {
        let stretch = match self.tuning.with(|settings| settings.mount_policy()) {
            MountPolicy { run_blocks_min: Some(1), ranks: Ranks::Off } => 1,
            _ => STRETCH_BLOCKS,
        };
        let portion = (blocks_max / SHARD_BLOCKS).clamp(1, PORTION_SHARDS_MAX) as usize;
        let mut places = Vec::new();
        let mut pass = self.worker.pass.lock();
        let stretch = (stretch >> pass.called_away).max(1);
        (pass.is_batch_full, pass.is_batch_listed) = (false, true);
        let mut looks = 0;
        while (places.len() as u64) < blocks_max && looks <= PASSED_OVER_MAX + places.len() {
            looks += 1;
            if let Some((map, shard)) = pass.map {
                pass.is_batch_listed = false;
                let next = self.gather_map(map, shard, portion, &mut places);
                pass.map = next.unwrap_or_else(|error| pass_over(&error));
                continue;
            }
            let work = self.backlog.skipped.lock().take((blocks_max - places.len() as u64).max(stretch));
            match work {
                Some(Work::Blocks { owner, runs }) => {
                    self.gather_runs(MapId(owner), &runs, &mut places).unwrap_or_else(|error| pass_over(&error));
                }
                Some(Work::Owner(owner)) => pass.map = Some((MapId(owner), 0)),
                // From the beginning each time, one that is often wanted would never come to its end.
                Some(Work::Everything) if pass.is_full() => pass.is_wanted_again = true,
                Some(Work::Everything) => self.restart_full_pass(&mut pass),
                None => match pass.all {
                    Some(from) => {
                        let before = places.len();
                        let next = self.gather_all(from, portion, |map| self.is_later(map), &mut places);
                        pass.all = next.unwrap_or_else(|error| pass_over(&error));
                        pass.done += (places.len() - before) as u64;
                        (pass.is_batch_full, pass.is_batch_listed) = (true, false);
                        if pass.all.is_none() && std::mem::take(&mut pass.is_wanted_again) {
                            self.restart_full_pass(&mut pass);
                            break;
                        }
                    }
                    None => break,
                },
            }
        }
        places
    }

    /// What a map has in a range, up to the first place that has nothing.
    pub fn stored_from(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<Pbn>> {
        let stored = self.stored_at(map, first, blocks)?;
        Ok(stored.into_iter().map_while(|pbn| pbn).collect())
    }

    /// What a map has in a range, from behind the last place that has nothing.
    pub fn stored_until(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<Pbn>> {
        let stored = self.stored_at(map, first, blocks)?;
        let mut pbns: Vec<Pbn> = stored.into_iter().rev().map_while(|pbn| pbn).collect();
        pbns.reverse();
        Ok(pbns)
    }

    fn stored_at(&self, map: MapId, first: Lbn, blocks: u64) -> Result<Vec<Option<Pbn>>> {
        let _map = self.maps.lock(map).read();
        let mut stored = Vec::with_capacity(blocks as usize);
        for (key, start, end) in shard_parts(map, first, blocks) {
            for extent in self.shard(key)?.slice(start, end) {
                stored.extend((0..u64::from(extent.blocks)).map(|n| match extent.target {
                    Target::Data(pbn) => Some(pbn.plus(n)),
                    Target::Hole | Target::Reserved => None,
                }));
            }
        }
        Ok(stored)
    }

    /// Whether a map has nothing but these blocks, and files that are one run are shared as a whole.
    pub fn is_whole(&self, map: MapId, first: Lbn, blocks: u64) -> Result<bool> {
        let block = BLOCK_BYTES as u64;
        Ok(self.shares_whole_files(map)
            && self.seek_data(map, 0, first.0 * block)?.is_none()
            && self.seek_data(map, (first.0 + blocks) * block, u64::MAX)?.is_none())
    }

    fn gather_runs(&self, map: MapId, runs: &[(Lbn, u64)], places: &mut Vec<Place>) -> Result<()> {
        let _map = self.maps.lock(map).read();
        if self.state.lock().is_detached(map) || !self.is_later(map) {
            return Ok(());
        }
        for (first, blocks) in runs {
            for (key, start, end) in shard_parts(map, *first, *blocks) {
                self.gather_part(key, start, end, places)?;
            }
        }
        Ok(())
    }

    /// Some shards of a map; gives where to go on.
    fn gather_map(
        &self,
        map: MapId,
        from: u64,
        portion: usize,
        places: &mut Vec<Place>,
    ) -> Result<Option<(MapId, u64)>> {
        let _map = self.maps.lock(map).read();
        if self.state.lock().is_detached(map) || !self.is_later(map) {
            return Ok(None);
        }
        let shards = self.stored_shards(map, from, portion)?;
        for &shard in &shards {
            let key = ShardKey { map, shard };
            self.gather_part(key, 0, SHARD_BLOCKS as u16, places).unwrap_or_else(|error| pass_over(&error));
        }
        Ok(shards.last().filter(|_| shards.len() == portion).map(|last| (map, last + 1)))
    }

    /// Whether a file is deduplicated out of line.
    pub fn is_later(&self, map: MapId) -> bool {
        self.effective_policy(map).is_later
    }

    /// Some shards of all maps that are wanted; gives where to go on.
    pub fn gather_all(
        &self,
        from: ShardKey,
        portion: usize,
        is_wanted: impl Fn(MapId) -> bool,
        places: &mut Vec<Place>,
    ) -> Result<Option<ShardKey>> {
        let (keys, mut next) = self.shards_from(from, portion)?;
        if let Some(last) = keys.last().filter(|last| next.is_some() && !is_wanted(last.map)) {
            next = Some(ShardKey { map: MapId(last.map.0 + 1), shard: 0 });
        }
        for key in keys.into_iter().filter(|key| is_wanted(key.map)) {
            let _map = self.maps.lock(key.map).read();
            if !self.state.lock().is_detached(key.map) {
                self.gather_part(key, 0, SHARD_BLOCKS as u16, places).unwrap_or_else(|error| pass_over(&error));
            }
        }
        Ok(next)
    }

    /// The blocks in a part of a shard. The caller holds the map's lock.
    fn gather_part(&self, key: ShardKey, start: u16, end: u16, places: &mut Vec<Place>) -> Result<()> {
        for extent in self.shard(key)?.slice(start, end) {
            if let Target::Data(pbn) = extent.target {
                let lbn = Lbn(key.shard * SHARD_BLOCKS + u64::from(extent.first));
                places.extend((0..u64::from(extent.blocks)).map(|n| (key.map, lbn.plus(n), pbn.plus(n))));
            }
        }
        Ok(())
    }
}

/// Nothing to look at where a part of a map cannot be read: the worker must not stop at it for ever.
fn pass_over<T: Default>(error: &Error) -> T {
    log::warn!("blocks are not looked at: {error}");
    T::default()
}
