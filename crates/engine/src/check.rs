//! Check: every invariant across structures, as code. Tests, the crash explorer and fsck share it.
//!
//! (1) Every block of a map lies in the data area. (2) A block's reference count equals its references from
//! all maps. (3) The sums equal the table and the maps. (4) No live block is free in the allocator.
//! (5) With `read_data`: every live block's content has the tag that the table says.
//!
//! Memory is bounded: references are counted for a window of blocks at a time.

use crate::core::Core;
use crate::format::keys::{self, ShardKey};
use crate::format::page::{PAGE_ENTRIES, Page};
use crate::format::shard::Target;
use crate::{BLOCK_BYTES, Blocks, MapId, Pbn, Result};

/// Blocks whose references are counted in one pass over all maps: 64 MiB of counters.
const WINDOW_BLOCKS: u64 = 16 << 20;
/// Problems described one by one; more are only counted.
const PROBLEMS_MAX: usize = 100;
/// Shard records fetched in one go.
const PORTION: usize = 1024;
/// Table pages read in one request.
const REQUEST_PAGES: u64 = 256;

/// What a check found.
#[derive(Debug, Default)]
pub struct CheckReport {
    /// Descriptions, the first hundred.
    pub problems: Vec<String>,
    /// All problems.
    pub problems_count: u64,
    /// Live blocks seen.
    pub live: Blocks,
    /// References seen.
    pub mapped: Blocks,
    /// Reserved blocks seen.
    pub reserved: Blocks,
}

impl CheckReport {
    fn note(&mut self, problem: String) {
        self.problems_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        }
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems_count == 0
    }
}

impl Core {
    /// Checks the whole volume, on which nothing else happens meanwhile. `progress` is told blocks done and blocks in all.
    pub fn check(&self, read_data: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> {
        self.redo_all()?;
        let sums = self.state.lock().sums;
        let mut report = CheckReport::default();
        let mut first = 0;
        while first < sums.data.0 {
            let window = first..sums.data.0.min(first + WINDOW_BLOCKS);
            self.check_window(window.clone(), read_data, &mut report)?;
            first = window.end;
            progress(first, sums.data.0);
        }
        let label = Blocks(1);
        for (what, found, expected) in [
            ("blocks in use", report.live + label, sums.used),
            ("references", report.mapped, sums.mapped),
            ("reserved blocks", report.reserved, sums.reserved),
        ] {
            if found != expected {
                report.note(format!("(3) the sums say {} {what}, {} are there", expected.0, found.0));
            }
        }
        Ok(report)
    }

    fn check_window(&self, window: std::ops::Range<u64>, read_data: bool, report: &mut CheckReport) -> Result<()> {
        let mut counts = vec![0u32; (window.end - window.start) as usize];
        let is_first = window.start == 0;
        let data_end = self.state.lock().sums.data.0;
        self.for_each_shard(&mut |key, shard| {
            for extent in shard.extents() {
                let blocks = u64::from(extent.blocks);
                match extent.target {
                    Target::Data(pbn) => {
                        if is_first && (pbn.0 == 0 || pbn.0 + blocks > data_end) {
                            report.note(format!(
                                "(1) map {} shard {}: {extent:?} lies outside the data area",
                                key.map.0, key.shard
                            ));
                        }
                        for at in pbn.0.max(window.start)..(pbn.0 + blocks).min(window.end) {
                            counts[(at - window.start) as usize] += 1;
                        }
                        report.mapped += Blocks(if is_first { blocks } else { 0 });
                    }
                    Target::Reserved if is_first => report.reserved += Blocks(blocks),
                    Target::Reserved | Target::Hole => {}
                }
            }
        })?;
        let mut page = window.start / PAGE_ENTRIES;
        while page * PAGE_ENTRIES < window.end {
            let count = REQUEST_PAGES.min(window.end.div_ceil(PAGE_ENTRIES) - page);
            for (number, page) in self.newest_pages(page, count)? {
                self.check_page(number, &page, &window, &counts, read_data, report)?;
            }
            page += count;
        }
        Ok(())
    }

    fn check_page(
        &self,
        number: u64,
        page: &Page,
        window: &std::ops::Range<u64>,
        counts: &[u32],
        read_data: bool,
        report: &mut CheckReport,
    ) -> Result<()> {
        let first = number * PAGE_ENTRIES;
        for pbn in (first..first + PAGE_ENTRIES).filter(|pbn| window.contains(pbn)).map(Pbn) {
            let entry = page.entry(pbn);
            let counted = counts[(pbn.0 - window.start) as usize];
            if entry.count != counted {
                report.note(format!("(2) block {pbn} has count {} and {counted} references", entry.count));
            }
            if entry.count == 0 {
                continue;
            }
            report.live += Blocks(1);
            if self.allocator.lock().is_known_free(pbn) {
                report.note(format!("(4) block {pbn} is live, but the allocator would hand it out"));
            }
            if read_data {
                let mut block = self.pool.take(BLOCK_BYTES);
                self.read_run(pbn, &mut block)?;
                let tag = self.hasher.tag(&block);
                if tag != entry.tag {
                    report.note(format!(
                        "(5) block {pbn} has content with tag {:016x}, the table says {:016x}",
                        tag.0, entry.tag.0
                    ));
                }
            }
        }
        Ok(())
    }

    /// Pages as they are now: in memory or on disk.
    pub fn newest_pages(&self, first: u64, count: u64) -> Result<Vec<(u64, Page)>> {
        let at = first * crate::format::page::PAGE_BYTES as u64;
        let mut pages = match self.table.next_data(at) {
            Ok(None) => (first..first + count).map(|number| (number, Page::empty())).collect(),
            _ => self.read_page_run(first, count as usize)?,
        };
        let mut state = self.state.lock();
        for (number, page) in &mut pages {
            if let Some(newer) = state.table.page(*number) {
                *page = (**newer).clone();
            }
        }
        Ok(pages)
    }

    /// Visits every shard that holds something, in the order of maps.
    pub fn for_each_shard(&self, visit: &mut dyn FnMut(ShardKey, &crate::format::shard::Shard)) -> Result<()> {
        let mut next = Some(ShardKey { map: MapId(0), shard: 0 });
        while let Some(from) = next {
            let (keys, behind) = self.shards_from(from, PORTION)?;
            for key in keys {
                let shard = {
                    let _map = self.map_lock(key.map).read();
                    self.shard(key)?
                };
                if !shard.is_empty() {
                    visit(key, &shard);
                }
            }
            next = behind;
        }
        Ok(())
    }

    /// Shards of all maps that may hold something, from one on, in order, some `limit` of them, and where to go on.
    pub fn shards_from(&self, from: ShardKey, limit: usize) -> Result<(Vec<ShardKey>, Option<ShardKey>)> {
        let end = keys::shard(ShardKey { map: MapId(u64::MAX), shard: u64::MAX });
        // Memory first: a checkpoint in between brings shards from there into the sorted state.
        let in_memory = self.state.lock().shards.keys_from(from, limit);
        let stored = self.kv.scan(&keys::shard(from), &end, limit)?;
        let mut found: Vec<ShardKey> = stored.iter().filter_map(|(key, _)| keys::parse_shard(key)).collect();
        let mut last = found.last().copied().filter(|_| stored.len() == limit);
        if in_memory.len() == limit {
            last = [last, in_memory.last().copied()].into_iter().flatten().min();
        }
        found.extend(in_memory);
        found.sort_unstable();
        found.dedup();
        found.retain(|key| last.is_none_or(|last| *key <= last));
        Ok((found, last.map(|last| ShardKey { map: last.map, shard: last.shard + 1 })))
    }
}
