//! The probe of the piece cost: short reads of blocks with data, while no program makes requests. Also keeps the result
//! in the volume.
//!
//! Only blocks with data are read, because a device answers for holes and trimmed blocks without any access. The probe
//! lasts longer than a rate limit on the device lets requests pass at once, and ends when a program makes a request.
//!
//! Crash: the number is advice. If its record was not committed, the next mount probes again.

use std::time::Duration;

use oncefs_toolbox::Random;

use crate::base::part;
use crate::format::device_record::DeviceRecord;
use crate::format::group_bytes::GroupBytes;
use crate::format::keys;
use crate::place::free_blocks::FreeBlocks;
use crate::read::device::DataReader;
use crate::state::loading::Metadata;
use crate::state::published::Plan;
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
    }
}

impl DeviceProbe {
    /// Measures the piece cost if the device was not probed since the mount and there is enough data. True: it did.
    pub fn probe_if_due(&self) -> bool {
        let has_budget = self.tuning.with(|settings| settings.mount_policy().has_budget());
        let has_data = self.free_blocks.totals().used.0 >= DATA_BLOCKS_MIN;
        if !has_budget || !has_data || self.policy.device_reads().is_probed() {
            return false;
        }
        self.worker.note_doing("measuring what scattered reads cost");
        match self.probe() {
            Ok(is_complete) => {
                if is_complete {
                    self.policy.device_reads().note_probed();
                }
                is_complete
            }
            Err(error) => {
                self.policy.device_reads().note_probed();
                log::warn!("cannot measure what scattered reads cost, assuming what is usual: {error}");
                false
            }
        }
    }

    /// Makes the reads. False: a program made a request.
    fn probe(&self) -> Result<bool> {
        // Keeps the blocks from being reused while they are read.
        let _pin = self.metadata.pin();
        let mut random = Random::new(self.foreground.now().as_nanos() as u64);
        let (apart, large) = self.places(&mut random);
        if apart.len() < PIECES_FIRST || large.is_empty() {
            return Ok(true);
        }
        let mut buffer = self.data_reader.take_buffer(LARGE_BLOCKS as usize * BLOCK_BYTES);
        let now = || self.policy.device_reads().now();
        let began = now();
        for first in large.iter().cycle().take_while(|_| now() - began < TIME) {
            if self.foreground.calls() {
                return Ok(false);
            }
            self.data_reader.read_device(*first, &mut buffer)?;
        }
        let (began, mut pieces) = (now(), PIECES_FIRST);
        while now() - began < TIME {
            if self.foreground.calls() {
                return Ok(false);
            }
            let from = random.below((apart.len() - pieces + 1) as u64) as usize;
            let round = now();
            let mut blocks = self.data_reader.take_buffer(pieces * BLOCK_BYTES);
            self.data_reader.read_blocks_apart(&apart[from..from + pieces], &mut blocks)?;
            let took = now() - round;
            pieces = if took < ROUND { (2 * pieces).min(apart.len()) } else { pieces };
        }
        Ok(true)
    }

    /// Single blocks with data, far from each other and in random order, and beginnings of ranges that are all data.
    fn places(&self, random: &mut Random) -> (Vec<Pbn>, Vec<Pbn>) {
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
        let order = random.permutation(apart.len());
        (order.into_iter().map(|at| apart[at]).collect(), large)
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
    use crate::pace::stopwatch::Stopwatch;
    use crate::settings::values::Settings;
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
