//! Measures one step: time, latencies, device bytes, CPU seconds, peak memory.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::failure::Result;
use crate::loop_device::DeviceBytes;
use crate::machine;
use crate::side::{PieceCost, Side};
use crate::signal;

/// Times of single operations.
pub struct Latencies(Vec<u64>);

impl Latencies {
    /// Room for `operations` times, touched so that recording does not fault pages in.
    pub fn with_capacity(operations: usize) -> Latencies {
        let mut nanoseconds = vec![1; operations];
        nanoseconds.clear();
        Latencies(nanoseconds)
    }

    /// Runs `operation` for every index below `count` and records how long each took.
    pub fn each(&mut self, count: usize, mut operation: impl FnMut(usize) -> Result<()>) -> Result<()> {
        let mut before = Instant::now();
        for index in 0..count {
            signal::check()?;
            operation(index)?;
            let now = Instant::now();
            self.0.push(now.duration_since(before).as_nanos() as u64);
            before = now;
        }
        Ok(())
    }

    /// Runs one `operation` and records how long it took.
    pub fn one<T>(&mut self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        self.one_late(Duration::ZERO, operation)
    }

    /// The same for an operation that begins so much `late`, which is part of its time.
    pub fn one_late<T>(&mut self, late: Duration, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = Instant::now();
        let result = operation()?;
        self.0.push((late + began.elapsed()).as_nanos() as u64);
        Ok(result)
    }

    /// The times in microseconds up to which these shares (0 to 1) of the operations took; none without operations.
    pub fn percentiles_us(&mut self, shares: &[f64]) -> Vec<f64> {
        self.0.sort_unstable();
        let Some(last) = self.0.len().checked_sub(1) else { return Vec::new() };
        shares.iter().map(|share| self.0[(last as f64 * share).round() as usize] as f64 / 1000.0).collect()
    }

    /// Adds the times that another thread recorded.
    pub fn join(&mut self, other: &Latencies) {
        self.0.extend_from_slice(&other.0);
    }

    /// The recorded times in figures.
    pub fn summary(mut self) -> Option<LatencySummary> {
        self.0.sort_unstable();
        let last = self.0.len().checked_sub(1)?;
        let at = |share: f64| self.0[(last as f64 * share).round() as usize] as f64 / 1000.0;
        let total: u64 = self.0.iter().sum();
        Some(LatencySummary {
            operations: self.0.len(),
            mean_us: total as f64 / 1000.0 / self.0.len() as f64,
            p50_us: at(0.5),
            p95_us: at(0.95),
            p995_us: at(0.995),
            max_us: at(1.0),
        })
    }
}

/// Latency figures in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Operations timed.
    pub operations: usize,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99.5th percentile.
    pub p995_us: f64,
    /// The slowest.
    pub max_us: f64,
}

/// What files take.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Space {
    /// Bytes that the file system has in use beyond what it had when empty, its metadata included.
    pub used_bytes: u64,
    /// Bytes of blocks that the files consist of.
    pub blocks_bytes: u64,
    /// Bytes of their distinct contents.
    pub distinct_bytes: u64,
}

/// One measured step of one file system in one repetition: a raw row of the output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// What was done.
    pub workload: String,
    /// On which side.
    pub side: String,
    /// In which repetition, from 0.
    pub repetition: usize,
    /// Wall-clock time, ending after the final fsync.
    pub seconds: f64,
    /// Bytes moved by the program.
    pub bytes: u64,
    /// Bytes that had to be stored, were every block stored once; 0 for reads.
    pub unique_bytes: u64,
    /// Bytes that this side has to store: distinct contents if it deduplicates, else distinct places; none for reads.
    pub stored_bytes: Option<u64>,
    /// Megabytes (10^6) per second.
    pub mb_per_s: f64,
    /// Latencies of single operations.
    pub latency: Option<LatencySummary>,
    /// Device bytes up to the end of the timed region.
    pub device: DeviceBytes,
    /// Device bytes written up to the next unmount, for steps that write.
    pub device_written_settled: Option<u64>,
    /// Growth of oncefs's own counter of bytes written to the data area.
    pub data_area_written: Option<u64>,
    /// CPU seconds of the whole machine.
    pub cpu_machine_s: f64,
    /// CPU seconds of the file system's daemon.
    pub cpu_daemon_s: Option<f64>,
    /// Peak resident bytes of the daemon.
    pub daemon_peak_bytes: Option<u64>,
    /// The space that the written files use, if it was measured.
    pub space: Option<Space>,
    /// By how much the volume's data area grew, if that was measured.
    pub stored_growth: Option<u64>,
    /// What a piece costs on this side, as oncefs knows it after the step.
    pub piece_cost: Option<PieceCost>,
    /// Throughput as a share of what the throttled device allows for this data set.
    pub limit_share: Option<f64>,
}

/// Readings at the beginning of a step.
pub struct Meter {
    device: DeviceBytes,
    data_area: Option<u64>,
    cpu_machine_s: f64,
    cpu_daemon_s: Option<f64>,
    daemon: Option<u32>,
    started: Instant,
}

/// Differences at the end of a step.
pub struct Readings {
    /// Wall-clock time.
    pub time: Duration,
    /// Device bytes.
    pub device: DeviceBytes,
    /// See [`Row::data_area_written`].
    pub data_area_written: Option<u64>,
    /// See [`Row::cpu_machine_s`].
    pub cpu_machine_s: f64,
    /// See [`Row::cpu_daemon_s`].
    pub cpu_daemon_s: Option<f64>,
    /// See [`Row::daemon_peak_bytes`].
    pub daemon_peak_bytes: Option<u64>,
}

impl Meter {
    /// Reads everything once and starts the clock last.
    pub fn start(side: &Side) -> Result<Meter> {
        let daemon = side.daemon();
        daemon.map(machine::reset_peak_memory).transpose()?;
        // Asking oncefs starts a process: that comes before the readings it would disturb.
        let data_area = side.data_area_written()?;
        Ok(Meter {
            device: side.device_bytes()?,
            data_area,
            cpu_machine_s: machine::cpu_seconds_machine()?,
            cpu_daemon_s: daemon.map(machine::cpu_seconds_process).transpose()?,
            daemon,
            started: Instant::now(),
        })
    }

    /// Device bytes at the beginning.
    pub fn device_at_start(&self) -> DeviceBytes {
        self.device
    }

    /// Stops the clock first and reads everything again.
    pub fn stop(&self, side: &Side) -> Result<Readings> {
        let time = self.started.elapsed();
        let cpu_machine_s = machine::cpu_seconds_machine()? - self.cpu_machine_s;
        let cpu_daemon_s = self.daemon.map(machine::cpu_seconds_process).transpose()?;
        let device = side.device_bytes()?.since(self.device);
        let data_area = side.data_area_written()?;
        Ok(Readings {
            time,
            device,
            data_area_written: data_area.zip(self.data_area).map(|(now, before)| now - before),
            cpu_machine_s,
            cpu_daemon_s: cpu_daemon_s.zip(self.cpu_daemon_s).map(|(now, before)| now - before),
            daemon_peak_bytes: self.daemon.map(machine::peak_memory_bytes).transpose()?,
        })
    }
}

/// Rows for tests.
#[cfg(test)]
pub mod testing {
    use super::*;

    /// Ten blocks in so many seconds.
    pub fn row(workload: &str, side: &str, repetition: usize, seconds: f64) -> Row {
        let latency =
            LatencySummary { operations: 10, mean_us: 1.0, p50_us: 1.0, p95_us: 2.0, p995_us: 3.0, max_us: 4.0 };
        Row {
            workload: workload.to_owned(),
            side: side.to_owned(),
            repetition,
            seconds,
            bytes: 40960,
            unique_bytes: 40960,
            stored_bytes: Some(40960),
            mb_per_s: 0.04096 / seconds,
            latency: Some(latency),
            device: DeviceBytes { read: 0, written: 40960 },
            device_written_settled: Some(41960),
            data_area_written: None,
            cpu_machine_s: 0.1,
            cpu_daemon_s: None,
            daemon_peak_bytes: None,
            space: None,
            stored_growth: None,
            piece_cost: None,
            limit_share: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_come_from_the_sorted_times() {
        let mut latencies = Latencies::with_capacity(4);
        latencies.0.extend((1..=1000u64).rev().map(|us| us * 1000));
        let summary = latencies.summary().unwrap();
        assert_eq!((summary.p50_us, summary.p95_us, summary.p995_us, summary.max_us), (501.0, 950.0, 995.0, 1000.0));
        assert_eq!(summary.mean_us, 500.5);
    }

    #[test]
    fn no_operations_have_no_latency() {
        assert_eq!(Latencies::with_capacity(8).summary(), None);
    }
}
