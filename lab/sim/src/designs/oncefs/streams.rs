//! Files whose last request ended in a run that is too short so far: its blocks are stored, and decided again together
//! with the file's next request, if that goes on where they end.

use crate::trace::{Content, Place};

/// Files that are waited for at the same time.
const STREAMS_MAX: usize = 64;

/// Blocks that may become part of a run worth sharing: fewer than `run_blocks_min`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub first: Place,
    pub contents: Vec<Content>,
}

/// Open tails, one per file, the one used last at the end.
#[derive(Default)]
pub(super) struct Streams(Vec<Tail>);

impl Tail {
    /// The place after its last block.
    pub fn end(&self) -> Place {
        self.first.plus(self.contents.len())
    }
}

impl Streams {
    /// Takes out what is open in a file.
    pub fn take(&mut self, file: u64) -> Option<Tail> {
        let at = self.0.iter().position(|tail| tail.first.file == file)?;
        Some(self.0.remove(at))
    }

    /// Keeps what is open in a file of which nothing is kept; returns what had to go for it.
    pub fn keep(&mut self, tail: Tail) -> Option<Tail> {
        assert!(self.0.iter().all(|kept| kept.first.file != tail.first.file), "a file has one tail: {tail:?}");
        let evicted = (self.0.len() == STREAMS_MAX).then(|| self.0.remove(0));
        self.0.push(tail);
        evicted
    }

    /// Takes out everything.
    pub fn take_all(&mut self) -> Vec<Tail> {
        std::mem::take(&mut self.0)
    }
}
