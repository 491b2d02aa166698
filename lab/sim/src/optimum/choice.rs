//! The most blocks that a file can share within its budget: a slow reference for what `oncefs-dedup` chooses.
//!
//! Knows the whole file and every holder of every content. The rules of cost are those of `within`: each piece costs one,
//! a run that goes on from the last one shared costs nothing, nor does a piece that reaches the file's end.
//!
//! Method. If a piece costs a price, in blocks, the best choice is found in one walk over the file. The higher the price,
//! the fewer pieces it has; the lowest price at which they fit the budget is searched for. What is shared then, plus the
//! price of each piece that is left over, is at least what any choice within the budget shares. It is exactly that where
//! gaps are not read over: one piece more never gains more than the piece before it did. Of blocks that are worth the
//! same the first count a very little more, so that at some price the pieces are as many as the budget allows.

use std::cmp::Reverse;

use hashbrown::HashMap;
use oncefs_dedup::Pbn;

/// A block, and what may be done with it.
pub(crate) struct Sharable<'a> {
    /// Blocks that hold the same.
    pub holders: &'a [Pbn],
    /// Whether it is shared in any case, at no cost.
    pub is_free: bool,
}

/// A choice, and how far from the best one it can be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Optimum {
    /// For each block the one it shares, unless it is new, or shared at no cost.
    pub shared: Vec<Option<Pbn>>,
    /// Blocks shared by the best choice, at most, those at no cost included.
    pub blocks_max: u64,
}

/// A way to share the blocks up to one of them.
#[derive(Clone, Copy)]
struct Way {
    value: i128,
    pieces: u64,
    /// The last block shared, and with which one.
    last: Option<(usize, Pbn)>,
    /// The number of the way that it goes on from; its own if nothing is shared.
    before: usize,
}

impl Way {
    /// The better of two ways has the greater rank: more value, then fewer pieces.
    fn rank(&self) -> (i128, Reverse<u64>) {
        (self.value, Reverse(self.pieces))
    }
}

/// The ways so far, at one price of a piece.
struct Ways {
    all: Vec<Way>,
    /// By the block shared last: the best way to there.
    ends: HashMap<Pbn, usize>,
    /// The best of all.
    best: usize,
    price: i128,
}

/// What a file's blocks may share if sharing adds so many pieces at most, and ranges with so many blocks between them
/// are one piece.
pub(crate) fn best_within(blocks: &[Sharable], pieces_max: u64, gap_blocks_max: u64) -> Optimum {
    let count = blocks.len() as i128;
    let block_value = count * count + 1;
    let at = |price| best_at(blocks, gap_blocks_max, block_value, price);
    let fits = |ways: &Ways| ways.best().pieces <= pieces_max;
    let mut ways = at(0);
    if !fits(&ways) {
        // At the highest price, nothing is worth a piece.
        let (mut too_low, mut price) = (0, (count + 1) * block_value);
        ways = at(price);
        while price - too_low > 1 {
            let middle = (price + too_low) / 2;
            let other = at(middle);
            if fits(&other) { (price, ways) = (middle, other) } else { too_low = middle }
        }
    }
    assert!(fits(&ways), "{} pieces within {pieces_max}", ways.best().pieces);
    let left_over = pieces_max - ways.best().pieces;
    let value_max = ways.best().value + ways.price * i128::from(ways.best().pieces + left_over);
    let free = blocks.iter().filter(|block| block.is_free).count() as u64;
    Optimum { shared: ways.shared(blocks.len()), blocks_max: free + (value_max / block_value) as u64 }
}

/// The way of the greatest value, each piece paid for; of equals one with the fewest pieces.
fn best_at(blocks: &[Sharable], gap_blocks_max: u64, block_value: i128, price: i128) -> Ways {
    let mut ways = Ways::none(blocks.len(), price);
    for (at, block) in blocks.iter().enumerate() {
        let value = if block.is_free { 0 } else { block_value + (blocks.len() - at) as i128 };
        let first = ways.all.len();
        for pbn in block.holders {
            ways.add(at, *pbn, value, gap_blocks_max);
        }
        ways.admit(first);
    }
    ways.pay_back_the_end(blocks.len());
    ways
}

impl Ways {
    /// Only the way that shares nothing.
    fn none(blocks: usize, price: i128) -> Self {
        let nothing = Way { value: 0, pieces: 0, last: None, before: 0 };
        let mut all = Vec::with_capacity(blocks + 1);
        all.push(nothing);
        Self { all, ends: HashMap::new(), best: 0, price }
    }

    /// The best way that shares a block with this one.
    fn add(&mut self, at: usize, pbn: Pbn, value: i128, gap_blocks_max: u64) {
        let best = self.all[self.best];
        let last = Some((at, pbn));
        let begins = Way { value: best.value - self.price + value, pieces: best.pieces + 1, last, before: self.best };
        let ends = (1..=gap_blocks_max + 1).filter_map(|back| self.ends.get(&Pbn(pbn.0.checked_sub(back)?)));
        let goes_on = ends.map(|end| Way { value: self.all[*end].value + value, last, before: *end, ..self.all[*end] });
        let way = goes_on.chain([begins]).max_by_key(Way::rank).expect("one begins a piece");
        self.all.push(way);
    }

    /// The ways from this one on share the same block with others: the next block can go on from them.
    fn admit(&mut self, first: usize) {
        for way in first..self.all.len() {
            let (_, pbn) = self.all[way].last.expect("a way that was added shares a block");
            let end = self.ends.entry(pbn).or_insert(way);
            if self.all[way].rank() > self.all[*end].rank() {
                *end = way;
            }
            if self.all[way].rank() > self.all[self.best].rank() {
                self.best = way;
            }
        }
    }

    /// A file's end is shared at no cost.
    fn pay_back_the_end(&mut self, blocks: usize) {
        for way in (1..self.all.len()).rev() {
            if self.all[way].last.is_none_or(|(at, _)| at + 1 < blocks) {
                break;
            }
            self.all[way].value += self.price;
            self.all[way].pieces -= 1;
            if self.all[way].rank() > self.all[self.best].rank() {
                self.best = way;
            }
        }
    }

    fn best(&self) -> &Way {
        &self.all[self.best]
    }

    /// What the best way shares, for each block.
    fn shared(&self, blocks: usize) -> Vec<Option<Pbn>> {
        let mut shared = vec![None; blocks];
        let mut way = self.best();
        while let Some((at, pbn)) = way.last {
            shared[at] = Some(pbn);
            way = &self.all[way.before];
        }
        shared
    }
}

#[cfg(test)]
mod tests;
