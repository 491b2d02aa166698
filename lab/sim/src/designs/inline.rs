//! What the baselines share: every block is looked up in an index as it is written, and never again.

use oncefs_dedup::Pbn;

use super::design::{Design, Outcome};
use crate::trace::{Content, Write};
use crate::volume::{Released, Volume};

/// What an index says about a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This block holds the content.
    Found(Pbn),
    /// Not known. The index wants to be told where it is stored.
    Missed,
    /// Not looked up, or not worth an entry.
    Skipped,
}

/// Finds contents within bounded memory. What it knows of a block is always true: it is told when the block goes.
pub trait Index {
    /// A request comes; `find` follows for each of its blocks.
    fn begin(&mut self, _contents: &[Content]) {}
    /// Looks up block `position` of the request.
    fn find(&mut self, position: usize, content: Content) -> Lookup;
    /// A missed content was stored here.
    fn insert(&mut self, content: Content, pbn: Pbn);
    /// The references to a block are now so many; at 0 it is free, and must be forgotten.
    fn recount(&mut self, content: Content, pbn: Pbn, count: u32);
    /// Its part of the outcome.
    fn outcome(&self) -> Outcome;
}

/// A design that consists of an index.
pub struct Inline<I> {
    index: I,
    volume: Volume,
    found: u64,
}

impl<I: Index> Inline<I> {
    /// An empty volume that grows with what is stored, with this index.
    pub fn new(index: I) -> Self {
        Self::on(Volume::default(), index)
    }

    /// On this volume, which is empty.
    pub fn on(volume: Volume, index: I) -> Self {
        Self { index, volume, found: 0 }
    }

    fn released(&mut self, released: Option<Released>) {
        if let Some(Released { pbn, content, count }) = released {
            self.index.recount(content, pbn, count);
        }
    }
}

impl<I: Index> Design for Inline<I> {
    fn write(&mut self, write: &Write) {
        self.index.begin(write.contents);
        for (position, (place, content)) in write.blocks().enumerate() {
            if content == Content::ZERO {
                let released = self.volume.clear(place);
                self.released(released);
                continue;
            }
            let looked_up = self.index.find(position, content);
            if let Lookup::Found(pbn) = looked_up {
                assert!(self.volume.holds(pbn, content), "the index knows of block {pbn} what is not so");
                self.found += 1;
                let released = self.volume.share(place, pbn);
                self.index.recount(content, pbn, self.volume.count(pbn));
                self.released(released);
                continue;
            }
            let (pbn, released) = self.volume.store(place, content);
            self.released(released);
            if looked_up == Lookup::Missed {
                self.index.insert(content, pbn);
            }
        }
    }

    fn idle(&mut self) {}

    fn outcome(&self) -> Outcome {
        let (stored, extents) = (self.volume.used(), self.volume.extents());
        Outcome { found_inline: self.found, stored, extents, ..self.index.outcome() }
    }

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn check(&self) {
        self.volume.check();
    }
}
