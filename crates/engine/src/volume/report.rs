//! The report of `oncefs stats`: totals, stages, caches and counters.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, CacheReport, Report, Stage, StageReport};

impl Volume {
    /// See [`Store::report`].
    pub fn report(&self) -> Report {
        let (disk_bytes, _) = self.base.hints.disk_level_size();
        let on_disk = CacheReport {
            bytes: disk_bytes,
            bytes_max: disk_bytes,
            hits: self.base.stats.counters.disk_level_hits.load(Relaxed),
            misses: 0,
        };
        let (bytes, bytes_max) = self.base.backlog.size();
        let skipped = CacheReport { bytes, bytes_max, ..CacheReport::default() };
        let (totals, available) = (self.free_blocks.totals(), self.free_blocks.available());
        let staged = self.base.staging.bytes();
        let state = self.base.state.lock();
        let kv = self.base.stored.records_in_memory();
        let records = CacheReport { bytes: kv.bytes, bytes_max: kv.bytes_max, hits: kv.hits, misses: kv.misses };
        let looked_up = self.base.stats.stage(Stage::Lookup).blocks.load(Relaxed);
        let found = self.base.stats.counters.blocks_shared.load(Relaxed).min(looked_up);
        let (bytes, bytes_max) = self.base.hints.memory_size();
        let hints = CacheReport { bytes, bytes_max, hits: found, misses: looked_up - found };
        let stages = Stage::ALL.iter().map(|stage| {
            let stats = self.base.stats.stage(*stage);
            let report = StageReport { blocks: stats.blocks.load(Relaxed), latency: stats.latency.snapshot() };
            (stage.name().to_owned(), report)
        });
        let pools = self.base.space.pool_shortage();
        Report {
            space: BTreeMap::from([
                ("pool_full".to_owned(), pools.own.into()),
                ("data_pool_full".to_owned(), pools.data.into()),
                ("cluster_silent".to_owned(), pools.silent.into()),
                ("data_bytes".to_owned(), totals.data.bytes()),
                ("used_bytes".to_owned(), totals.used.bytes()),
                ("reserved_bytes".to_owned(), totals.reserved.bytes()),
                ("mapped_bytes".to_owned(), totals.mapped.bytes()),
                ("available_bytes".to_owned(), available.bytes()),
                ("compressed_bytes".to_owned(), Blocks(state.fragment_totals.fragments).bytes()),
                ("fragment_bytes".to_owned(), state.fragment_totals.bytes),
                ("pack_bytes".to_owned(), Blocks(state.fragment_totals.blocks).bytes()),
                ("staged_bytes".to_owned(), staged),
                ("bad_bytes".to_owned(), (state.bad.len() * BLOCK_BYTES) as u64),
            ]),
            stages: stages.collect(),
            caches: BTreeMap::from([
                ("read".to_owned(), self.base.read_cache.report()),
                ("table".to_owned(), state.table.report()),
                ("shards".to_owned(), state.leaves.report()),
                ("hints".to_owned(), hints),
                ("hints_on_disk".to_owned(), on_disk),
                ("skipped".to_owned(), skipped),
                ("records".to_owned(), records),
            ]),
            device: self.base.policy.device_reads().report(),
            counters: self.base.stats.counters.snapshot(),
            ranks: BTreeMap::new(),
            cluster: None,
            settings: BTreeMap::new(),
        }
    }
}
