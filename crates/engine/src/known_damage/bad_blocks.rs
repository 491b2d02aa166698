//! Bad blocks in memory. A read checks here before it goes to the data area. Written and read content is compared with
//! the tags of those that have no replacement yet. The records of the sorted state say the same.
//!
//! Invariants: (1) a pbn is here if and only if its entry is flagged as bad; (2) `lost` has the tags of exactly those
//! without a replacement. Takes about 50 bytes for each bad block.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use crate::format::damage_records::BadRecord;
use crate::{Pbn, Tag};

/// Longest chain of replacements that is followed. Each link is a block that went bad after it replaced another.
const CHAIN_MAX: usize = 16;

/// Where a block's content can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockLocation {
    /// In a block that is not known to be bad.
    At(Pbn),
    /// Nowhere, as far as known.
    Lost,
}

/// The known bad blocks.
#[derive(Default)]
pub struct BadBlocks {
    records: BTreeMap<Pbn, BadRecord>,
    lost: HashMap<Tag, Vec<Pbn>>,
}

impl BadBlocks {
    /// Notes a bad block, or (None) that a block is not bad any more.
    pub fn set(&mut self, pbn: Pbn, record: Option<BadRecord>) {
        if let Some(old) = self.records.remove(&pbn)
            && let Some(same_tag) = self.lost.get_mut(&old.tag)
        {
            same_tag.retain(|lost| *lost != pbn);
            if same_tag.is_empty() {
                self.lost.remove(&old.tag);
            }
        }
        if let Some(record) = record {
            self.records.insert(pbn, record);
            if record.replacement.is_none() {
                self.lost.entry(record.tag).or_default().push(pbn);
            }
            let is_sought = self.lost_with(record.tag).contains(&pbn);
            debug_assert_eq!(is_sought, record.replacement.is_none(), "bad block {pbn} with {record:?}");
        }
        let (lost, bad) = (self.lost.len(), self.records.len());
        debug_assert!(lost <= bad, "{lost} lost tags of {bad} bad blocks");
    }

    /// The record of a bad block. None: it is not bad.
    pub fn get(&self, pbn: Pbn) -> Option<BadRecord> {
        self.records.get(&pbn).copied()
    }

    /// The number of bad blocks.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The number of tags of lost content.
    pub fn lost_tags(&self) -> usize {
        self.lost.len()
    }

    /// All bad blocks, in ascending order.
    pub fn list(&self) -> Vec<(Pbn, BadRecord)> {
        self.records.iter().map(|(pbn, record)| (*pbn, *record)).collect()
    }

    /// The bad blocks in a range of the data area, in ascending order.
    pub fn within(&self, first: Pbn, blocks: u64) -> impl Iterator<Item = Pbn> + '_ {
        self.records.range(first..Pbn(first.0.saturating_add(blocks))).map(|(pbn, _)| *pbn)
    }

    /// Bad blocks whose content is lost and has this tag.
    pub fn lost_with(&self, tag: Tag) -> &[Pbn] {
        self.lost.get(&tag).map_or(&[], Vec::as_slice)
    }

    /// Where a block's content can be read.
    pub fn find(&self, pbn: Pbn) -> BlockLocation {
        let mut at = pbn;
        for _ in 0..CHAIN_MAX {
            match self.records.get(&at) {
                None => return BlockLocation::At(at),
                Some(BadRecord { replacement: Some(replacement), .. }) => at = *replacement,
                Some(BadRecord { replacement: None, .. }) => break,
            }
        }
        BlockLocation::Lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(replacement: Option<u64>, tag: u64) -> Option<BadRecord> {
        Some(BadRecord { replacement: replacement.map(Pbn), tag: Tag(tag) })
    }

    #[test]
    fn homes_are_followed_and_lost_content_is_known_by_its_tag() {
        let mut bad = BadBlocks::default();
        bad.set(Pbn(5), record(None, 7));
        bad.set(Pbn(6), record(None, 7));
        assert_eq!((bad.lost_with(Tag(7)), bad.find(Pbn(5))), ([Pbn(5), Pbn(6)].as_slice(), BlockLocation::Lost));
        bad.set(Pbn(5), record(Some(9), 7));
        assert_eq!((bad.lost_with(Tag(7)), bad.find(Pbn(5))), ([Pbn(6)].as_slice(), BlockLocation::At(Pbn(9))));
        bad.set(Pbn(9), record(Some(10), 7));
        assert_eq!(bad.find(Pbn(5)), BlockLocation::At(Pbn(10)), "the replacement went bad, and has one");
        bad.set(Pbn(10), record(None, 7));
        assert_eq!(bad.find(Pbn(5)), BlockLocation::Lost);
        bad.set(Pbn(6), None);
        bad.set(Pbn(10), None);
        assert_eq!((bad.lost_tags(), bad.len(), bad.find(Pbn(6))), (0, 2, BlockLocation::At(Pbn(6))));
    }
}
