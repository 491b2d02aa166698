//! Reading the newest state, wherever it is: records, pages and shards. Pages and shards are read without the publish
//! lock and admitted under it, before the work that needs them.

use std::sync::Arc;

use crate::core::Core;
use crate::format::keys::ShardKey;
use crate::format::shard::Shard;
use crate::state::published::{Plan, State};
use crate::{Change, Result};

impl Core {
    /// The shard of a map. It stays like this while the caller holds the map's lock; without it, it is what the shard was at
    /// some moment of the call.
    pub fn shard(&self, key: ShardKey) -> Result<Arc<Shard>> {
        loop {
            let generation = {
                let mut state = self.state.lock();
                if let Some(shard) = state.shards.get(key) {
                    return Ok(shard);
                }
                state.shards.generation()
            };
            let stored = self.stored.read_shard(key)?;
            let mut state = self.state.lock();
            if let Some(shard) = state.shards.get(key) {
                return Ok(shard);
            }
            // A checkpoint that ended meanwhile may have brought a newer one to the sorted state, and the cache has let go of it.
            if state.shards.generation() == generation {
                return Ok(state.shards.admit(key, stored));
            }
        }
    }

    /// Reads table pages into memory.
    pub fn load_pages(&self, numbers: &[u64]) -> Result<()> {
        let mut left = numbers.to_vec();
        while !left.is_empty() {
            let generation = self.state.lock().table.generation();
            let pages = self.stored.read_each_page(&left)?;
            let mut state = self.state.lock();
            for (number, page) in pages {
                state.check_age(number, &page)?;
                state.table.admit(number, page, generation);
            }
            left = state.table.missing(left);
        }
        Ok(())
    }

    /// Runs `work` under the publish lock with these pages in memory.
    pub fn with_pages<T>(&self, numbers: impl Fn() -> Vec<u64>, work: impl FnOnce(&mut State) -> T) -> Result<T> {
        loop {
            let mut state = self.state.lock();
            let missing = state.table.missing(numbers());
            if missing.is_empty() {
                let result = work(&mut state);
                state.table.shrink();
                return Ok(result);
            }
            drop(state);
            self.load_pages(&missing)?;
        }
    }
}

/// Pairs are fetched from the layers in portions of at most this many.
const PORTION: usize = 1024;

impl Core {
    /// See [`crate::Store::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.newest(key, || self.stored.get(key))
    }

    /// As [`Core::get`], for a program: if the sorted state is asked, background work makes way.
    pub fn get_for_program(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.newest(key, || self.foreground.serve(|| self.stored.get(key)))
    }

    /// The newest published value of a record; `read` asks the sorted state for it. Nobody waits for that: the publish
    /// lock is free meanwhile.
    ///
    /// The rule: a published record stays in memory until a checkpoint that began after its publication is durable, and
    /// such a checkpoint has written it to the sorted state by then. So a key that memory lacks is in the sorted state as
    /// it was last published. If memory lacks it before and after `read`, and no checkpoint began in between, nothing was
    /// published for it in between: what came after the last checkpoint began is still in memory. Otherwise `read` may
    /// have been too early, and is done again.
    fn newest(&self, key: &[u8], read: impl Fn() -> Result<Option<Vec<u8>>>) -> Result<Option<Vec<u8>>> {
        let mut found = None;
        loop {
            let generation = {
                let state = self.state.lock();
                if let Some(value) = state.records.get(key) {
                    return Ok(value);
                }
                state.records.generation()
            };
            match found.take() {
                Some((read_in, value)) if read_in == generation => return Ok(value),
                _ => found = Some((generation, read()?)),
            }
        }
    }

    /// As [`Core::scan`], for a program: background work makes way.
    pub fn scan_for_program(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.foreground.serve(|| self.scan(from, to, limit))
    }

    /// See [`crate::Store::scan`].
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut from = from.to_vec();
        let mut portion_min = 1;
        while found.len() < limit {
            // Where all that is found was removed, the next portion is larger: many removals cost few rounds.
            let portion = (limit - found.len()).max(portion_min).min(PORTION);
            portion_min = portion * 4;
            let (newer, generation) = {
                let state = self.state.lock();
                (state.records.range(&from, to, portion), state.records.generation())
            };
            let older = self.stored.scan(&from, to, portion)?;
            if self.state.lock().records.generation() != generation {
                continue;
            }
            // Beyond the last key of a full portion that source may have more.
            let bound = [newer.bound.clone(), (older.len() == portion).then(|| older[portion - 1].0.clone())]
                .into_iter()
                .flatten()
                .min();
            let mut merged: std::collections::BTreeMap<_, _> =
                older.into_iter().map(|(key, value)| (key, Some(value))).collect();
            merged.extend(newer.records);
            let within = |key: &Vec<u8>| bound.as_ref().is_none_or(|bound| key <= bound);
            found.extend(
                merged.into_iter().filter(|(key, _)| within(key)).filter_map(|(key, value)| Some((key, value?))),
            );
            let Some(mut bound) = bound else { break };
            bound.push(0);
            from = bound;
        }
        found.truncate(limit);
        Ok(found)
    }

    /// See [`crate::Store::publish`].
    pub fn publish(&self, change: Change) -> Result<()> {
        self.health.usable()?;
        self.apply_certain(Plan { change, ..Plan::default() })
    }
}
