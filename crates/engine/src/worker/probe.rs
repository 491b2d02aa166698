//! The probe of the piece cost: short reads of blocks with data, while no program makes requests. Also keeps the result
//! in the volume.
//!
//! Only blocks with data are read, because a device answers for holes and trimmed blocks without any access. The probe
//! lasts longer than a rate limit on the device lets requests pass at once, and ends when a program makes a request.
//!
//! Crash: the number is advice. If its record was not committed, the next mount probes again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_toolbox::Random;

use crate::base::part;
use crate::format::device_record::DeviceRecord;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys;
use crate::format::page::{PAGE_ENTRIES, Page, pbns_of};
use crate::place::free_blocks::FreeBlocks;
use crate::read::device::DataReader;
use crate::state::loading::Metadata;
use crate::state::published::Plan;
use crate::stats::counters::Count;
use crate::write::publish::Publisher;
use crate::{BLOCK_BYTES, Pbn, Result};

/// Time spent on each kind of read: several batches of the estimate.
const TIME: Duration = Duration::from_millis(450);
/// Less data than this is not worth a probe: all of it may be in the device's cache.
const DATA_BLOCKS_MIN: u64 = 16_384;
/// Blocks of a large read.
const LARGE_BLOCKS: u64 = 256;
/// Places checked for blocks with data.
const PLACES: usize = 4_096;
/// Where few of them have data, this much of what has some is checked, in requests of as many pages of the block table.
const WALKED_REQUESTS: usize = 64;
const WALKED_PAGES: u64 = 64;
/// Pages of the block table for a large read.
const LARGE_PAGES: usize = (LARGE_BLOCKS / PAGE_ENTRIES) as usize;
const _: () =
    assert!(LARGE_PAGES as u64 * PAGE_ENTRIES == LARGE_BLOCKS && WALKED_PAGES.is_multiple_of(LARGE_PAGES as u64));
/// Large reads at different places.
const LARGE_PLACES: usize = 64;
/// Pieces in the first round. Later rounds read as many as fill the time.
const PIECES_FIRST: usize = 64;
/// A round of reads that took less is doubled.
const ROUND: Duration = Duration::from_millis(25);

part! {
    /// Measures what scattered reads cost.
    pub struct DeviceProbe {
        base: policy, tuning, worker, foreground;
        metadata: Metadata, free_blocks: FreeBlocks, data_reader: DataReader, publisher: Publisher
    } own {
        /// Blocks in use when they lay in too few places. With twice as many it looks again.
        too_few: Count = Count::new(0)
    }
}

impl DeviceProbe {
    /// Measures the piece cost if the device was not probed since the mount and there is enough data. True: it did.
    pub fn probe_if_due(&self) -> bool {
        let has_budget = self.tuning.with(|settings| settings.mount_policy().has_budget());
        let used = self.free_blocks.totals().used.0;
        let has_data = used >= DATA_BLOCKS_MIN.max(2 * self.too_few.load(Relaxed));
        if !has_budget || !has_data || self.policy.device_reads().is_probed() {
            return false;
        }
        self.worker.note_doing("measuring what scattered reads cost");
        match self.probe() {
            Ok(Probed::All) => {
                self.policy.device_reads().note_probed();
                true
            }
            Ok(Probed::TooFewPlaces) => {
                self.too_few.store(used, Relaxed);
                false
            }
            Ok(Probed::GaveWay) => false,
            Err(error) => {
                self.policy.device_reads().note_probed();
                log::warn!("cannot measure what scattered reads cost, assuming what is usual: {error}");
                false
            }
        }
    }

    /// Makes the reads.
    fn probe(&self) -> Result<Probed> {
        // Keeps the blocks from being reused while they are read.
        let _pin = self.metadata.pin();
        let mut random = Random::new(self.foreground.now().as_nanos() as u64);
        let places = Some(self.places_anywhere(&mut random)).filter(Places::are_enough);
        let Places { apart, large } =
            places.map_or_else(|| self.places_of_data(&mut random), Ok)?.shuffled(&mut random);
        if apart.len() < PIECES_FIRST || large.is_empty() {
            return Ok(Probed::TooFewPlaces);
        }
        let mut buffer = self.data_reader.take_buffer(LARGE_BLOCKS as usize * BLOCK_BYTES);
        let now = || self.policy.device_reads().now();
        let began = now();
        for first in large.iter().cycle().take_while(|_| now() - began < TIME) {
            if self.foreground.calls() {
                return Ok(Probed::GaveWay);
            }
            self.data_reader.read_device(*first, &mut buffer)?;
        }
        let (began, mut pieces) = (now(), PIECES_FIRST);
        while now() - began < TIME {
            if self.foreground.calls() {
                return Ok(Probed::GaveWay);
            }
            let from = random.below((apart.len() - pieces + 1) as u64) as usize;
            let round = now();
            let mut blocks = self.data_reader.take_buffer(pieces * BLOCK_BYTES);
            self.data_reader.read_blocks_apart(&apart[from..from + pieces], &mut blocks)?;
            let took = now() - round;
            pieces = if took < ROUND { (2 * pieces).min(apart.len()) } else { pieces };
        }
        Ok(Probed::All)
    }

    /// Places with data among some in the whole data area.
    fn places_anywhere(&self, random: &mut Random) -> Places {
        let data = self.free_blocks.totals().data.0;
        let mut pbns: Vec<Pbn> = (0..PLACES).map(|_| Pbn(1 + random.below(data - 1))).collect();
        pbns.sort_unstable();
        pbns.dedup_by_key(|pbn| pbn.0 / LARGE_BLOCKS);
        let live = |pbns: &[Pbn]| -> Vec<Pbn> {
            let entries = self.metadata.known_entries(pbns);
            pbns.iter().copied().filter(|pbn| entries.get(pbn).is_some_and(|entry| entry.serves(entry.tag))).collect()
        };
        let apart = live(&pbns);
        let is_live_range = |first: &Pbn| {
            let range: Vec<Pbn> = (0..LARGE_BLOCKS).map(|n| first.plus(n)).collect();
            range.last().is_some_and(|last| last.0 < data) && live(&range).len() == range.len()
        };
        let large = apart.iter().copied().filter(is_live_range).take(LARGE_PLACES).collect();
        Places { apart, large }
    }

    /// Places with data among those that the block table has entries of, from a random one on: most of a large data area
    /// may be empty.
    fn places_of_data(&self, random: &mut Random) -> Result<Places> {
        let pages = self.free_blocks.totals().data.0.div_ceil(PAGE_ENTRIES);
        let start = random.below(pages) / LARGE_PAGES as u64 * LARGE_PAGES as u64;
        let mut places = Places::default();
        let (mut from, mut end) = (start, pages);
        for _ in 0..WALKED_REQUESTS {
            let found = self.metadata.pages_of_blocks(from, WALKED_PAGES)?.filter(|(first, _)| *first < end);
            let Some((first, found)) = found else {
                if end == start {
                    break;
                }
                (from, end) = (0, start);
                continue;
            };
            from = first + found.len() as u64;
            // Large reads begin at multiples of their length.
            let skipped = (first.next_multiple_of(LARGE_PAGES as u64) - first) as usize;
            let first = first + skipped as u64;
            for (n, together) in (0..).zip(found.get(skipped..).unwrap_or_default().chunks(LARGE_PAGES)) {
                places.add(first + n * LARGE_PAGES as u64, together, random);
            }
        }
        Ok(places)
    }

    /// After opening: restores the measurement of an earlier mount.
    pub fn restore_piece_cost(&self) -> Result<()> {
        let Some(value) = self.metadata.get(&keys::device())? else { return Ok(()) };
        match DeviceRecord::decode(&value) {
            Some(record) => {
                self.policy.device_reads().start_from(record.piece_cost);
                self.policy.device_reads().note_saved(record.piece_cost);
            }
            None => log::warn!("what scattered reads cost was measured, but the record of it is damaged"),
        }
        Ok(())
    }

    /// Publishes the piece cost if it was measured and is not stored yet. It is durable with the current group.
    pub fn save_piece_cost(&self) -> Result<()> {
        let piece_cost = self.policy.device_reads().piece_cost();
        if !self.policy.device_reads().is_measured() || self.policy.device_reads().is_saved(piece_cost) {
            return Ok(());
        }
        let mut plan = Plan::default();
        plan.change.put(keys::device(), DeviceRecord { piece_cost }.encode());
        self.publisher.claim_and_apply(GroupBytes::SMALL, plan)?;
        self.policy.device_reads().note_saved(piece_cost);
        Ok(())
    }
}

/// How a probe ended.
enum Probed {
    /// All reads were made.
    All,
    /// Too few places have data.
    TooFewPlaces,
    /// A program made a request.
    GaveWay,
}

/// Where the probe reads.
#[derive(Default)]
struct Places {
    /// Single blocks with data, far from each other.
    apart: Vec<Pbn>,
    /// Beginnings of ranges that are all data.
    large: Vec<Pbn>,
}

impl Places {
    fn are_enough(&self) -> bool {
        self.apart.len() >= PIECES_FIRST && !self.large.is_empty()
    }

    /// Adds a place of these adjacent pages of the block table, if they have one.
    fn add(&mut self, first: u64, pages: &[Option<Page>], random: &mut Random) {
        let entries = (first..).zip(pages).filter_map(|(number, page)| page.as_ref().map(|page| (number, page)));
        let blocks = entries.flat_map(|(number, page)| pbns_of(number).map(move |pbn| (pbn, page)));
        let is_live = |(pbn, page): &(Pbn, &Page)| {
            let entry = page.entry(*pbn);
            !page.is_damaged(*pbn) && entry.serves(entry.tag)
        };
        let live: Vec<Pbn> = blocks.filter(is_live).map(|(pbn, _)| pbn).collect();
        if live.len() as u64 == LARGE_BLOCKS && self.large.len() < LARGE_PLACES {
            self.large.push(live[0]);
        }
        if !live.is_empty() {
            self.apart.push(live[random.below(live.len() as u64) as usize]);
        }
    }

    /// The single blocks in random order.
    fn shuffled(self, random: &mut Random) -> Self {
        let order = random.permutation(self.apart.len());
        Self { apart: order.into_iter().map(|at| self.apart[at]).collect(), large: self.large }
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::io;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::sync::atomic::Ordering::Relaxed;

    use oncefs_dedup::PieceCost;

    use super::*;
    use crate::device::{Device, Io, MemoryDevice};
    use crate::format::page::REPLICA;
    use crate::pace::stopwatch::Stopwatch;
    use crate::settings::values::Settings;
    use crate::state::flag_change::FlagChange;
    use crate::tests::fixture::{Devices, one_level, unique};
    use crate::volume::assembly::Volume;
    use crate::volume::backend::{Backend, TestHooks};
    use crate::volume::open::recover;
    use crate::{Blocks, MapId, OpenOptions};

    /// A device that takes 100 us for each request and 8 us for each block, by a stopwatch that only it moves.
    struct Timed(Arc<MemoryDevice>, Arc<AtomicU64>);

    impl Device for Timed {
        fn submit(&self, ios: &mut [Io<'_>]) {
            let micros: u64 = ios.iter().map(|io| 100 + 8 * (io.len() / BLOCK_BYTES) as u64).sum();
            self.1.fetch_add(micros, Relaxed);
            self.0.submit(ios);
        }

        fn flush(&self) -> io::Result<()> {
            self.0.flush()
        }

        fn punch(&self, at: u64, len: u64) -> io::Result<()> {
            self.0.punch(at, len)
        }

        fn next_data(&self, at: u64) -> io::Result<Option<u64>> {
            self.0.next_data(at)
        }

        fn len(&self) -> io::Result<u64> {
            self.0.len()
        }

        fn grow(&self, len: u64) -> io::Result<()> {
            self.0.grow(len)
        }
    }

    fn timed(devices: &Devices) -> Volume {
        let micros = Arc::new(AtomicU64::new(0));
        let data = Arc::new(Timed(devices.data.clone(), micros.clone()));
        let stopwatch = Stopwatch::new(move || Duration::from_micros(micros.load(Relaxed)));
        let hooks = TestHooks { stopwatch, ..TestHooks::default() };
        let backend = Backend { data, ..devices.backend() };
        recover(backend, &OpenOptions::new(2 << 20), devices.settings.clone(), hooks).unwrap()
    }

    fn devices() -> Devices {
        Devices::new(Blocks(40_000), Settings { slowdown: Some(oncefs_dedup::Slowdown(100)), ..one_level() })
    }

    fn fill(volume: &Volume, blocks: u64) {
        for part in 0..blocks / 256 {
            volume.write(MapId(1), part << 20, &unique(256, part), |_, _| ()).unwrap();
            volume.commits.commit().unwrap();
        }
    }

    #[test]
    fn a_volume_with_enough_data_is_probed_once_a_mount_and_keeps_the_number() {
        let devices = devices();
        let volume = timed(&devices);
        fill(&volume, 4_096);
        assert!(!volume.device_probe.probe_if_due(), "there is too little data");
        fill(&volume, 20_480);
        volume.base.policy.device_reads().note_machine(false);
        assert!(volume.device_probe.probe_if_due() && !volume.device_probe.probe_if_due());
        assert!(volume.base.policy.device_reads().is_measured());
        volume.device_probe.save_piece_cost().unwrap();
        volume.commits.commit().unwrap();
        let cost = volume.base.policy.device_reads().piece_cost();
        assert!((cost.blocks() - 10.0).abs() < 0.5, "100 us beside 8 us, and 2 us for a reader: {cost:?}");
        let volume = devices.after_power_cut_of_all().open();
        assert_eq!(
            (volume.base.policy.device_reads().piece_cost(), volume.base.policy.device_reads().is_measured()),
            (cost, true)
        );
        let changes = volume.base.stats.counters.groups_committed.load(Relaxed);
        volume.device_probe.save_piece_cost().unwrap();
        volume.commits.commit().unwrap();
        assert_eq!(
            volume.base.stats.counters.groups_committed.load(Relaxed),
            changes,
            "what is kept is not written again"
        );
    }

    #[test]
    fn a_volume_that_is_almost_empty_is_probed_where_its_data_lies() {
        // 80 MiB in 32 GiB: about ten of the 4,096 random places have data.
        let settings = Settings { slowdown: Some(oncefs_dedup::Slowdown(100)), ..one_level() };
        let volume = timed(&Devices::new(Blocks(8 << 20), settings));
        fill(&volume, 20 << 10);
        let reads = volume.base.policy.device_reads();
        reads.note_machine(false);
        assert!(volume.device_probe.probe_if_due() && reads.is_measured());
        assert!((reads.piece_cost().blocks() - 10.0).abs() < 0.5, "{:?}", reads.piece_cost());
    }

    #[test]
    fn a_volume_whose_blocks_cannot_be_read_alone_is_probed_once_it_has_twice_as_many() {
        let volume = timed(&devices());
        fill(&volume, 17 << 10);
        let (first, last) = (1, 17 << 10);
        let flags = (first..last).map(|pbn| FlagChange::set(Pbn(pbn), REPLICA)).collect();
        volume.publisher.publish_plan(Plan { flags, ..Plan::default() }).unwrap();
        let reads = volume.base.policy.device_reads();
        reads.note_machine(false);
        assert!(!volume.device_probe.probe_if_due() && !reads.is_probed());
        fill(&volume, 20 << 10);
        assert!(!volume.device_probe.probe_if_due(), "it does not look again and again");
        fill(&volume, 35 << 10);
        assert!(volume.device_probe.probe_if_due() && reads.is_measured());
    }

    #[test]
    fn a_mount_without_a_budget_is_not_probed() {
        let devices = Devices::new(Blocks(40_000), one_level());
        let volume = devices.open();
        fill(&volume, 20_480);
        assert!(!volume.device_probe.probe_if_due() && !volume.base.policy.device_reads().is_probed());
    }

    #[test]
    fn a_damaged_record_is_as_if_nothing_was_measured() {
        let devices = devices();
        let volume = devices.open();
        let mut plan = Plan::default();
        let mut bytes = DeviceRecord { piece_cost: PieceCost::of_blocks(7.0) }.encode();
        bytes[1] ^= 1;
        plan.change.put(keys::device(), bytes);
        volume.publisher.apply_certain(plan).unwrap();
        volume.commits.commit().unwrap();
        let volume = devices.after_power_cut_of_all().open();
        assert_eq!(
            (volume.base.policy.device_reads().piece_cost(), volume.base.policy.device_reads().is_measured()),
            (PieceCost::EXPECTED, false)
        );
    }
}
