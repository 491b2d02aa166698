//! Pages and shards are brought into memory before the work that needs them: read without the publish lock, admitted
//! under it.

use std::sync::Arc;

use crate::Result;
use crate::core::Core;
use crate::format::keys::ShardKey;
use crate::format::shard::Shard;
use crate::state::published::State;

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
