//! How `memory=` is divided among the parts of an open volume.

use crate::settings::values::Settings;
use crate::volume::assembly::Volume;

/// One part in this many of a cache's bound stays with it unlent, because it may fill up before the next check.
const RESERVE_SHARE: u64 = 8;

/// How the memory beside hints and skipped blocks is divided, in parts of 10.
pub struct Budget {
    /// Bytes for the read cache.
    pub read_cache: u64,
    /// Bytes that other caches may lend it.
    pub lent_most: u64,
    /// Bytes for pages of the block table.
    pub table: u64,
    /// Bytes for leaves of maps.
    pub leaves: u64,
    /// Bytes for the sorted state.
    pub records: u64,
    /// Bytes of changes at which a checkpoint is requested.
    pub dirty: u64,
    /// Bytes for policies of files.
    pub policies: u64,
    /// Bytes for read patterns of files.
    pub read_patterns: u64,
    /// Buffers of 1 MiB.
    pub buffers: usize,
}

impl Budget {
    /// The division of this much memory.
    pub fn of(memory_bytes_max: u64, settings: &Settings) -> Self {
        let rest = memory_bytes_max.saturating_sub(settings.hint_bytes + settings.skipped_bytes);
        let parts = |count: u64| rest / 10 * count;
        let budget = Self {
            read_cache: parts(2),
            lent_most: lent(&[(0, parts(3)), (0, settings.hint_bytes + settings.skipped_bytes)]),
            table: parts(2),
            leaves: parts(1),
            records: parts(2).max(2 << 20),
            dirty: parts(2).clamp(4 << 20, 64 << 20),
            policies: (memory_bytes_max / 512).clamp(64 << 10, 1 << 20),
            read_patterns: (memory_bytes_max / 512).clamp(64 << 10, 1 << 20),
            buffers: (memory_bytes_max / (8 << 20)).clamp(2, 16) as usize,
        };
        let caches = budget.read_cache + budget.table + budget.leaves;
        assert!(caches <= rest, "{caches} of {rest} bytes go to caches");
        budget
    }
}

/// How much memory caches can spare for now, from the bytes that each holds and may hold.
fn lent(caches: &[(u64, u64)]) -> u64 {
    let unused: u64 = caches.iter().map(|(held, most)| most.saturating_sub(*held)).sum();
    let most: u64 = caches.iter().map(|(_, most)| most).sum();
    let beyond: u64 = caches.iter().map(|(held, most)| held.saturating_sub(*most)).sum();
    unused.saturating_sub(beyond + most / RESERVE_SHARE)
}

impl Volume {
    /// Lends the read cache the unused memory of block table, maps, hints and skipped blocks. RocksDB keeps its part,
    /// and so do changes, because both fill theirs at once.
    pub fn lend_memory(&self) {
        let (table, leaves) = {
            let state = self.base.state.lock();
            (state.table.report(), state.leaves.report())
        };
        let held = [table, leaves].map(|cache| (cache.bytes, cache.bytes_max));
        self.base.read_cache.lend(lent(&[held[0], held[1], self.base.hints.memory_size(), self.base.backlog.size()]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_caches_do_not_use_is_lent_but_for_a_reserve() {
        assert_eq!(lent(&[(0, 800)]), 700);
        assert_eq!(lent(&[(300, 400), (0, 400)]), 400);
        assert_eq!(lent(&[(350, 400), (390, 400)]), 0, "all of it is reserve");
        assert_eq!(lent(&[(1_000, 400), (0, 400)]), 0, "one that exceeds its bound uses the others' first");
        assert_eq!(lent(&[]), 0);
    }
}
