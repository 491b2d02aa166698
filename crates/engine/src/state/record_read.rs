//! Records: the newest published value, wherever it is.

use crate::core::Core;
use crate::state::published::Plan;
use crate::{Change, Result};

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
