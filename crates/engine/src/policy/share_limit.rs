//! The limit of a file's sharing: from its effective policy, and from how it is read.
//!
//! Owns the consequences of a limit that falls away: the worker revisits the blocks that were refused under it,
//! together with their file.

use std::time::Instant;

use oncefs_dedup::{EffectivePolicy, RunRule, ShareLimit, Work};

use crate::policy::device_reads::Change;
use crate::policy::effective::FilePolicies;
use crate::settings::values::Settings;
use crate::{Lbn, MapId, Result};

impl FilePolicies {
    /// The limit of a map's sharing.
    pub fn share_limit(&self, map: MapId) -> ShareLimit {
        self.limit_by(map, self.effective_policy(map))
    }

    /// The limit of a map's sharing under this effective policy. A file that is read at random has no budget.
    pub fn limit_by(&self, map: MapId, policy: EffectivePolicy) -> ShareLimit {
        match policy.limit {
            ShareLimit::Budget(_) if self.policy.is_read_at_random(map) => ShareLimit::Runs(1),
            limit => limit,
        }
    }

    /// The shortest run worth sharing in a map, in blocks. With a budget: the shortest run length at which the whole
    /// file could be shared.
    pub fn run_blocks_min(&self, map: MapId) -> u32 {
        self.shortest_run(self.share_limit(map))
    }

    /// The same for a limit.
    pub fn shortest_run(&self, limit: ShareLimit) -> u32 {
        match limit {
            ShareLimit::Runs(blocks) => blocks,
            ShareLimit::Budget(slowdown) => self.policy.device_reads().piece_cost().run_blocks_min(slowdown),
        }
    }

    /// The shortest run worth sharing that ends with this block, which the map has or gets. It is shorter than
    /// elsewhere if the block is the map's last one and the file's policy shares whole files and ends. The caller holds
    /// the map's lock, or accepts an outdated answer.
    pub fn end_blocks_min(&self, map: MapId, last: Lbn) -> Result<Option<u32>> {
        let policy = self.effective_policy(map);
        match policy.limit {
            ShareLimit::Budget(_) => Ok(self.metadata.is_end(map, last)?.then_some(1)),
            ShareLimit::Runs(_) if policy.shares_ends => self.end_chunk_min(map, last),
            ShareLimit::Runs(_) => Ok(None),
        }
    }

    /// Like `end_blocks_min`, for a file whose last chunk is shared whatever its length.
    pub fn end_chunk_min(&self, map: MapId, last: Lbn) -> Result<Option<u32>> {
        Ok(self.metadata.is_end(map, last)?.then(|| RunRule::end_chunk(last)))
    }

    /// Learns how a map is read, from a request of a user who may also write it. A file that is read at random loses
    /// its budget, and no other user's reads can take it away.
    pub fn note_read(&self, map: MapId, first: Lbn, blocks: u64) {
        let blocks = blocks.min(u64::from(u32::MAX)) as u32;
        let became_random = self.policy.note_read(map, first.0, blocks).unwrap_or(false);
        if became_random && matches!(self.effective_policy(map).limit, ShareLimit::Budget(_)) {
            self.backlog.requeue(Work::Owner(map.0));
        }
    }

    /// Learns that reads changed the piece cost. A fall concerns all files with a budget. A changing load on the device
    /// makes the cost rise and fall, so this starts a full pass only once in a while.
    pub fn piece_cost_changed(&self, change: Change, now: Instant) {
        let has_budget = self.tuning.with(|settings| settings.mount_policy().has_budget());
        if change == Change::Fell && has_budget && self.policy.begin_pass_for_cost(now) {
            self.backlog.requeue(Work::Everything);
        }
    }

    /// Whether blocks that were refused under one setting may be shared under another, in any file. A change of the
    /// meaning of ranks allows more for some files, in either direction.
    pub fn allows_more(&self, before: &Settings, after: &Settings) -> bool {
        let (before, after) = (before.mount_policy(), after.mount_policy());
        before.ranks != after.ranks || after.limit().allows_more_than(before.limit())
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::time::Duration;

    use oncefs_dedup::{Skipped, Slowdown};

    use super::*;
    use crate::tests::fixture::{Devices, one_level, unique};
    use crate::volume::assembly::Volume;
    use crate::{BLOCK_BYTES, Blocks, Pbn};

    const BLOCK: u64 = BLOCK_BYTES as u64;

    /// Without a run length, a budget of this much applies.
    const PERCENT: u32 = 10;
    const BUDGET: ShareLimit = ShareLimit::Budget(Slowdown(PERCENT));

    fn volume(run_blocks_min: Option<u32>) -> Volume {
        let slowdown = Some(Slowdown(PERCENT));
        let settings = Settings { run_blocks_min, slowdown, skipped_bytes: 64 << 10, ..one_level() };
        let volume = Devices::new(Blocks(20_000), settings).open();
        take_all(&volume);
        volume
    }

    fn take_all(volume: &Volume) {
        while volume.base.backlog.take(u64::MAX).is_some() {}
    }

    fn waits(volume: &Volume, what: Skipped) -> bool {
        volume.base.backlog.contents().contains(&what)
    }

    fn write(volume: &Volume, map: u64, first: u64, data: &[u8]) {
        volume.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
    }

    fn read(volume: &Volume, map: u64, first: u64, blocks: u64) {
        volume.reader.read(MapId(map), first * BLOCK, (blocks * BLOCK) as usize).unwrap();
        volume.file_policies.note_read(MapId(map), Lbn(first), blocks);
    }

    fn read_at_random(volume: &Volume, map: u64) {
        (0..2_000).for_each(|n| read(volume, map, n * 7_919 % 500, 1));
    }

    fn tune(volume: &Volume, value: &str) {
        let (name, value) = match value.strip_prefix("budget=") {
            Some(percent) => ("read_slowdown_percent_max", percent),
            None => ("run_blocks_min", value),
        };
        volume.work_loop.tune(&[(name.to_owned(), value.to_owned())]).unwrap();
    }

    fn read_all(volume: &Volume, map: u64) {
        (0..3).for_each(|n| read(volume, map, n * 200, 200));
    }

    #[test]
    fn a_fixed_number_is_that_of_every_file_whatever_is_read() {
        let volume = volume(Some(5));
        write(&volume, 1, 0, &unique(600, 1));
        take_all(&volume);
        read_at_random(&volume, 1);
        assert_eq!(
            (volume.file_policies.run_blocks_min(MapId(1)), volume.file_policies.run_blocks_min(MapId(2))),
            (5, 5)
        );
        assert!(volume.base.backlog.is_empty(), "nothing is looked at again");
    }

    #[test]
    fn a_file_read_at_random_has_no_budget_and_is_looked_at_again_as_a_whole() {
        let volume = volume(None);
        for map in [1, 2] {
            write(&volume, map, 0, &unique(600, map));
        }
        take_all(&volume);
        read_all(&volume, 2);
        assert!(volume.base.backlog.is_empty());
        read_at_random(&volume, 1);
        assert_eq!(
            (volume.file_policies.share_limit(MapId(1)), volume.file_policies.share_limit(MapId(2))),
            (ShareLimit::Runs(1), BUDGET)
        );
        assert_eq!(
            (volume.file_policies.run_blocks_min(MapId(1)), volume.file_policies.run_blocks_min(MapId(2))),
            (1, 10)
        );
        assert!(waits(&volume, Skipped::Owner(1)) && !waits(&volume, Skipped::Owner(2)));
        take_all(&volume);
        read_at_random(&volume, 1);
        assert!(volume.base.backlog.is_empty(), "it is told once");
    }

    #[test]
    fn reads_that_nobody_noted_who_may_write_the_file_leave_its_budget() {
        let volume = volume(None);
        write(&volume, 1, 0, &unique(600, 1));
        take_all(&volume);
        for n in 0..2_000 {
            volume.reader.read(MapId(1), n * 7_919 % 500 * BLOCK, BLOCK_BYTES).unwrap();
        }
        assert_eq!(volume.file_policies.share_limit(MapId(1)), BUDGET);
        assert!(volume.base.backlog.is_empty());
    }

    #[test]
    fn a_setting_that_falls_makes_a_full_pass_due_and_one_that_rises_does_not() {
        let volume = volume(Some(4));
        for (value, is_due) in [
            ("8", false),
            ("3", true),
            ("3", false),
            ("auto", true),
            ("auto", false),
            ("64", false),
            ("auto", true),
            ("7", true),
            ("1", true),
            ("auto", false),
            ("budget=20", true),
            ("budget=20", false),
            ("budget=0", false),
            ("budget=none", true),
        ] {
            volume.base.worker.reset_pass();
            tune(&volume, value);
            assert_eq!(volume.base.worker.with_pass(|pass| pass.is_full()), is_due, "{value}");
        }
    }

    #[test]
    fn a_cheaper_piece_makes_a_full_pass_due_where_there_are_budgets() {
        for (setting, change, is_due) in
            [(None, Change::Rose, false), (None, Change::Fell, true), (Some(8), Change::Fell, false)]
        {
            let volume = volume(setting);
            volume.file_policies.piece_cost_changed(change, Instant::now());
            assert_eq!(waits(&volume, Skipped::Everything), is_due, "{setting:?} {change:?}");
        }
    }

    #[test]
    fn a_cost_that_rises_and_falls_makes_a_full_pass_due_once_in_hours() {
        let (volume, began) = (volume(None), Instant::now());
        for (minutes, is_due) in [(0, true), (1, false), (300, false), (361, true), (362, false), (800, true)] {
            take_all(&volume);
            let now = began + Duration::from_secs(60 * minutes);
            volume.file_policies.piece_cost_changed(Change::Rose, now);
            volume.file_policies.piece_cost_changed(Change::Fell, now);
            assert_eq!(waits(&volume, Skipped::Everything), is_due, "after {minutes} minutes");
        }
    }

    #[test]
    fn a_full_pass_that_is_wanted_again_and_again_comes_to_its_end_and_is_made_once_more() {
        let volume = volume(None);
        write(&volume, 1, 0, &unique(768, 1));
        take_all(&volume);
        let mut seen = Vec::new();
        for _ in 0..6 {
            volume.base.backlog.requeue(Work::Everything);
            seen.extend(volume.worklist.next_batch(1).into_iter().map(|(_, lbn, _)| lbn.0));
        }
        assert!(seen.contains(&767), "up to {:?}", seen.iter().max());
        seen.clear();
        while volume.base.worker.with_pass(|pass| pass.is_full()) || !volume.base.backlog.contents().is_empty() {
            seen.extend(volume.worklist.next_batch(256).into_iter().map(|(_, lbn, _)| lbn.0));
        }
        assert!((0..768).all(|lbn| seen.contains(&lbn)), "the one that was wanted last");
    }

    #[test]
    fn device_reads_of_files_are_counted_by_their_size() {
        let volume = volume(None);
        write(&volume, 1, 0, &unique(200, 1));
        read(&volume, 1, 0, 200);
        read(&volume, 1, 3, 1);
        let mut scrubbed = vec![0; 64 * BLOCK_BYTES];
        volume.block_reader.read_run(Pbn(100), &mut scrubbed).unwrap();
        let sizes = volume.report().device.read_sizes;
        assert_eq!((sizes.count, sizes.blocks), (2, 201));
        assert_eq!((sizes.classes[0], sizes.classes[8]), (1, 1), "{:?}", sizes.classes);
    }
}
