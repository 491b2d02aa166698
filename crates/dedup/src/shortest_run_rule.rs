//! The rule for the shortest run worth sharing in a file: what iDedup leaves open (sections 3.4.3 and 5.4).
//!
//! Owns the decision: it turns how a file is read, how it lies on the device and the cost of a seek into
//! `run_blocks_min`. Leaves to the engine to count reads per map (`policy/read_pattern.rs`) and to carry the decision
//! out (`policy/run_blocks_min.rs`), the cost of a seek to `seek_cost`, and which runs there are to `detect`.
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

/// The largest result of the rule, in blocks: longer runs are worth sharing on every device.
pub const RUN_BLOCKS_MIN_MAX: u32 = 64;

/// Blocks that count as read in sequence, and as lying together, in addition to those counted.
const PRIOR_BLOCKS: f64 = 16.0;
/// When more blocks than this are counted, all counts are halved.
const BLOCKS_COUNTED_MAX: u32 = 1 << 16;
/// The factor by which the rule's result must differ from the number in force to change it.
const STEP: f64 = 1.5;

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

#[cfg(test)]
mod tests {
    use super::*;

    /// A seek at 4,000 requests or 100 MB per second.
    const THROTTLED: f64 = 100e6 / 4_000.0 / 4096.0;
    const SEEKS: [f64; 8] = [2.0, 3.5, THROTTLED, 8.0, 20.0, 64.0, 100.0, 256.0];

    fn of(pattern: ReadPattern, seek_blocks: f64) -> u32 {
        pattern.run_blocks_min(seek_blocks, None)
    }

    fn read(requests: u32, blocks: u32, follows: bool) -> ReadPattern {
        let mut pattern = ReadPattern::default();
        (0..requests).for_each(|_| pattern.read(blocks, follows));
        pattern
    }

    #[test]
    fn a_file_never_read_is_expected_to_be_read_in_sequence() {
        let min = of(ReadPattern::default(), THROTTLED);
        assert!(
            (4..=16).contains(&min),
            "runs of 1 to 3 are to be refused and runs of 16 shared, not those from {min}"
        );
        assert_eq!(min, THROTTLED.ceil() as u32);
        assert_eq!(of(read(1_000, 256, true), THROTTLED), min);
    }

    #[test]
    fn a_file_read_at_random_shares_every_run() {
        for seek_blocks in SEEKS {
            assert_eq!(of(read(20_000, 1, false), seek_blocks), 1, "a seek costs {seek_blocks}");
        }
        assert_eq!(of(read(100, 1, false), THROTTLED), 1);
    }

    #[test]
    fn large_requests_at_random_places_are_mostly_sequential() {
        assert_eq!(of(read(1_000, 256, false), THROTTLED), THROTTLED.ceil() as u32);
        let small = read(1_000, 4, false);
        assert!((small.sequential_share() - 0.75).abs() < 0.01, "{}", small.sequential_share());
    }

    #[test]
    fn the_number_is_never_above_two_of_the_pieces_that_the_file_lies_in() {
        for seek_blocks in SEEKS {
            for piece in [1, 2, 5, 16, 40] {
                let mut pattern = ReadPattern::default();
                (0..20_000 / piece).for_each(|_| pattern.lies(piece - 1, 1));
                let min = of(pattern, seek_blocks);
                assert!(min <= 2 * piece, "{min} in pieces of {piece}, a seek costs {seek_blocks}");
            }
        }
    }

    #[test]
    fn the_bound_holds_on_the_slowest_device() {
        for seek_blocks in [64.5, 100.0, 256.0, 1e12] {
            assert_eq!(of(ReadPattern::default(), seek_blocks), RUN_BLOCKS_MIN_MAX);
        }
        assert_eq!(of(ReadPattern::default(), 0.0), 1);
    }

    #[test]
    fn more_random_reads_more_pieces_and_cheaper_seeks_never_raise_the_number() {
        let patterns = |random: u32, apart: u32| {
            let mut pattern = ReadPattern::default();
            pattern.read(500, true);
            (0..random).for_each(|_| pattern.read(1, false));
            pattern.lies(500, apart);
            pattern
        };
        for (nth, seek_blocks) in SEEKS.into_iter().enumerate() {
            for more in [0, 1, 10, 100, 1_000, 10_000] {
                let here = patterns(more, more).worthwhile_run(seek_blocks);
                assert!(here >= patterns(more * 2, more).worthwhile_run(seek_blocks));
                assert!(here >= patterns(more, more * 2).worthwhile_run(seek_blocks));
                let cheaper = SEEKS[nth.saturating_sub(1)];
                assert!(here >= patterns(more, more).worthwhile_run(cheaper));
            }
        }
    }

    #[test]
    fn the_number_changes_by_clear_steps_only() {
        let (mut in_force, mut changes) = (None, 0);
        for n in 0..10_000 {
            // A cost that wavers by a quarter, as an estimate may.
            let seek_blocks = THROTTLED * if n % 2 == 0 { 1.0 } else { 1.25 };
            let min = ReadPattern::default().run_blocks_min(seek_blocks, in_force);
            changes += u32::from(in_force.is_some_and(|before| before != min));
            in_force = Some(min);
        }
        assert_eq!((in_force, changes), (Some(7), 0));
    }

    #[test]
    fn a_file_that_turns_to_random_reads_falls_to_one_in_a_few_steps_and_never_rises_on_the_way() {
        for seek_blocks in SEEKS {
            let (mut pattern, mut falls) = (read(100, 256, true), 0);
            let mut in_force = of(pattern, seek_blocks);
            for _ in 0..2_000_000 {
                pattern.read(1, false);
                let min = pattern.run_blocks_min(seek_blocks, Some(in_force));
                assert!(min <= in_force, "{min} after {in_force}");
                falls += u32::from(min < in_force);
                in_force = min;
            }
            assert_eq!(in_force, 1, "a seek costs {seek_blocks}");
            assert!(falls <= 11, "{falls} falls");
        }
    }

    #[test]
    fn counts_stay_bounded_and_follow_the_present() {
        let mut pattern = read(1_000_000, 256, true);
        assert!(pattern.sequential + pattern.random <= BLOCKS_COUNTED_MAX);
        (0..BLOCKS_COUNTED_MAX * 4).for_each(|_| pattern.read(1, false));
        assert!(pattern.sequential_share() < 0.1, "{}", pattern.sequential_share());
        (0..1_000_000).for_each(|_| pattern.lies(255, 1));
        assert!(pattern.together + pattern.apart <= BLOCKS_COUNTED_MAX);
        assert!((pattern.apart_share() - 1.0 / 256.0).abs() < 1e-3);
    }
}
