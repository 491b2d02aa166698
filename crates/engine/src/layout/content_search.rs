//! Finds stored blocks by the tags of contents that another machine has. Each block is only a candidate: the caller
//! compares its content.

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests;

use crate::base::part;
use crate::device::buffer::PooledBuf;
use crate::read::stored::BlockReader;
use crate::state::loading::Metadata;
use crate::write::visit::ascending;
use crate::{BLOCK_BYTES, Pbn, Result, Tag};

part! {
    /// Searches the hints and the block table.
    pub struct ContentSearch {
        base: data, hints, stats;
        metadata: Metadata, block_reader: BlockReader
    }
}

impl ContentSearch {
    /// See [`crate::Store::blocks_by_tag`].
    pub fn blocks_by_tag(&self, tags: &[Tag]) -> Vec<Option<Vec<u8>>> {
        // No block that is found is reused before it is read.
        let _pin = self.metadata.pin();
        let places = self.places(tags);
        let mut blocks = Vec::with_capacity(tags.len());
        while let Some(&place) = places.get(blocks.len()) {
            let rest = &places[blocks.len()..];
            let length = match place {
                Some(first) => (0_u64..).zip(rest).take_while(|(n, next)| **next == Some(first.plus(*n))).count(),
                None => rest.iter().take_while(|next| next.is_none()).count(),
            };
            match place.map(|first| self.read(first, length)) {
                Some(Ok(bytes)) => blocks.extend(bytes.chunks(BLOCK_BYTES).map(|block| Some(block.to_vec()))),
                // What cannot be read is not there for this purpose.
                Some(Err(_)) | None => blocks.resize(blocks.len() + length, None),
            }
        }
        blocks
    }

    fn read(&self, first: Pbn, blocks: usize) -> Result<PooledBuf> {
        let mut bytes = self.data.take_buffer(blocks * BLOCK_BYTES);
        self.block_reader.read_run(first, &mut bytes).map(|()| bytes)
    }

    /// A block for each tag, as far as one is found: by a hint, or beside the block of the tag before or after it,
    /// because hints may name only one content in many.
    fn places(&self, tags: &[Tag]) -> Vec<Option<Pbn>> {
        let mut sorted = tags.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let mut hints = self.hints.peek(&sorted);
        hints.extend(self.hints.peek_waiting(&sorted));
        hints.extend(self.hints.look_up_on_disk(&sorted, &self.stats.counters));
        hints.sort_unstable();
        let entries = self.metadata.known_entries(&ascending(hints.iter().map(|(_, pbn)| *pbn)));
        hints.retain(|(tag, pbn)| entries.get(pbn).is_some_and(|entry| entry.serves(*tag)));
        let hinted = |tag: &Tag| {
            let at = hints.partition_point(|(other, _)| other < tag);
            hints.get(at).filter(|(other, _)| other == tag).map(|(_, pbn)| *pbn)
        };
        let mut places: Vec<Option<Pbn>> = tags.iter().map(hinted).collect();
        for at in 1..tags.len() {
            if places[at].is_none() {
                places[at] = places[at - 1].and_then(|before| self.serving(before.0.checked_add(1), tags[at]));
            }
        }
        for at in (1..tags.len()).rev() {
            if places[at - 1].is_none() {
                places[at - 1] = places[at].and_then(|behind| self.serving(behind.0.checked_sub(1), tags[at - 1]));
            }
        }
        places
    }

    /// The block with this number, if its content has this tag.
    fn serving(&self, pbn: Option<u64>, tag: Tag) -> Option<Pbn> {
        let pbn = Pbn(pbn?);
        self.metadata.known_entries(&[pbn]).get(&pbn).filter(|entry| entry.serves(tag)).map(|_| pbn)
    }
}
