//! What reads cost on a device: the lengths of disk requests, and how long clients wait.
//!
//! The model is two numbers: what a request costs whatever its length, and what each of its blocks costs. Nothing
//! queues, and a seek is a seek however far it goes.

use std::collections::BTreeMap;

use oncefs_dedup::PieceCost;

/// Microseconds that a request takes outside the device: network and processing.
const OUTSIDE_US: f64 = 200.0;

/// A device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceModel {
    /// In few words.
    pub name: &'static str,
    /// Cost of a request besides its blocks, microseconds: seek and rotation, or the reciprocal of the IOPS.
    pub request_us: f64,
    /// Cost of a block, microseconds.
    pub block_us: f64,
}

/// A disk as in iDedup's testbed: 10,000 rpm, 4.7 ms mean seek, 3 ms half a rotation, 70 MB/s.
pub const DISK: DeviceModel = DeviceModel { name: "hard disk", request_us: 7_700.0, block_us: 58.5 };
/// 4,000 IOPS and 100 MB/s: a throttled volume of a cloud.
pub const THROTTLED: DeviceModel = DeviceModel { name: "4,000 IOPS, 100 MB/s", request_us: 250.0, block_us: 41.0 };
/// 500,000 IOPS and 3 GB/s.
pub const FAST: DeviceModel = DeviceModel { name: "fast SSD", request_us: 2.0, block_us: 1.37 };
/// 12,000 IOPS and 250 MB/s: the flash of a phone or a small board.
pub const EMMC: DeviceModel = DeviceModel { name: "eMMC", request_us: 83.0, block_us: 16.4 };
/// All of them.
pub const DEVICES: [DeviceModel; 4] = [DISK, THROTTLED, FAST, EMMC];
/// What handing a block to a program takes besides.
const HANDING_OVER_US: f64 = 2.0;

impl DeviceModel {
    /// What a request costs, in blocks that could be read meanwhile.
    pub fn request_blocks(&self) -> f64 {
        self.request_us / self.block_us
    }

    /// What a piece more costs a reader, as `oncefs-dedup` counts it.
    pub fn piece_cost(&self) -> PieceCost {
        PieceCost::of_blocks(self.request_us / (self.block_us + HANDING_OVER_US))
    }

    fn ms(&self, requests: f64, blocks: f64) -> f64 {
        (requests * self.request_us + blocks * self.block_us) / 1e3
    }
}

/// Disk requests, and the blocks in them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskWork {
    /// Requests.
    pub requests: u32,
    /// Blocks of all of them.
    pub blocks: u32,
}

/// What became of the reads of a trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReadOutcome {
    /// Blocks that clients asked for.
    pub blocks: u64,
    /// Of these: in the buffer cache already.
    pub hits: u64,
    /// Clients' requests by what they waited for.
    pub waits: BTreeMap<DiskWork, u64>,
    /// Disk requests by their blocks, what is read ahead included.
    pub disk_requests: BTreeMap<u32, u64>,
}

impl ReadOutcome {
    /// Of the blocks asked for, those found in the buffer cache.
    pub fn hit_percent(&self) -> f64 {
        100.0 * self.hits as f64 / self.blocks.max(1) as f64
    }

    /// Disk requests of at most so many blocks, percent of all.
    pub fn percent_at_most(&self, blocks: u32) -> f64 {
        let small: u64 = self.disk_requests.range(..=blocks).map(|(_, count)| count).sum();
        100.0 * small as f64 / self.disk_requests.values().sum::<u64>().max(1) as f64
    }

    /// How long the device is busy.
    pub fn busy_ms(&self, device: &DeviceModel) -> f64 {
        self.disk_requests.iter().map(|(blocks, count)| *count as f64 * device.ms(1.0, f64::from(*blocks))).sum()
    }

    /// How long a client waits on average.
    pub fn response_ms(&self, device: &DeviceModel) -> f64 {
        let sum: f64 = self.responses(device).map(|(ms, count)| ms * count as f64).sum();
        sum / self.waits.values().sum::<u64>().max(1) as f64
    }

    /// Clients' requests answered within so many milliseconds, percent of all.
    pub fn percent_within(&self, device: &DeviceModel, ms: f64) -> f64 {
        let within: u64 = self.responses(device).filter(|(response, _)| *response <= ms).map(|(_, count)| count).sum();
        100.0 * within as f64 / self.waits.values().sum::<u64>().max(1) as f64
    }

    fn responses(&self, device: &DeviceModel) -> impl Iterator<Item = (f64, u64)> {
        self.waits.iter().map(|(work, count)| {
            (OUTSIDE_US / 1e3 + device.ms(f64::from(work.requests), f64::from(work.blocks)), *count)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_requests_and_blocks_at_their_price() {
        let device = DeviceModel { name: "", request_us: 1_000.0, block_us: 10.0 };
        let waits = [(DiskWork::default(), 3), (DiskWork { requests: 2, blocks: 5 }, 1)].into();
        let outcome = ReadOutcome { blocks: 8, hits: 6, waits, disk_requests: [(1, 2), (9, 2)].into() };
        assert_eq!((outcome.hit_percent(), outcome.percent_at_most(8), device.request_blocks()), (75.0, 50.0, 100.0));
        assert!((outcome.busy_ms(&device) - 4.2).abs() < 1e-9);
        assert!((outcome.response_ms(&device) - (4.0 * 0.2 + 2.05) / 4.0).abs() < 1e-9);
        assert_eq!([0.1, 0.2, 3.0].map(|ms| outcome.percent_within(&device, ms)), [0.0, 75.0, 100.0]);
    }

    #[test]
    fn the_devices_differ_in_what_a_request_costs() {
        let blocks = DEVICES.map(|device| device.request_blocks().round());
        assert_eq!(blocks, [132.0, 6.0, 1.0, 5.0]);
        let pieces = DEVICES.map(|device| (device.piece_cost().blocks() * 10.0).round() / 10.0);
        assert_eq!(pieces, [127.3, 5.8, 0.6, 4.5]);
    }
}
