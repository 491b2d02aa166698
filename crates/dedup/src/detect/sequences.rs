//! Identification (iDedup, section 4.2.1): which sequences reach the present block.
//!
//! Owns how the holders of two adjacent blocks are joined. There are at most as many open sequences as a block has
//! holders, and each ends in a different pbn.

use super::choice::Way;
use crate::Pbn;

/// A sequence that reaches the present block: its last lbn is that block's.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// Pbn of its last block.
    pub last: Pbn,
    /// How many blocks it has.
    pub blocks: usize,
    /// The best choice whose last run ends here in this sequence and is long enough.
    pub long: Option<Way>,
    /// The same, with a last run of only blocks that stay.
    pub staying: Option<Way>,
}

/// The sequences that reach the present block, by their last pbn, ascending.
#[derive(Debug, Default)]
pub struct Sequences {
    open: Vec<Sequence>,
    before: Vec<Sequence>,
}

impl Sequences {
    /// The sequences that reach the present block.
    pub fn open(&self) -> &[Sequence] {
        &self.open
    }

    /// The same, to note choices in them.
    pub fn open_mut(&mut self) -> &mut [Sequence] {
        &mut self.open
    }

    /// Advances to the next block: sequences that go on there grow, the others end, new ones begin.
    ///
    /// This one loop covers all four cases of the paper: it searches for the end of a sequence and for the next holder in
    /// turn, each time from the position of the other, and so skips what matches nothing. With a single pbn on one side
    /// this is one search on the other. Returns the number of searches: each passes at least one end or holder.
    pub fn step(&mut self, holders: &[Pbn]) -> usize {
        std::mem::swap(&mut self.open, &mut self.before);
        self.open.clear();
        let begin = |&last: &Pbn| Sequence { last, blocks: 1, long: None, staying: None };
        self.open.extend(holders.iter().map(begin));
        let (mut before, mut open, mut searches) = (0, 0, 0);
        while let (Some(sequence), Some(holder)) = (self.before.get(before), self.open.get_mut(open)) {
            let wanted = sequence.last.plus(1);
            if wanted == holder.last {
                *holder = Sequence { last: wanted, blocks: sequence.blocks + 1, ..*sequence };
                (before, open) = (before + 1, open + 1);
            } else if wanted < holder.last {
                let reached = holder.last;
                before += self.before[before..].partition_point(|sequence| sequence.last.plus(1) < reached);
            } else {
                open += self.open[open..].partition_point(|holder| holder.last < wanted);
            }
            searches += 1;
        }
        searches
    }
}
