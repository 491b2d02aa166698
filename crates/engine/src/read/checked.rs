//! Blocks after they were read: they are compared with their tags and offered to the read cache.

use super::cache::NOBODY;
use super::parts::{Part, Way};
use super::stored::CACHED_RUN_BLOCKS_MAX;
use crate::format::page::page_of;
use crate::read::stored::BlockReader;
use crate::state::replacements::damaged;
use crate::{BLOCK_BYTES, MapId, Pbn, Result, Tag};

/// The block table's answer for a block that was read. Empty if its page cannot be read.
#[derive(Clone, Copy, Default)]
struct Known {
    references: u32,
    /// The tag of its right content, if it has references.
    tag: Option<Tag>,
}

impl BlockReader {
    /// Compares the content with the tags if reads are verified, and with the tags of lost content if any is lost. A
    /// block that differs is served as `read_parts` says. Returns how many references each block has, in the order of
    /// the parts, or 0 if that is not known. None: none may enter the read cache.
    pub fn verify(&self, reader: MapId, parts: &mut [(&mut Part<'_>, Way)]) -> Result<Option<Vec<u32>>> {
        let verifies = self.tuning.verifies_reads();
        if !verifies && !self.damage.is_content_lost() {
            return Ok(Some(self.metadata.references_of(parts.iter().flat_map(|(part, _)| part.pbns()))));
        }
        let mut tags: Vec<(Pbn, Tag)> = Vec::with_capacity(parts.iter().map(|(part, _)| part.blocks()).sum());
        for (part, _) in &*parts {
            let blocks = part.bytes.chunks_exact(BLOCK_BYTES).map(|block| self.hasher.tag(block));
            tags.extend(part.pbns().zip(blocks));
        }
        if self.damage.is_content_lost() {
            self.damage_reports.offer(tags.iter().copied());
        }
        if !verifies {
            return Ok(Some(self.metadata.references_of(tags.iter().map(|(pbn, _)| *pbn))));
        }
        let known = self.known_of(&tags);
        assert_eq!(known.len(), tags.len(), "what is known of each block");
        let wrong = tags.iter().zip(&known).filter_map(|((pbn, tag), known)| {
            let right = known.tag.filter(|right| right != tag)?;
            Some((*pbn, right))
        });
        let is_all_right = self.replace_all(reader, wrong, parts)?;
        Ok(is_all_right.then(|| known.iter().map(|known| known.references).collect()))
    }

    /// Serves wrong blocks, which come with their right tags, from the device if they are not from there, or from their
    /// replicas. False: a read without a reader keeps some of them as they are.
    fn replace_all(
        &self,
        reader: MapId,
        wrong: impl Iterator<Item = (Pbn, Tag)>,
        parts: &mut [(&mut Part<'_>, Way)],
    ) -> Result<bool> {
        let mut is_all_right = true;
        for (pbn, tag) in wrong {
            if is_through_host_cache(pbn, parts)
                && self.replace(pbn, parts, |bytes| self.read_past_host_cache(pbn, tag, bytes))
            {
                continue;
            }
            self.damage_reports.suspect(pbn);
            if !self.replace(pbn, parts, |bytes| self.replica_reader.read_replica(pbn, bytes)) {
                if reader != NOBODY {
                    return Err(damaged(pbn));
                }
                is_all_right = false;
            }
        }
        Ok(is_all_right)
    }

    /// Serves one block of these parts by `read`, which returns whether it has the right content.
    fn replace(&self, pbn: Pbn, parts: &mut [(&mut Part<'_>, Way)], mut read: impl FnMut(&mut [u8]) -> bool) -> bool {
        let mut holders = parts.iter_mut().filter(|(part, _)| part.has(pbn));
        holders.all(|(part, _)| {
            let at = (pbn.0 - part.pbn.0) as usize * BLOCK_BYTES;
            read(&mut part.bytes[at..at + BLOCK_BYTES])
        })
    }

    /// The table's answer for blocks with these tags, in the order of their pbns. It is empty for a block that was
    /// freed meanwhile and that only the caller's pin keeps. It is also empty where the table cannot be read: damage to
    /// the table is not damage to the block.
    fn known_of(&self, tags: &[(Pbn, Tag)]) -> Vec<Known> {
        self.compare_tags(tags).unwrap_or_else(|_| {
            let by_page = tags.chunk_by(|a, b| page_of(a.0) == page_of(b.0));
            let compared = by_page.flat_map(|tags| {
                self.compare_tags(tags).unwrap_or_else(|error| {
                    let (first, more) = (tags[0].0, tags.len() - 1);
                    log::warn!("block {first} and {more} more were read without being verified: {error}");
                    vec![Known::default(); tags.len()]
                })
            });
            compared.collect()
        })
    }

    fn compare_tags(&self, tags: &[(Pbn, Tag)]) -> Result<Vec<Known>> {
        let by_page = || tags.chunk_by(|a, b| page_of(a.0) == page_of(b.0));
        let pages = || by_page().map(|of_page| page_of(of_page[0].0)).collect();
        self.metadata.with_pages(pages, |pages| {
            let mut known = Vec::with_capacity(tags.len());
            for of_page in by_page() {
                let page = pages.page(page_of(of_page[0].0)).expect("it is in memory");
                known.extend(of_page.iter().map(|(pbn, _)| {
                    let entry = page.entry(*pbn);
                    Known { references: entry.count, tag: (entry.count > 0).then_some(entry.tag) }
                }));
            }
            known
        })
    }

    /// Offers blocks that were read to the read cache. Shared blocks enter at once, because they are read again for
    /// their other references. Of a long run only these enter, so that one pass over a large file does not replace the
    /// whole cache.
    pub fn admit_read<'p, 'a: 'p>(&self, reader: MapId, parts: impl Iterator<Item = &'p Part<'a>>, references: &[u32]) {
        let (mut references, counters) = (references.iter(), &self.stats.counters);
        for part in parts {
            let is_long = part.blocks() > CACHED_RUN_BLOCKS_MAX;
            for (pbn, block) in part.pbns().zip(part.bytes.chunks_exact(BLOCK_BYTES)) {
                match references.next().expect("one for each block of the parts") {
                    references @ 2.. => {
                        let awaited = references - u32::from(reader != NOBODY);
                        self.read_cache.admit_awaited(pbn, reader, awaited, block, counters);
                    }
                    _ if !is_long => self.read_cache.admit(pbn, reader, block, counters),
                    _ => {}
                }
            }
        }
        assert!(references.next().is_none(), "a block was looked over that is not offered");
    }
}

/// Whether any of the parts with this block came through the host's page cache: parts may overlap.
fn is_through_host_cache(pbn: Pbn, parts: &[(&mut Part<'_>, Way)]) -> bool {
    parts.iter().any(|(part, way)| *way == Way::ThroughHostCache && part.has(pbn))
}
