//! The budget of a file: how many pieces sharing may add to it. iDedup leaves this open (sections 3.4.3 and 5.4).
//!
//! Owns the account of one file, and the cost of its pieces to its readers. Leaves to `within` which runs the budget is
//! spent on, to `piece_cost` how the cost is measured, and to the engine to keep accounts (`policy/accounts.rs`).
//!
//! A **piece** is a range of the data area that is read for the file apart from the rest of it. Reading a file of `n`
//! blocks in one piece takes the time of `k + n` blocks, where `k` ([`PieceCost`]) is what one more piece adds. Sharing
//! may make that longer by the share `r` ([`Slowdown`]), so it may add `r * (k + n) / k` pieces. New blocks are written
//! together, even if shared ones lie between them in the file, and one request reads them together. So a shared run
//! adds one piece, not two.

use std::fmt;

/// Reading over a gap costs at most this fraction of a piece, so the gap is not counted.
const GAPS_PER_PIECE: f64 = 4.0;
/// A longer gap is never read over, whatever a piece costs.
const GAP_BLOCKS_MAX: u64 = 8;
/// Longer runs are worth a piece on every device.
const RUN_BLOCKS_MAX: u32 = 64;

/// How much longer a cold read of a whole file in sequence may take because its blocks are shared, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slowdown(pub u32);

impl Slowdown {
    /// The largest value that can be set. Beyond it, set no limit.
    pub const PERCENT_MAX: u32 = 1_000;
}

impl fmt::Display for Slowdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The time that one more separate piece adds to a request whose parts are read in parallel, in blocks of sequential
/// reading: `k`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct PieceCost(f64);

impl PieceCost {
    /// The bounds of the estimate: decisions treat every device as within them.
    pub const BLOCKS: (f64, f64) = (0.05, 4_096.0);
    /// The cost assumed for a device that was not measured yet and does not turn: an SSD. On a costlier device, sharing
    /// stops once the cost is measured.
    pub const EXPECTED: Self = Self(1.0);
    /// The cost assumed for a device that turns: 8 ms for a piece, 60 us for a block. On a cheaper device, the worker looks
    /// again at what was refused once the cost is measured.
    pub const EXPECTED_OF_TURNING: Self = Self(128.0);

    /// The cost to assume until it is measured.
    pub fn expected(device_turns: bool) -> Self {
        if device_turns { Self::EXPECTED_OF_TURNING } else { Self::EXPECTED }
    }

    /// The cost in blocks, clamped to the bounds. NaN counts as the upper bound.
    pub fn of_blocks(blocks: f64) -> Self {
        if blocks.is_nan() { Self(Self::BLOCKS.1) } else { Self(blocks.clamp(Self::BLOCKS.0, Self::BLOCKS.1)) }
    }

    /// The cost in blocks.
    pub fn blocks(self) -> f64 {
        self.0
    }

    /// Two ranges with at most this many blocks between them are one piece: the blocks between are read too.
    pub fn gap_blocks_max(self) -> u64 {
        ((self.0 / GAPS_PER_PIECE) as u64).min(GAP_BLOCKS_MAX)
    }

    /// The shortest run length at which a file could be shared as a whole: 1 to 64 blocks.
    pub fn run_blocks_min(self, slowdown: Slowdown) -> u32 {
        let blocks = self.0 * 100.0 / f64::from(slowdown.0);
        if blocks >= f64::from(RUN_BLOCKS_MAX) { RUN_BLOCKS_MAX } else { (blocks.ceil() as u32).max(1) }
    }
}

/// The account of one file: a token bucket. Each block adds to it and each piece takes from it. It keeps both numbers
/// instead of their difference, so that it stays right when the limit or the cost of a piece changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePieces {
    /// Blocks of the file.
    pub blocks: u64,
    /// Pieces that sharing added.
    pub pieces: u64,
}

impl FilePieces {
    /// The account of a file with `blocks` blocks in `pieces` pieces. The first piece is free: the file needs it
    /// anyway.
    pub fn of_file(blocks: u64, pieces: u64) -> Self {
        Self { blocks, pieces: pieces.saturating_sub(1) }
    }

    /// How many pieces sharing may add to the file as a whole.
    pub fn pieces_max(&self, slowdown: Slowdown, cost: PieceCost) -> u64 {
        let share = f64::from(slowdown.0) / 100.0;
        // The tiny addend makes up for rounding errors below a whole number.
        (share * (1.0 + self.blocks as f64 / cost.blocks()) + 1e-9) as u64
    }

    /// How many pieces may still be added, if the whole file is known.
    pub fn left(&self, slowdown: Slowdown, cost: PieceCost) -> u64 {
        self.pieces_max(slowdown, cost).saturating_sub(self.pieces)
    }

    /// How many pieces this many blocks pay for by themselves. If every part of a file has no more than its blocks pay
    /// for, the whole file has no more than it may have.
    pub fn paid_by(blocks: u64, slowdown: Slowdown, cost: PieceCost) -> u64 {
        let share = f64::from(slowdown.0) / 100.0;
        (share * blocks as f64 / cost.blocks() + 1e-9) as u64
    }

    /// How many pieces a writer may still add. The writer does not know yet where the file ends. It may add at least
    /// the first piece, as the file may turn out to be a single piece.
    pub fn left_so_far(&self, slowdown: Slowdown, cost: PieceCost) -> u64 {
        self.pieces_max(slowdown, cost).max(1).saturating_sub(self.pieces)
    }

    /// Adds blocks to the file, and the pieces that its shared blocks added.
    pub fn grow(&mut self, blocks: u64, pieces: u64) {
        self.blocks = self.blocks.saturating_add(blocks);
        self.pieces = self.pieces.saturating_add(pieces);
    }

    /// How much longer the file takes to read than in one piece, in percent.
    pub fn slowdown_percent(&self, cost: PieceCost) -> f64 {
        100.0 * self.pieces as f64 * cost.blocks() / (cost.blocks() + self.blocks as f64)
    }
}

/// Counts the pieces of a file whose runs come in the order of the file.
#[derive(Clone, Debug, Default)]
pub struct PieceCounter {
    /// Ends of recent pieces, newest first. Pieces that one request reads together may alternate in the file.
    ends: [u64; Self::ENDS],
    pieces: u64,
}

impl PieceCounter {
    const ENDS: usize = 32;

    /// Counts a run that starts at block `first` of the data area. True if it is a piece of its own.
    pub fn add(&mut self, first: u64, blocks: u64, gap_blocks_max: u64) -> bool {
        debug_assert!(blocks > 0, "a run has at least one block");
        let goes_on = |end: &u64| *end > 0 && (*end..=*end + gap_blocks_max).contains(&first);
        let found = self.ends.iter().position(goes_on);
        self.ends[..=found.unwrap_or(Self::ENDS - 1)].rotate_right(1);
        self.ends[0] = first + blocks;
        self.pieces += u64::from(found.is_none());
        found.is_none()
    }

    /// Pieces so far.
    pub fn pieces(&self) -> u64 {
        self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SSD: PieceCost = PieceCost(0.5);
    const DISK: PieceCost = PieceCost(100.0);

    #[test]
    fn the_slowdown_of_what_may_be_added_is_at_most_the_one_that_is_set() {
        for cost in [SSD, PieceCost(5.1), DISK] {
            for percent in [0, 1, 10, 100, 250] {
                for blocks in [1, 2, 17, 1_000, 1 << 20] {
                    let mut file = FilePieces::of_file(blocks, 1);
                    file.pieces = file.pieces_max(Slowdown(percent), cost);
                    let slowdown = file.slowdown_percent(cost);
                    assert!(slowdown <= f64::from(percent) + 1e-6, "{file:?} {cost:?}: {slowdown}, not {percent}");
                    file.pieces += 1;
                    assert!(file.slowdown_percent(cost) > f64::from(percent), "{file:?} {cost:?}: one more fits");
                }
            }
        }
    }

    #[test]
    fn a_writer_may_add_one_piece_at_first_and_then_as_many_as_the_blocks_pay_for() {
        let mut file = FilePieces::default();
        assert_eq!((file.left_so_far(Slowdown(0), DISK), file.left(Slowdown(0), DISK)), (1, 0));
        assert_eq!(file.left_so_far(Slowdown(10), DISK), 1);
        file.grow(1_000, 1);
        assert_eq!(file.left_so_far(Slowdown(10), DISK), 0, "the first of 1.1 is taken");
        file.grow(1_000, 0);
        assert_eq!(file.left_so_far(Slowdown(10), DISK), 1);
        assert_eq!(file.left_so_far(Slowdown(100), DISK), 20);
        assert_eq!(file.left_so_far(Slowdown(10), PieceCost(50.0)), 3, "a cheaper piece counts at once");
    }

    #[test]
    fn parts_that_pay_for_their_own_pieces_make_a_file_within_its_budget() {
        for cost in [SSD, PieceCost(1.0), PieceCost(5.1), DISK] {
            for percent in [0, 10, 100, 250] {
                for parts in [&[1; 1_000][..], &[256; 64], &[3, 700, 1, 55]] {
                    let paid = |blocks: u64| FilePieces::paid_by(blocks, Slowdown(percent), cost);
                    let pieces = parts.iter().map(|blocks| paid(*blocks)).sum();
                    let file = FilePieces { blocks: parts.iter().sum(), pieces };
                    assert!(pieces <= file.pieces_max(Slowdown(percent), cost), "{file:?} {cost:?} {percent}");
                }
            }
        }
        let paid = |blocks, cost| FilePieces::paid_by(blocks, Slowdown(100), cost);
        assert_eq!((paid(256, PieceCost(1.0)), paid(256, PieceCost(8.0)), paid(1, PieceCost(1.1))), (256, 32, 0));
    }

    #[test]
    fn half_of_the_blocks_may_be_apart_where_a_piece_costs_two_blocks() {
        assert_eq!(FilePieces::of_file(1_000, 1).left(Slowdown(100), PieceCost(2.0)), 501);
        assert_eq!(FilePieces::of_file(1_000, 501).left(Slowdown(100), PieceCost(2.0)), 1);
        assert_eq!(FilePieces::of_file(1_000, 900).left(Slowdown(100), PieceCost(2.0)), 0);
    }

    #[test]
    fn only_gaps_that_cost_little_are_read_over() {
        assert_eq!([0.5, 4.0, 9.0, 100.0].map(|k| PieceCost(k).gap_blocks_max()), [0, 1, 2, 8]);
    }

    #[test]
    fn runs_that_a_whole_file_may_be_shared_in() {
        let runs = |cost: PieceCost| [0, 10, 100, 1_000].map(|percent| cost.run_blocks_min(Slowdown(percent)));
        assert_eq!((runs(SSD), runs(DISK)), ([64, 5, 1, 1], [64, 64, 64, 10]));
        assert_eq!(PieceCost::of_blocks(f64::NAN).blocks(), 4_096.0);
        assert_eq!(PieceCost::of_blocks(0.0).blocks(), 0.05);
    }

    #[test]
    fn new_blocks_that_lie_together_are_one_piece_whatever_lies_between_them_in_the_file() {
        let mut counter = PieceCounter::default();
        let runs = [(100, 3), (900, 1), (103, 2), (700, 1), (105, 1), (702, 1), (704, 1)];
        let new: Vec<bool> = runs.iter().map(|(first, blocks)| counter.add(*first, *blocks, 1)).collect();
        assert_eq!(new, [true, true, false, true, false, false, false]);
        assert_eq!(counter.pieces(), 3);
        assert!(counter.add(100, 1, 8), "what was read before is not where a piece goes on");
    }
}
