//! No dedup: what the trace takes, and how its files lie, without any.

use oncefs_dedup::Pbn;

use super::design::Outcome;
use super::inline::{Index, Lookup};
use crate::trace::Content;

/// Finds nothing.
pub struct NoIndex;

impl Index for NoIndex {
    fn find(&mut self, _position: usize, _content: Content) -> Lookup {
        Lookup::Skipped
    }

    fn insert(&mut self, _content: Content, _pbn: Pbn) {}

    fn recount(&mut self, _content: Content, _pbn: Pbn, _count: u32) {}

    fn outcome(&self) -> Outcome {
        Outcome::default()
    }
}
