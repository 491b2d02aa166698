//! The blocks of packs that a publication changes: their new entries, as operations of the log.

use std::collections::BTreeMap;

use crate::Pbn;
use crate::format::ops::Op;
use crate::format::page::Entry;
use crate::state::group::Group;

/// Blocks of packs that a publication changed, with their new entries.
#[derive(Default)]
pub struct Holders(BTreeMap<Pbn, Entry>);

impl Holders {
    /// Notes the new entry of a block.
    pub fn set(&mut self, pbn: Pbn, entry: Entry) {
        self.0.insert(pbn, entry);
    }

    /// Appends the counts of these blocks, and the lengths of the packs that end with them.
    pub fn log(&self, group: &mut Group) {
        group.count(self.0.iter().map(|(pbn, entry)| (*pbn, entry.count)));
        for (pbn, entry) in &self.0 {
            if let Some(bytes) = entry.pack_bytes() {
                group.push(&Op::PackBytes { pbn: *pbn, bytes });
            }
        }
    }
}
