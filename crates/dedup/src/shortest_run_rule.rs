//! The rule for the shortest run worth sharing in a file, and the cost of a seek, on which it depends: what iDedup leaves
//! open (sections 3.4.3 and 5.4).
//!
//! Owns the decision: it turns how a file is read, how it lies on the device and the cost of a seek ([`SeekCost`], `k`)
//! into `run_blocks_min`. Leaves to the engine to count reads per map (`policy/read_pattern.rs`), to time requests
//! (`policy/device_reads.rs`) and to carry the decision out (`policy/run_blocks_min.rs`), and which runs there are to `detect`.
//!
//! The counts here ([`ReadPattern`]) are of recent reads and only in memory. The lasting counts in the inode, from which
//! a file's rank follows, are `Usage` in `usage`.
//!
//! The objective is the sum of lost savings and added read time, both in blocks: a block stored twice costs as much as
//! the transfer of one more block each time the file is read. A seek costs `k` blocks.
//!
//! Among adjacent blocks of the file a share `b` of the pairs lies apart even if nothing is shared, because the file was
//! written at random places. A run of `r` duplicates has `r + 1` such pairs, counting those at its ends. If the run is
//! *refused*, it is stored like the file's other blocks, and `(r + 1) * b` pairs lie apart. If it is *shared*, it is
//! contiguous elsewhere: its two ends lie apart and nothing within it. The blocks before and after it are still read in
//! one request if everything lay together, which has the probability `(1 - b) ^ (r + 1)`. So sharing adds
//!
//! `seeks(r) = 2 - (r + 1) * b - (1 - b) ^ (r + 1)`
//!
//! This is 1 where the file is contiguous, and 0 for runs of twice the mean contiguous length and more. Only a reader of
//! adjacent blocks pays for these seeks: a share `s` of the blocks read. A run is worth sharing if
//! `r >= s * k * seeks(r)`. As `seeks` falls with `r`, this holds from one length on: `s * k` where the file is
//! contiguous, at most twice the mean contiguous length where it is not, and 1 where no two adjacent blocks are read in
//! sequence.

use std::time::Duration;

/// The largest result of the rule, in blocks: longer runs are worth sharing on every device.
pub const RUN_BLOCKS_MIN_MAX: u32 = 64;

/// Blocks that count as read in sequence, and as lying together, in addition to those counted.
const PRIOR_BLOCKS: f64 = 16.0;
/// When more blocks than this are counted, all counts are halved.
const BLOCKS_COUNTED_MAX: u32 = 1 << 16;
/// The factor by which the rule's result must differ from the number in force to change it.
const STEP: f64 = 1.5;

/// A request of at most this many blocks is a seek and little else.
const SMALL_BLOCKS_MAX: u64 = 2;
/// In a request of at least this many blocks a seek no longer matters much.
const LARGE_BLOCKS_MIN: u64 = 64;
/// Device time of a batch: as long as the interval over which Linux enforces a device's limit.
const BATCH_TIME: Duration = Duration::from_millis(100);
/// Batches that the estimate uses, at most and at least.
const BATCHES: usize = 7;
const BATCHES_MIN: usize = 3;
/// The bounds of the cost in blocks.
const SEEK_BLOCKS: (f64, f64) = (2.0, 256.0);
/// The factor by which the estimate must differ from the number in force to change it.
const SEEK_STEP: f64 = 1.25;

/// How a file was read recently and how it lies in the data area, in blocks. The default is a file of which nothing is
/// known.
///
/// Invariant: `sequential + random`, and `together + apart`, exceed `BLOCKS_COUNTED_MAX` by at most one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadPattern {
    sequential: u32,
    random: u32,
    together: u32,
    apart: u32,
}

impl ReadPattern {
    /// Counts a request that read `blocks` blocks. `follows`: it began where the file's last one ended, or
    /// within it. Within a request each block follows the one before.
    pub fn read(&mut self, blocks: u32, follows: bool) {
        let jumps = u32::from(!follows).min(blocks);
        self.sequential += blocks - jumps;
        self.random += jumps;
        if self.sequential + self.random > BLOCKS_COUNTED_MAX {
            (self.sequential, self.random) = (self.sequential / 2, self.random / 2);
        }
    }

    /// Counts pairs of adjacent blocks of the file by their places in the data area: `together` are adjacent there, or
    /// apart because one of them is shared; `apart` are apart although neither is shared.
    pub fn lies(&mut self, together: u32, apart: u32) {
        self.together += together;
        self.apart += apart;
        if self.together + self.apart > BLOCKS_COUNTED_MAX {
            (self.together, self.apart) = (self.together / 2, self.apart / 2);
        }
    }

    /// The share of blocks read right after the block before them, 0 to 1.
    pub fn sequential_share(&self) -> f64 {
        let (sequential, random) = (f64::from(self.sequential), f64::from(self.random));
        (sequential + PRIOR_BLOCKS) / (sequential + random + PRIOR_BLOCKS)
    }

    /// The share of adjacent blocks that would lie apart if nothing were shared, 0 to 1.
    pub fn apart_share(&self) -> f64 {
        let (together, apart) = (f64::from(self.together), f64::from(self.apart));
        apart / (together + apart + PRIOR_BLOCKS)
    }

    /// The length from which on a run is worth sharing if a seek costs `seek_blocks` blocks: 1 to
    /// [`RUN_BLOCKS_MIN_MAX`], not rounded.
    pub fn worthwhile_run(&self, seek_blocks: f64) -> f64 {
        let price = self.sequential_share() * seek_blocks;
        let apart = self.apart_share();
        // The gain of a run of `length` blocks; between two lengths it is nearly linear.
        let (mut gain, mut is_contiguous) = (-price, 1.0 - apart);
        for length in 1..=RUN_BLOCKS_MIN_MAX {
            let length = f64::from(length);
            is_contiguous *= 1.0 - apart;
            let seeks = (2.0 - (length + 1.0) * apart - is_contiguous).max(0.0);
            let longer = length - price * seeks;
            if longer >= 0.0 {
                return (length - longer / (longer - gain)).max(1.0);
            }
            gain = longer;
        }
        f64::from(RUN_BLOCKS_MIN_MAX)
    }

    /// The file's `run_blocks_min`. `before` is the one in force, which stays until the rule's result differs clearly, so
    /// that it does not flutter; None: there is none yet.
    pub fn run_blocks_min(&self, seek_blocks: f64, before: Option<u32>) -> u32 {
        let length = self.worthwhile_run(seek_blocks);
        let is_clear = |before: &u32| length >= f64::from(*before) * STEP || length * STEP <= f64::from(*before);
        match before {
            Some(before) if length > 1.0 && !is_clear(&before) => before,
            _ => length.ceil() as u32,
        }
    }
}

/// The estimated cost of a seek, in blocks (`k` in decision 0024): the time of a request for one block divided by the time
/// per block of a large request. Made from requests that are made anyway; the engine times them.
///
/// Small and large requests are counted separately, each in batches of a fixed device time. A batch's mean includes what
/// slows any request in turn, such as a limit that lets requests pass at once and then delays one for long; the
/// median of several batches leaves out what happened once, such as a busy moment. What slows or speeds up all requests
/// alike, such as a host that caches some, cancels out of `k`.
#[derive(Clone, Debug, PartialEq)]
pub struct SeekCost {
    small: Batches,
    large: Batches,
    blocks: f64,
    is_measured: bool,
}

/// Time per unit (request or block) in the most recent batches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Batches {
    /// Seconds per unit; the oldest is replaced.
    means: [f64; BATCHES],
    closed: usize,
    time: Duration,
    units: u64,
}

impl Batches {
    /// Adds a request. Returns whether it closed a batch.
    fn add(&mut self, units: u64, time: Duration) -> bool {
        self.time = self.time.saturating_add(time);
        self.units += units;
        if self.time < BATCH_TIME {
            return false;
        }
        self.means[self.closed % BATCHES] = self.time.as_secs_f64() / self.units as f64;
        self.closed += 1;
        (self.time, self.units) = (Duration::ZERO, 0);
        true
    }

    fn median(&self) -> Option<f64> {
        let mut means = self.means;
        let known = &mut means[..self.closed.min(BATCHES)];
        known.sort_unstable_by(f64::total_cmp);
        (known.len() >= BATCHES_MIN).then(|| known[known.len() / 2])
    }
}

impl SeekCost {
    /// The expected cost before it is measured. None: the kind of the device is not known.
    ///
    /// A seek of a rotating disk costs far more than 16 blocks. But virtual disks and loop devices claim to rotate
    /// whatever is below them, and a real one is measured after some hundred requests.
    pub fn expected(is_rotational: Option<bool>) -> Self {
        let blocks = if is_rotational == Some(true) { 16.0 } else { 8.0 };
        Self { small: Batches::default(), large: Batches::default(), blocks, is_measured: false }
    }

    /// Learns that a request for `blocks` blocks took `time`. `at_once`: how many requests were under way; the device
    /// finished one of them every `time / at_once` (Little's law). Returns whether the estimate changed.
    pub fn observe(&mut self, blocks: u64, time: Duration, at_once: u32) -> bool {
        let time = time / at_once.max(1);
        let is_batch_closed = match blocks {
            1..=SMALL_BLOCKS_MAX => self.small.add(1, time),
            LARGE_BLOCKS_MIN.. => self.large.add(blocks, time),
            _ => false,
        };
        is_batch_closed && self.estimate()
    }

    fn estimate(&mut self) -> bool {
        let (Some(request), Some(block)) = (self.small.median(), self.large.median()) else { return false };
        let blocks = (request / block).clamp(SEEK_BLOCKS.0, SEEK_BLOCKS.1);
        let is_clear = blocks >= self.blocks * SEEK_STEP || blocks * SEEK_STEP <= self.blocks;
        self.is_measured = true;
        if is_clear {
            self.blocks = blocks;
        }
        is_clear
    }

    /// The cost in blocks: 2 to 256.
    pub fn blocks(&self) -> f64 {
        self.blocks
    }

    /// Whether it was measured; otherwise it is the expected cost for this kind of device.
    pub fn is_measured(&self) -> bool {
        self.is_measured
    }
}

#[cfg(test)]
mod tests;
