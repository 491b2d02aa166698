//! Twins of the two traces of iDedup's section 5, and of trace 6 of SmartDedup's Table 1 where its runs matter.
//!
//! What the papers state is met; what they do not is chosen here, once per twin. `docs/sim.md` says which is which.

use std::time::Duration;

use super::distance::Distance;
use super::filer::FilerSpec;
use super::twins::TWINS;

/// Blocks of 4096 bytes in a GB of the papers' (10^9 bytes).
const BLOCKS_PER_GB: f64 = 1e9 / 4096.0;
const SECONDS_PER_DAY: u64 = 86_400;
/// Of the files that are not stitched, those that are paged.
const PAGED: f64 = 0.05;
/// Median 1 MiB.
const PAGED_BLOCKS: Distance = Distance::LogNormal { median: 256.0, sigma: 1.7 };
/// Spread of all distances: 2.7 as in [`super::twins`], 2 for files that come again.
const REUSE_SIGMA: f64 = 2.7;
const REREAD_SIGMA: f64 = 2.0;

/// A trace whose runs of duplicates are known. Distances are those of the whole trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FilerTwin {
    /// As the paper calls it.
    pub name: &'static str,
    /// Written, GB.
    pub written_gb: f64,
    /// Write requests.
    pub writes: f64,
    /// Read, GB.
    pub read_gb: f64,
    /// Read requests.
    pub reads: f64,
    /// From the first request to the last.
    pub days: u64,
    /// Duplicates in runs of 1, of 2 and 3, of 4 to 7 blocks; of the blocks written.
    pub short: [f64; 3],
    /// Duplicates in longer runs.
    pub long: f64,
    /// Mean new blocks between two short runs.
    pub between_short_blocks: f64,
    /// Mean blocks of those.
    pub long_run_blocks: f64,
    /// How far back a duplicate's source lies: the median, in blocks written.
    pub reuse_blocks: f64,
    /// Blocks written to places that hold something.
    pub overwrites: f64,
    /// Median size of the streamed files.
    pub streamed_blocks: f64,
    /// Of the stitched files, those that are paged.
    pub stitched_paged: f64,
    /// How many bursts ago a streamed file was used last that is read next: the median.
    pub reread: f64,
    /// The same of paged files.
    pub reread_paged: f64,
}

/// "Corporate departments' data (MS Office, MS Access, VM images)".
pub const CORPORATE: FilerTwin = FilerTwin {
    name: "Corporate",
    written_gb: 80.3,
    writes: 3_968_452.0,
    read_gb: 203.8,
    reads: 19_876_155.0,
    days: 45,
    short: [0.042, 0.020, 0.050],
    long: 0.130,
    between_short_blocks: 3.0,
    long_run_blocks: 64.0,
    reuse_blocks: 4e6,
    overwrites: 0.3,
    streamed_blocks: 16.0,
    stitched_paged: 0.25,
    reread: 300_000.0,
    reread_paged: 150.0,
};
/// "Engineering departments' data (user home dirs, source code)".
pub const ENGINEERING: FilerTwin = FilerTwin {
    name: "Engineering",
    written_gb: 91.7,
    writes: 4_416_026.0,
    read_gb: 192.1,
    reads: 23_818_465.0,
    days: 45,
    short: [0.067, 0.020, 0.019],
    long: 0.124,
    between_short_blocks: 3.0,
    long_run_blocks: 64.0,
    reuse_blocks: 6e6,
    overwrites: 0.3,
    streamed_blocks: 16.0,
    stitched_paged: 0.7,
    reread: 50_000.0,
    reread_paged: 60.0,
};
/// Of SmartDedup's Table 1: GB written in trace 6.
const PHONE_GB: f64 = TWINS[5].total_gb / (1.0 + TWINS[5].read_write_ratio);
/// SmartDedup's trace 6, with runs as its figure 12 implies.
pub const PHONE: FilerTwin = FilerTwin {
    name: "trace 6",
    written_gb: PHONE_GB,
    writes: PHONE_GB * BLOCKS_PER_GB / 2.5,
    read_gb: 0.0,
    reads: 0.0,
    days: TWINS[5].days,
    short: [0.003, 0.006, 0.001],
    long: 0.273,
    between_short_blocks: 8.0,
    long_run_blocks: 384.0,
    reuse_blocks: 600_000.0,
    overwrites: 1.0 - TWINS[5].unique_addresses_gb / PHONE_GB,
    streamed_blocks: 128.0,
    stitched_paged: 0.5,
    reread: 3_000.0,
    reread_paged: 128.0,
};

impl FilerTwin {
    /// The twin at one `scale`-th of the trace's size: blocks and distances shrink alike, files keep their sizes.
    pub fn spec(&self, scale: u64, seed: u64) -> FilerSpec {
        let factor = 1.0 / scale as f64;
        let [written, read] = [self.written_gb, self.read_gb].map(|gb| gb * BLOCKS_PER_GB);
        let spread = |median, sigma| Distance::LogNormal { median, sigma };
        FilerSpec {
            written_blocks: (written * factor) as u64,
            read_blocks: (read * factor) as u64,
            write_blocks: written / self.writes,
            read_request_blocks: if self.reads > 0.0 { read / self.reads } else { 1.0 },
            short: self.short,
            long: self.long,
            long_run_blocks: self.long_run_blocks,
            between_short_blocks: self.between_short_blocks,
            reuse: spread(self.reuse_blocks * factor, REUSE_SIGMA),
            overwrites: self.overwrites,
            streamed_blocks: spread(self.streamed_blocks, 1.7),
            paged_blocks: PAGED_BLOCKS,
            paged: PAGED,
            stitched_paged: self.stitched_paged,
            reread: spread(self.reread * factor, REREAD_SIGMA),
            reread_paged: spread(self.reread_paged * factor, REREAD_SIGMA),
            duration: Duration::from_secs(self.days * SECONDS_PER_DAY),
            seed,
        }
    }
}
