//! What is done with blocks once they were read: they are compared with their tags, and offered to the read cache.

use super::parts::Part;
use super::stored::{CACHED_RUN_BLOCKS_MAX, NOBODY};
use crate::core::Core;
use crate::format::page::page_of;
use crate::{BLOCK_BYTES, Error, MapId, Pbn, Result, Tag};

impl Core {
    /// Compares what was read with the tags, if that is set, and with the tags of lost content, if there is any. A block
    /// that differs is served as `read_parts` says. Whether the parts may enter the read cache.
    pub fn look_over(&self, reader: MapId, parts: &mut [&mut Part<'_>]) -> Result<bool> {
        let verifies = self.tuning.verifies_reads();
        if !verifies && !self.damage.is_content_lost() {
            return Ok(true);
        }
        let mut tags: Vec<(Pbn, Tag)> = Vec::with_capacity(parts.len());
        for part in &*parts {
            let blocks = part.bytes.chunks_exact(BLOCK_BYTES).map(|block| self.hasher.tag(block));
            tags.extend(part.pbns().zip(blocks));
        }
        if self.damage.is_content_lost() {
            self.offer(tags.iter().copied());
        }
        let wrong = if verifies { self.which_are_wrong(&tags) } else { Vec::new() };
        let mut is_all_right = true;
        for pbn in wrong {
            self.suspect(pbn);
            if !self.replace(pbn, parts) {
                if reader != NOBODY {
                    return Err(damaged(pbn));
                }
                is_all_right = false;
            }
        }
        Ok(is_all_right)
    }

    /// Gives parts the second copy of one of their blocks. False: there is none.
    fn replace(&self, pbn: Pbn, parts: &mut [&mut Part<'_>]) -> bool {
        let holders = parts.iter_mut().filter(|part| (part.pbn..part.end()).contains(&pbn));
        holders.into_iter().all(|part| {
            let at = (pbn.0 - part.pbn.0) as usize * BLOCK_BYTES;
            self.read_replica(pbn, &mut part.bytes[at..at + BLOCK_BYTES])
        })
    }

    /// Which blocks do not have these tags. They come in the order of their pbns. Of one that was freed meanwhile, and that
    /// only the caller's pin keeps, nothing is known, and neither of any where the table cannot be read: its damage is not
    /// theirs.
    fn which_are_wrong(&self, tags: &[(Pbn, Tag)]) -> Vec<Pbn> {
        self.compare_tags(tags).unwrap_or_else(|_| {
            let by_page = tags.chunk_by(|a, b| page_of(a.0) == page_of(b.0));
            let compared = by_page.flat_map(|tags| {
                self.compare_tags(tags).unwrap_or_else(|error| {
                    let (first, more) = (tags[0].0, tags.len() - 1);
                    log::warn!("block {first} and {more} more were read without being verified: {error}");
                    Vec::new()
                })
            });
            compared.collect()
        })
    }

    fn compare_tags(&self, tags: &[(Pbn, Tag)]) -> Result<Vec<Pbn>> {
        let pages = || tags.iter().map(|(pbn, _)| page_of(*pbn)).collect();
        self.with_pages(pages, |state| {
            let is_wrong = |(pbn, tag): &&(Pbn, Tag)| {
                let entry = state.table.entry(*pbn).expect("its page is in memory");
                entry.count > 0 && entry.tag != *tag
            };
            tags.iter().filter(is_wrong).map(|(pbn, _)| *pbn).collect()
        })
    }

    /// Offers what was read to the read cache: shared blocks, which further files may ask for, enter at once. Of a long run
    /// only they do, so that one pass over a large file does not turn the cache over.
    pub fn admit_read(&self, reader: MapId, parts: &[&Part<'_>]) {
        let mut shared = self.which_are_shared(parts).into_iter();
        for part in parts {
            let is_long = part.blocks() > CACHED_RUN_BLOCKS_MAX;
            for (pbn, block) in part.pbns().zip(part.bytes.chunks_exact(BLOCK_BYTES)) {
                match shared.next() {
                    Some(true) => self.read_cache.admit_shared(pbn, reader, block),
                    _ if !is_long => self.read_cache.admit(pbn, reader, block),
                    _ => {}
                }
            }
        }
    }

    /// Which blocks have several references, as far as the table is in memory: a read waits for no table page.
    fn which_are_shared(&self, parts: &[&Part<'_>]) -> Vec<bool> {
        let mut state = self.state.lock();
        let is_shared = |pbn: Pbn| state.table.page(page_of(pbn)).is_some_and(|page| page.count(pbn) > 1);
        parts.iter().flat_map(|part| part.pbns()).map(is_shared).collect()
    }
}

/// A block whose content is nowhere.
pub fn damaged(pbn: Pbn) -> Error {
    Error::corrupt(format!("block {pbn} of the data area"), "its content does not have its tag (see oncefs scrub)")
}
