//! The exact full index: every content that is stored, in memory, however much that takes.

use hashbrown::HashMap;
use oncefs_dedup::Pbn;

use super::design::Outcome;
use super::inline::{Index, Lookup};
use super::lru::FINGERPRINT_BYTES;
use crate::trace::Content;

/// All contents.
#[derive(Default)]
pub struct Full {
    pbns: HashMap<Content, Pbn>,
    entries_max: usize,
}

impl Index for Full {
    fn find(&mut self, _position: usize, content: Content) -> Lookup {
        self.pbns.get(&content).map_or(Lookup::Missed, |pbn| Lookup::Found(*pbn))
    }

    fn insert(&mut self, content: Content, pbn: Pbn) {
        self.pbns.insert(content, pbn);
        self.entries_max = self.entries_max.max(self.pbns.len());
    }

    fn recount(&mut self, content: Content, _pbn: Pbn, count: u32) {
        if count == 0 {
            self.pbns.remove(&content);
        }
    }

    fn outcome(&self) -> Outcome {
        let memory_bytes = self.entries_max as u64 * FINGERPRINT_BYTES;
        Outcome { memory_bytes, entries: self.pbns.len() as u64, ..Outcome::default() }
    }
}
