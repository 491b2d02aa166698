//! Twins of the six phone traces of SmartDedup's Table 1: made traces with the same published figures.
//!
//! Table 1 gives volumes, duplicates and unique addresses, not when contents come again. That is taken from the one hit
//! ratio which the paper states together with the memory: its memory level alone finds 6.7 of trace 1's 21.9 % with 1 MB,
//! 33 thousand fingerprints. A log-normal distance with the median and deviation below lets an exact LRU of as many
//! find as much in the twin.

use std::time::Duration;

use super::distance::Distance;
use super::mixed::MixedSpec;

const SECONDS_PER_DAY: u64 = 86_400;
/// Blocks of 4096 bytes in a GB of the paper's (10^9 bytes).
const BLOCKS_PER_GB: f64 = 1e9 / 4096.0;
/// Of the reuse distance, at full scale.
const REUSE: Distance = Distance::LogNormal { median: 600_000.0, sigma: 2.7 };
/// Of the age of an overwritten address, at full scale. Not published: the page cache takes what is overwritten within
/// seconds, so 1 GiB of writes in the median, spread as wide as reuse.
const AGE: Distance = Distance::LogNormal { median: 262_144.0, sigma: 2.7 };
/// Mean blocks per run. Not published: 16 KiB.
const RUN_BLOCKS: f64 = 4.0;
/// Blocks per request at most: 128 KiB, what Linux writes back at once on such devices.
const REQUEST_BLOCKS_MAX: u64 = 32;

/// A row of Table 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Twin {
    /// Number of the trace, from 1.
    pub trace: usize,
    /// Read and written, GB.
    pub total_gb: f64,
    /// Reads per write.
    pub read_write_ratio: f64,
    /// Days.
    pub days: u64,
    /// Written to addresses counted once, GB.
    pub unique_addresses_gb: f64,
    /// Written with contents counted once, GB.
    pub unique_data_gb: f64,
    /// Blocks whose content was written before, percent of those written.
    pub duplicates_percent: f64,
}

/// Table 1.
pub const TWINS: [Twin; 6] = [
    twin(1, 2096.8, 7.5, 173, 148.2, 192.7, 21.9),
    twin(2, 773.6, 3.4, 85, 36.3, 96.2, 45.3),
    twin(3, 426.7, 4.8, 73, 34.6, 56.5, 23.2),
    twin(4, 2385.6, 5.8, 145, 101.2, 184.2, 47.5),
    twin(5, 1119.7, 3.4, 92, 126.7, 148.6, 41.6),
    twin(6, 765.9, 3.4, 72, 23.9, 124.8, 28.3),
];

const fn twin(
    trace: usize,
    total_gb: f64,
    read_write_ratio: f64,
    days: u64,
    unique_addresses_gb: f64,
    unique_data_gb: f64,
    duplicates_percent: f64,
) -> Twin {
    Twin { trace, total_gb, read_write_ratio, days, unique_addresses_gb, unique_data_gb, duplicates_percent }
}

impl Twin {
    /// Written, GB.
    pub fn written_gb(&self) -> f64 {
        self.total_gb / (1.0 + self.read_write_ratio)
    }

    /// Share of blocks that go to an address written before, 0 to 1.
    pub fn overwrites(&self) -> f64 {
        1.0 - self.unique_addresses_gb / self.written_gb()
    }

    /// The twin at one `scale`-th of the trace's size: blocks, addresses and distances shrink alike.
    pub fn spec(&self, scale: u64, seed: u64) -> MixedSpec {
        let factor = 1.0 / scale as f64;
        MixedSpec {
            blocks: (self.written_gb() * BLOCKS_PER_GB * factor) as u64,
            duplicates: self.duplicates_percent / 100.0,
            overwrites: self.overwrites(),
            reuse: REUSE.scaled(factor),
            age: AGE.scaled(factor),
            run_blocks: RUN_BLOCKS,
            request_blocks_max: REQUEST_BLOCKS_MAX,
            duration: Duration::from_secs(self.days * SECONDS_PER_DAY),
            seed: seed + self.trace as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_table_1_agree_with_themselves() {
        for twin in TWINS {
            let implied = 100.0 * (1.0 - twin.unique_data_gb / twin.written_gb());
            let stated = twin.duplicates_percent;
            assert!((implied - stated).abs() < 0.4, "trace {}: {implied} % of {stated} %", twin.trace);
            twin.spec(64, 1).check().unwrap();
        }
    }
}
