//! Runs one scenario on one side in one repetition: measures its steps and collects their rows.

use std::path::PathBuf;

use crate::failure::Result;
use crate::measure::{Latencies, Meter, Row, Space};
use crate::piece_cost;
use crate::side::Side;
use crate::throttle::{Limits, Throttle};

/// How much a step moves, to compute throughput, limits and metadata bytes.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Operations timed one by one.
    pub operations: usize,
    /// Bytes in all.
    pub bytes: u64,
    /// Bytes of distinct new blocks; 0 for steps that only read or delete.
    pub unique_bytes: u64,
    /// Bytes of distinct places written: a block rewritten before it reaches the device need not be stored twice.
    pub places_bytes: u64,
    /// Whether the device's bytes per second limit the step, rather than requests, flushes or memory.
    pub bound_by_bytes: bool,
}

impl Work {
    /// A step that stores nothing.
    pub fn reading(operations: usize, bytes: u64) -> Work {
        Work { operations, bytes, unique_bytes: 0, places_bytes: 0, bound_by_bytes: false }
    }
}

/// The running scenario.
pub struct Case<'a> {
    side: &'a mut Side,
    repetition: usize,
    throttle: Option<Limits>,
    rows: Vec<Row>,
    /// Bytes in use when empty.
    used_empty: u64,
    /// Meters and rows of writing steps, whose device bytes grow until the next unmount.
    unsettled: Vec<(usize, Meter)>,
    notify: Box<dyn Fn(&str) + 'a>,
}

impl<'a> Case<'a> {
    /// Formats and mounts the side; calls `notify` with the name of every step.
    pub fn begin(
        side: &'a mut Side,
        repetition: usize,
        throttle: Option<Limits>,
        notify: impl Fn(&str) + 'a,
    ) -> Result<Case<'a>> {
        side.unmount()?;
        side.format()?;
        side.mount()?;
        let used_empty = side.used_bytes()?;
        let (rows, unsettled, notify) = (Vec::new(), Vec::new(), Box::new(notify));
        Ok(Case { side, repetition, throttle, rows, used_empty, unsettled, notify })
    }

    /// A path in the mounted file system.
    pub fn path(&self, name: &str) -> PathBuf {
        self.side.root().join(name)
    }

    /// Shows what happens outside of measured steps.
    pub fn note(&self, activity: &str) {
        (self.notify)(activity);
    }

    /// Measures `body`, which ends by making its writes durable.
    pub fn measure(
        &mut self,
        workload: &str,
        work: Work,
        body: impl FnOnce(&mut Latencies) -> Result<()>,
    ) -> Result<()> {
        self.note(workload);
        let mut latencies = Latencies::with_capacity(work.operations);
        let throttle = self.throttle.map(|limits| Throttle::apply(limits, self.side.device_numbers()?)).transpose()?;
        let meter = Meter::start(self.side)?;
        body(&mut latencies)?;
        let readings = meter.stop(self.side)?;
        drop(throttle);
        let seconds = readings.time.as_secs_f64();
        let mb_per_s = work.bytes as f64 / 1e6 / seconds;
        self.rows.push(Row {
            workload: workload.to_owned(),
            side: self.side.label().to_owned(),
            repetition: self.repetition,
            seconds,
            bytes: work.bytes,
            unique_bytes: work.unique_bytes,
            stored_bytes: self.stored_bytes(work),
            mb_per_s,
            latency: latencies.summary(),
            device: readings.device,
            device_written_settled: None,
            data_area_written: readings.data_area_written,
            cpu_machine_s: readings.cpu_machine_s,
            cpu_daemon_s: readings.cpu_daemon_s,
            daemon_peak_bytes: readings.daemon_peak_bytes,
            space: None,
            stored_growth: None,
            piece_cost: self.side.deduplicates().then(|| self.side.piece_cost()).transpose()?,
            limit_share: self
                .throttle
                .filter(|_| work.bound_by_bytes)
                .map(|limits| mb_per_s * 1e6 / limit_bytes_per_s(limits, work)),
        });
        if work.unique_bytes > 0 {
            self.unsettled.push((self.rows.len() - 1, meter));
        }
        Ok(())
    }

    fn stored_bytes(&self, work: Work) -> Option<u64> {
        match work.unique_bytes {
            0 => None,
            unique if self.side.deduplicates() => Some(unique),
            _ => Some(work.places_bytes),
        }
    }

    /// Lets oncefs measure what a piece costs on the limited device, as it would in use.
    pub fn learn_piece_cost(&self) -> Result<()> {
        let Some(limits) = self.throttle.filter(|_| self.side.deduplicates()) else { return Ok(()) };
        self.note("learning what a piece costs");
        piece_cost::learn(self.side, limits)
    }

    /// Lets a side that deduplicates process what it skipped; its device bytes count towards the steps so far.
    pub fn deduplicate(&mut self) -> Result<()> {
        if self.side.deduplicates() {
            self.note("deduplicating out-of-line");
            self.side.ask("dedup", &["--now"])?;
        }
        Ok(())
    }

    /// Adds to the last step the space that its files use, once everything has settled.
    pub fn note_space(&mut self, blocks_bytes: u64, distinct_bytes: u64) -> Result<()> {
        let used_bytes = self.side.used_bytes()?.saturating_sub(self.used_empty);
        if let Some(row) = self.rows.last_mut() {
            row.space = Some(Space { used_bytes, blocks_bytes, distinct_bytes });
        }
        Ok(())
    }

    /// Bytes that the data area of a volume holds now.
    pub fn data_area_bytes(&self) -> Result<Option<u64>> {
        self.side.stored_bytes()
    }

    /// Adds to the last step by how much the data area has grown since it held `before`.
    pub fn note_growth(&mut self, before: Option<u64>) -> Result<()> {
        let now = self.side.stored_bytes()?;
        if let Some(row) = self.rows.last_mut() {
            row.stored_growth = now.zip(before).map(|(now, before)| now.saturating_sub(before));
        }
        Ok(())
    }

    /// Unmounts, drops caches and mounts again; writes that the steps so far deferred count towards them.
    pub fn remount_cold(&mut self) -> Result<()> {
        self.settle()?;
        self.side.remount_cold()
    }

    fn settle(&mut self) -> Result<()> {
        if self.unsettled.is_empty() {
            return Ok(());
        }
        self.side.unmount()?;
        let now = self.side.device_bytes()?;
        for (row, meter) in self.unsettled.drain(..) {
            self.rows[row].device_written_settled = Some(now.since(meter.device_at_start()).written);
        }
        Ok(())
    }

    /// Unmounts and returns the rows.
    pub fn finish(mut self) -> Result<Vec<Row>> {
        self.settle()?;
        self.side.unmount()?;
        Ok(self.rows)
    }
}

/// Bytes per second that the throttled device allows, as every distinct block has to be written once.
fn limit_bytes_per_s(limits: Limits, work: Work) -> f64 {
    match work.unique_bytes {
        0 => limits.read_bytes as f64,
        unique => limits.write_bytes as f64 * work.bytes as f64 / unique as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::throttle::SLOW_DISK;

    #[test]
    fn three_duplicates_in_four_raise_the_limit_fourfold() {
        let work =
            Work { operations: 4, bytes: 4 << 20, unique_bytes: 1 << 20, places_bytes: 4 << 20, bound_by_bytes: true };
        assert_eq!(limit_bytes_per_s(SLOW_DISK, work), 160e6);
        assert_eq!(limit_bytes_per_s(SLOW_DISK, Work::reading(1, 4096)), 100e6);
    }
}
