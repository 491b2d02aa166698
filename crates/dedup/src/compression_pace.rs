//! When `compress=auto` compresses blocks as they are written: while writers wait for the device, and not for the CPU.
//!
//! Compression pays if the device time that it saves is longer than what it takes. Both are measured, per block: how
//! long the device is busy with it, and how long compressing it takes where several requests compress at the same time.

use std::fmt;
use std::time::Duration;

/// Blocks of the average: 16 MiB of writes.
const WINDOW_BLOCKS: u64 = 4096;
/// Compression begins when it saves this much more time than it takes, and ends when it saves this much less. The gap
/// keeps a steady device from switching back and forth.
const ON_FROM: f64 = 1.25;
const OFF_BELOW: f64 = 0.8;
/// While nothing is compressed, a part of one request in this many is, to learn what it takes and saves.
const REQUESTS_PER_MEASUREMENT: u32 = 16;
/// How much the time of such a measurement of a few blocks counts against earlier ones, if it took less or more. A thread
/// that loses its CPU meanwhile measures too much, and none measures too little. The share that is saved depends on the
/// content alone and counts as `WEIGHT_OF_MORE`, whatever the time was.
const WEIGHT_OF_LESS: f64 = 0.5;
const WEIGHT_OF_MORE: f64 = 0.125;

/// The measured speeds of device and compression, and whether blocks are compressed as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CompressionPace {
    device_seconds: Option<f64>,
    compress_seconds: Option<f64>,
    saved_share: f64,
    is_on: bool,
    is_limited: bool,
    requests_since_measured: u32,
}

/// The decision about a write request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompressNow {
    /// Compress it.
    Yes,
    /// Compress a few blocks of it, only to measure.
    Measure,
    /// Leave it to the worker.
    No,
}

/// Whether compressing pays: `device_seconds` for each block that is not written, against `compress_seconds` for each
/// block. `saved_share` of the blocks are saved.
fn pays(is_on: bool, device_seconds: f64, compress_seconds: f64, saved_share: f64) -> bool {
    let factor = if is_on { OFF_BELOW } else { ON_FROM };
    device_seconds * saved_share >= compress_seconds * factor
}

impl CompressionPace {
    /// Learns that the device was busy with writing `blocks` blocks for this time.
    pub fn observe_device(&mut self, blocks: u64, time: Duration) {
        if blocks > 0 {
            let now = time.as_secs_f64() / blocks as f64;
            let before = self.device_seconds.unwrap_or(now);
            self.device_seconds = Some(before + weight_of(blocks) * (now - before));
        }
    }

    /// Learns that compressing `blocks` blocks took this time, and that `saved` blocks need not be written.
    pub fn observe_compressed(&mut self, blocks: u64, saved: u64, time: Duration) {
        debug_assert!(saved <= blocks, "{saved} of {blocks} blocks are saved");
        if blocks > 0 {
            let (share, seconds) = (saved as f64 / blocks as f64, time.as_secs_f64() / blocks as f64);
            let before = self.compress_seconds.unwrap_or(seconds);
            let weight_of_time = if seconds < before { WEIGHT_OF_LESS } else { WEIGHT_OF_MORE };
            let (share_weight, time_weight) = match self.compress_seconds {
                None => (1.0, 1.0),
                Some(_) if self.is_on => (weight_of(blocks), weight_of(blocks)),
                Some(_) => (weight_of(blocks).max(WEIGHT_OF_MORE), weight_of(blocks).max(weight_of_time)),
            };
            self.saved_share += share_weight * (share - self.saved_share);
            self.compress_seconds = Some(before + time_weight * (seconds - before));
        }
    }

    /// Decides about the next request. `is_limited`: load or energy bound the work beside writes.
    pub fn next(&mut self, is_limited: bool) -> CompressNow {
        self.is_limited = is_limited;
        let pays = |device, compress| pays(self.is_on, device, compress, self.saved_share);
        self.is_on = !is_limited && self.device_seconds.zip(self.compress_seconds).is_some_and(|(d, c)| pays(d, c));
        self.requests_since_measured += 1;
        let is_due = self.requests_since_measured >= REQUESTS_PER_MEASUREMENT || self.compress_seconds.is_none();
        match (self.is_on, is_limited, is_due) {
            (true, ..) => CompressNow::Yes,
            (false, false, true) => {
                self.requests_since_measured = 0;
                CompressNow::Measure
            }
            _ => CompressNow::No,
        }
    }

    /// Whether requests are compressed now.
    pub fn is_on(&self) -> bool {
        self.is_on
    }
}

impl fmt::Display for CompressionPace {
    /// Whether requests are compressed, and why.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let when = if self.is_on { "as blocks are written" } else { "by the worker" };
        let (Some(device), Some(compress)) = (self.device_seconds, self.compress_seconds) else {
            return write!(f, "{when}: nothing was measured yet");
        };
        if self.is_limited {
            return write!(f, "{when}: load or battery bound what is done beside writes");
        }
        let (device, compress, saved) = (device * 1e6, compress * 1e6, self.saved_share * 100.0);
        write!(
            f,
            "{when}: a block takes the device {device:.1} us, and compression {compress:.1} us to save {saved:.0} %"
        )
    }
}

/// The weight of these blocks against earlier ones.
fn weight_of(blocks: u64) -> f64 {
    blocks.min(WINDOW_BLOCKS) as f64 / WINDOW_BLOCKS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// A device that takes this long for a block, and compression that takes that long to save half.
    fn measured(device_us: u32, compress_us: u32) -> CompressionPace {
        let mut pace = CompressionPace::default();
        pace.observe_device(256, 256 * device_us * MICROSECOND);
        pace.observe_compressed(256, 128, 256 * compress_us * MICROSECOND);
        pace
    }

    #[test]
    fn it_compresses_while_the_device_is_what_takes_long() {
        assert_eq!(measured(100, 20).next(false), CompressNow::Yes);
        assert_eq!(measured(8, 20).next(false), CompressNow::No);
        assert_eq!(measured(100, 20).next(true), CompressNow::No, "load or battery");
        // It saves as much as it takes: neither begins nor ends.
        let mut pace = measured(40, 20);
        assert_eq!(pace.next(false), CompressNow::No);
        pace = CompressionPace { is_on: true, ..pace };
        assert_eq!(pace.next(false), CompressNow::Yes);
        // A device that becomes fast ends it, and one that becomes slow begins it again.
        pace.observe_device(WINDOW_BLOCKS, WINDOW_BLOCKS as u32 * 5 * MICROSECOND);
        assert_eq!(pace.next(false), CompressNow::No);
        pace.observe_device(WINDOW_BLOCKS, WINDOW_BLOCKS as u32 * 80 * MICROSECOND);
        assert_eq!(pace.next(false), CompressNow::Yes);
    }

    #[test]
    fn what_saves_nothing_is_not_compressed_on_any_device() {
        let mut pace = measured(1_000, 20);
        pace.observe_compressed(WINDOW_BLOCKS, 0, WINDOW_BLOCKS as u32 * 20 * MICROSECOND);
        assert_eq!(pace.next(false), CompressNow::No);
    }

    #[test]
    fn the_first_request_and_one_in_16_is_measured_while_nothing_is_compressed() {
        let mut pace = CompressionPace::default();
        assert_eq!(
            (pace.next(true), pace.next(false), pace.next(false)),
            (CompressNow::No, CompressNow::Measure, CompressNow::Measure)
        );
        let mut pace = measured(8, 20);
        let measured = (0..640).filter(|_| pace.next(false) == CompressNow::Measure).count();
        assert_eq!(measured, 40);
    }

    #[test]
    fn a_few_measurements_make_good_a_first_one_that_took_too_long() {
        // The first compression waits for memory, or its thread loses the CPU: 300 us a block.
        let mut pace = measured(98, 300);
        assert_eq!(pace.next(false), CompressNow::No);
        for _ in 0..4 {
            pace.observe_compressed(8, 4, 8 * 20 * MICROSECOND);
        }
        assert_eq!(pace.next(false), CompressNow::Yes);
        // One that took too long among good ones changes little.
        let mut pace = CompressionPace { is_on: false, ..measured(98, 20) };
        pace.observe_compressed(8, 4, 8 * 150 * MICROSECOND);
        assert_eq!(pace.next(false), CompressNow::Yes);
    }

    #[test]
    fn a_fast_measurement_of_a_few_blocks_does_not_decide_what_is_saved() {
        let mut pace = CompressionPace { is_on: false, ..measured(98, 20) };
        pace.observe_compressed(8, 0, 8 * 10 * MICROSECOND);
        assert_eq!(pace.saved_share, 0.5 - 0.5 / 8.0);
        assert!((pace.compress_seconds.unwrap() - 15e-6).abs() < 1e-9);
    }

    #[test]
    fn the_state_is_told_with_its_reason() {
        assert_eq!(CompressionPace::default().to_string(), "by the worker: nothing was measured yet");
        let mut pace = measured(100, 20);
        pace.next(false);
        assert_eq!(
            pace.to_string(),
            "as blocks are written: a block takes the device 100.0 us, and compression 20.0 us to save 50 %"
        );
        pace.next(true);
        assert_eq!(pace.to_string(), "by the worker: load or battery bound what is done beside writes");
    }
}
