//! Identification (iDedup, section 4.2.1): which sequences reach the present block.
//!
//! Owns how the holders of two blocks in a row are joined. The open sequences are at most as many as a block has
//! holders, each ends in another pbn.

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
    /// The same, whose last run has only blocks that stay.
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

    /// Goes to the next block. Those that go on there grow, those that do not have ended, others begin.
    ///
    /// All four cases of the paper are this one loop: the end of a sequence and the next holder are searched for in
    /// turn, each time from where the other stands, so that whatever matches nothing is passed over. With a single
    /// pbn on a side this is one search on the other. Gives the number of searches: every one passes over an end or a
    /// holder at least.
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
