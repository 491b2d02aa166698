//! Reading the newest state, wherever it is: records, pages and shards. Pages and shards are read without the publish
//! lock and admitted under it, before the work that needs them.

use std::sync::Arc;

use crate::core::Core;
use crate::format::keys::ShardKey;
use crate::format::shard::Shard;
use crate::state::published::{Plan, State};
use crate::{Change, Result};

impl Core {
    /// The shard of a map. The caller holds the map's lock.
    pub fn shard(&self, key: ShardKey) -> Result<Arc<Shard>> {
        if let Some(shard) = self.state.lock().shards.get(key) {
            return Ok(shard);
        }
        let stored = self.stored.read_shard(key)?;
        let mut state = self.state.lock();
        if let Some(shard) = state.shards.get(key) {
            return Ok(shard);
        }
        Ok(state.shards.admit(key, stored))
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
        match self.state.lock().records.get(key) {
            Some(value) => Ok(value),
            None => self.stored.get(key),
        }
    }

    /// See [`crate::Store::scan`].
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        let mut from = from.to_vec();
        while found.len() < limit {
            let portion = (limit - found.len()).min(PORTION);
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
