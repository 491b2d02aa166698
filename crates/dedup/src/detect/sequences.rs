//! Identification (iDedup, section 4.2.1): which sequences reach the present block.
//!
//! Owns how the holders of two adjacent blocks are joined. At most as many sequences are open as a block has holders,
//! and each ends in a different pbn.

use super::choice::Way;
use crate::Pbn;

/// A sequence that reaches the present block: its last lbn is that block's.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// Pbn of its last block.
    pub last: Pbn,
    /// Its length in blocks.
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

    /// The same, for noting choices in them.
    pub fn open_mut(&mut self) -> &mut [Sequence] {
        &mut self.open
    }

    /// Advances to the next block: sequences that continue there grow, the others end, new ones begin.
    ///
    /// This one loop covers all four cases of the paper. It searches alternately for the end of a sequence and for the
    /// next holder, each time from the position of the other, and so skips entries without a match. If one side has a
    /// single pbn, this is one search on the other. Returns the number of searches: each passes at least one end or
    /// holder.
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
