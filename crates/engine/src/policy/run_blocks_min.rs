//! The runs of a file that are worth sharing: by its effective policy, or, where that is automatic, by its reads and
//! the device.
//!
//! Owns the consequences of a number that falls: the worker looks again at blocks that were refused for it, as part of
//! their file.

use oncefs_dedup::{RunRule, Work};

use crate::core::Core;
use crate::format::page::page_of;
use crate::format::shard::Target;
use crate::policy::device_reads::{Change, GAP_BLOCKS_MAX};
use crate::policy::read_pattern::Seen;
use crate::settings::values::Settings;
use crate::{Lbn, MapId, Pbn, Result};

/// Runs of one read request whose neighbourhood is looked at, at most.
const RUNS_LOOKED_AT_MAX: usize = 16;

impl Core {
    /// The shortest run worth sharing in a map, in blocks.
    pub fn run_blocks_min(&self, map: MapId) -> u32 {
        self.effective_policy(map).run_blocks_min.unwrap_or_else(|| self.automatic_run(map))
    }

    /// The shortest run worth sharing in a map by its reads and the device.
    pub fn automatic_run(&self, map: MapId) -> u32 {
        let number = self.policy.automatic_run(map);
        if number.fell {
            self.backlog.requeue(Work::Owner(map.0));
        }
        number.run_blocks_min
    }

    /// The shortest run worth sharing that ends with this block, which the map has or gets: fewer than elsewhere if it is
    /// the map's last one, and the file's rank lets its whole and its end be shared. The caller holds the map's lock, or
    /// can do with an answer that is out of date.
    pub fn end_blocks_min(&self, map: MapId, last: Lbn) -> Result<Option<u32>> {
        if self.effective_policy(map).shares_ends { self.end_chunk_min(map, last) } else { Ok(None) }
    }

    /// As `end_blocks_min`, for a file whose end is shared whatever its length.
    pub fn end_chunk_min(&self, map: MapId, last: Lbn) -> Result<Option<u32>> {
        let is_end = self.next_stored(map, last.plus(1), Lbn(u64::MAX))?.is_none();
        Ok(is_end.then(|| RunRule::end_chunk(last)))
    }

    /// Learns from a read request how its map is read and how it lies.
    pub fn note_read(&self, map: MapId, first: Lbn, runs: &[(Target, u64)]) {
        let blocks = runs.iter().map(|(_, blocks)| blocks).sum::<u64>();
        let seen = Seen { first: first.0, blocks: blocks.min(u64::from(u32::MAX)) as u32, lies: self.lies(runs) };
        let number = self.policy.note_read(map, seen);
        if number.is_some_and(|number| number.fell) && self.effective_policy(map).run_blocks_min.is_none() {
            self.backlog.requeue(Work::Owner(map.0));
        }
    }

    /// How many neighbours in the file lie together; the device reads over a small gap. And how many lie apart although
    /// neither is shared; those where one is shared lie so because of that. A block whose table page is
    /// not in memory counts as shared.
    fn lies(&self, runs: &[(Target, u64)]) -> (u32, u32) {
        let stored = |&(target, blocks): &(Target, u64)| match target {
            Target::Data(pbn) => Some((pbn, pbn.plus(blocks - 1))),
            Target::Hole | Target::Reserved => None,
        };
        let mut stored = runs.iter().filter_map(stored).take(RUNS_LOOKED_AT_MAX);
        let Some(mut before) = stored.next() else { return (0, 0) };
        let mut together = before.1.0 - before.0.0;
        let mut apart: Vec<(Pbn, Pbn)> = Vec::new();
        for run in stored {
            together += run.1.0 - run.0.0;
            debug_assert!(before.0 <= before.1, "a run from block {} to {}", before.0, before.1);
            let is_near = (before.1.0..=before.1.0 + 1 + GAP_BLOCKS_MAX).contains(&run.0.0);
            if is_near {
                together += 1
            } else {
                apart.push((before.1, run.0))
            }
            before = run;
        }
        let alone = if apart.is_empty() { 0 } else { self.count_unshared(&apart) };
        (together as u32 + (apart.len() - alone) as u32, alone as u32)
    }

    fn count_unshared(&self, pairs: &[(Pbn, Pbn)]) -> usize {
        let mut state = self.state.lock();
        let mut is_alone = |pbn: Pbn| state.table.page(page_of(pbn)).is_some_and(|page| page.count(pbn) == 1);
        pairs.iter().filter(|(before, behind)| is_alone(*before) && is_alone(*behind)).count()
    }

    /// A request to the device changed what a seek costs. A fall concerns all files that are not known one by one; at
    /// the first measurement of a mount it is the expectation that was wrong, and what was refused for it is little.
    pub fn seek_cost_changed(&self, change: Change) {
        if change == Change::Fell && self.tuning.with(|settings| settings.run_blocks_min).is_none() {
            self.backlog.requeue(Work::Everything);
        }
    }

    /// Whether runs that were refused by one setting are worth sharing by another, in any file. A change of the ranks'
    /// meaning allows more of some files, whichever it is.
    pub fn allows_more(&self, before: &Settings, after: &Settings) -> bool {
        if before.ranks != after.ranks {
            return true;
        }
        let most = || self.policy.automatic_run_of_unknown();
        match (before.run_blocks_min, after.run_blocks_min) {
            (Some(before), Some(after)) => after < before,
            (Some(before), None) => before > 1,
            (None, Some(after)) => after < most(),
            (None, None) => false,
        }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use oncefs_dedup::Skipped;

    use super::*;
    use crate::tests::fixture::{Devices, Random, one_level, unique};
    use crate::{BLOCK_BYTES, Blocks};

    const BLOCK: u64 = BLOCK_BYTES as u64;
    /// What a file has of which nothing is known, on a device of which nothing is known.
    const EXPECTED: u32 = 8;

    fn volume(run_blocks_min: Option<u32>) -> Core {
        let settings = Settings { run_blocks_min, skipped_bytes: 64 << 10, ..one_level() };
        let core = Devices::new(Blocks(20_000), settings).open();
        take_all(&core);
        core
    }

    fn take_all(core: &Core) {
        while core.backlog.take(u64::MAX).is_some() {}
    }

    fn waits(core: &Core, what: Skipped) -> bool {
        core.backlog.contents().contains(&what)
    }

    fn write(core: &Core, map: u64, first: u64, data: &[u8]) {
        core.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
    }

    fn read(core: &Core, map: u64, first: u64, blocks: u64) {
        core.read(MapId(map), first * BLOCK, (blocks * BLOCK) as usize).unwrap();
    }

    fn read_at_random(core: &Core, map: u64) {
        (0..2_000).for_each(|n| read(core, map, n * 7_919 % 500, 1));
    }

    fn tune(core: &Core, value: &str) {
        core.tune(&[("run_blocks_min".to_owned(), value.to_owned())]).unwrap();
    }

    /// Writes a file of 600 blocks in the order of `pieces` of so many blocks.
    fn write_in_pieces(core: &Core, map: u64, data: &[u8], piece: u64, random: &mut Random) {
        let mut left: Vec<u64> = (0..600 / piece).collect();
        while !left.is_empty() {
            let at = left.swap_remove(random.below(left.len() as u64) as usize) * piece;
            let bytes = (at * BLOCK) as usize..((at + piece) * BLOCK) as usize;
            write(core, map, at, &data[bytes]);
        }
    }

    fn read_all(core: &Core, map: u64) {
        (0..3).for_each(|n| read(core, map, n * 200, 200));
    }

    #[test]
    fn a_fixed_number_is_that_of_every_file_whatever_is_read() {
        let core = volume(Some(5));
        write(&core, 1, 0, &unique(600, 1));
        take_all(&core);
        read_at_random(&core, 1);
        assert_eq!((core.run_blocks_min(MapId(1)), core.run_blocks_min(MapId(2))), (5, 5));
        assert!(core.backlog.is_empty(), "nothing is looked at again");
    }

    #[test]
    fn a_file_read_at_random_falls_to_one_and_is_looked_at_again_as_a_whole() {
        let core = volume(None);
        for map in [1, 2] {
            write(&core, map, 0, &unique(600, map));
        }
        take_all(&core);
        read_all(&core, 2);
        assert!(core.backlog.is_empty());
        read_at_random(&core, 1);
        assert_eq!((core.run_blocks_min(MapId(1)), core.run_blocks_min(MapId(2))), (1, EXPECTED));
        assert!(waits(&core, Skipped::Owner(1)) && !waits(&core, Skipped::Owner(2)));
        take_all(&core);
        read_at_random(&core, 1);
        assert!(core.backlog.is_empty(), "it fell no further");
    }

    #[test]
    fn a_file_written_at_random_places_has_a_lower_number_once_it_was_read() {
        let (core, mut random) = (volume(None), Random::new(3));
        write_in_pieces(&core, 1, &unique(600, 1), 2, &mut random);
        assert_eq!(core.run_blocks_min(MapId(1)), EXPECTED);
        (0..8).for_each(|_| read_all(&core, 1));
        let number = core.run_blocks_min(MapId(1));
        assert!((1..=4).contains(&number), "{number} in pieces of 2");
        assert!(waits(&core, Skipped::Owner(1)));
    }

    #[test]
    fn pieces_that_sharing_made_do_not_lower_the_number() {
        let (core, mut random) = (volume(None), Random::new(4));
        let data = unique(600, 1);
        write_in_pieces(&core, 1, &data, 2, &mut random);
        tune(&core, "1");
        write(&core, 2, 0, &data);
        tune(&core, "auto");
        assert_eq!(core.totals().used.0, 601, "the second file shares every block");
        (0..8).for_each(|_| read_all(&core, 2));
        assert_eq!(core.run_blocks_min(MapId(2)), EXPECTED);
    }

    #[test]
    fn a_setting_that_falls_makes_a_full_pass_due_and_one_that_rises_does_not() {
        let core = volume(Some(4));
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
        ] {
            core.worker.reset_pass();
            tune(&core, value);
            assert_eq!(core.worker.with_pass(|pass| pass.is_full()), is_due, "{value}");
        }
    }

    #[test]
    fn a_cheaper_seek_makes_a_full_pass_due_unless_it_was_never_measured() {
        for (setting, change, is_due) in [
            (None, Change::First, false),
            (None, Change::Rose, false),
            (None, Change::Fell, true),
            (Some(8), Change::Fell, false),
        ] {
            let core = volume(setting);
            core.seek_cost_changed(change);
            assert_eq!(waits(&core, Skipped::Everything), is_due, "{setting:?} {change:?}");
        }
    }

    #[test]
    fn a_full_pass_that_is_wanted_again_and_again_comes_to_its_end_and_is_made_once_more() {
        let core = volume(None);
        write(&core, 1, 0, &unique(768, 1));
        take_all(&core);
        let mut seen = Vec::new();
        for _ in 0..6 {
            core.backlog.requeue(Work::Everything);
            seen.extend(core.next_batch(1).into_iter().map(|(_, lbn, _)| lbn.0));
        }
        assert!(seen.contains(&767), "up to {:?}", seen.iter().max());
        seen.clear();
        while core.worker.with_pass(|pass| pass.is_full()) || !core.backlog.contents().is_empty() {
            seen.extend(core.next_batch(256).into_iter().map(|(_, lbn, _)| lbn.0));
        }
        assert!((0..768).all(|lbn| seen.contains(&lbn)), "the one that was wanted last");
    }

    #[test]
    fn device_reads_of_files_are_counted_by_their_size() {
        let core = volume(None);
        write(&core, 1, 0, &unique(200, 1));
        read(&core, 1, 0, 200);
        read(&core, 1, 3, 1);
        let mut scrubbed = vec![0; 64 * BLOCK_BYTES];
        core.read_run(Pbn(100), &mut scrubbed).unwrap();
        let sizes = core.report().device.read_sizes;
        assert_eq!((sizes.count, sizes.blocks), (2, 201));
        assert_eq!((sizes.classes[0], sizes.classes[8]), (1, 1), "{:?}", sizes.classes);
    }
}
