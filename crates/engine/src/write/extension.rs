//! Extension: neighbours of a block that was found are asked for in the block table, without a look-up. Which ones are
//! worth asking for is `oncefs_dedup::Extension`; here the table answers.

use oncefs_dedup::Extension;

use crate::core::Core;
use crate::format::page::page_of;
use crate::worker::visit::{Holders, add_holder, ascending};
use crate::{Pbn, Tag};

/// Turns in which the block table's pages are read for the extension of one request: each turn goes a page further, and
/// a request of 1 MiB spans three in each direction.
const EXTENSION_TURNS_MAX: usize = 8;

impl Core {
    /// The holders that an extension finds. Table pages are read for it, in few turns; each ends after so many answers
    /// of no beyond those of yes.
    pub fn extended(&self, mut extension: Extension, noes_max: u32) -> Vec<Vec<Pbn>> {
        for _ in 0..EXTENSION_TURNS_MAX {
            let mut noes_left = noes_max;
            let missing = {
                let mut state = self.state.lock();
                let end = state.totals.data.0;
                extension.extend(|pbn, tag| {
                    if noes_left == 0 || pbn.0 >= end {
                        return Some(false);
                    }
                    let holds = state.table.entry(pbn)?.serves(tag);
                    noes_left = if holds { noes_left.saturating_add(1) } else { noes_left - 1 };
                    Some(holds)
                })
            };
            if missing.is_empty() {
                break;
            }
            let mut pages: Vec<u64> = missing.into_iter().map(page_of).collect();
            pages.dedup();
            // No write depends on what a damaged page would have named.
            if let Err(error) = self.load_pages(&pages) {
                log::debug!("a run is not extended: {error}");
                break;
            }
        }
        extension.into_holders()
    }

    /// Adds holders that no hint names to those of blocks that follow each other in a file: neighbours of known ones,
    /// and of what the file has before and behind the blocks. A block that gets one is a holder itself, so that the best
    /// of them can be chosen.
    pub fn extend_holders(
        &self,
        blocks: &[(Tag, Pbn)],
        (before, after): (Option<Pbn>, Option<Pbn>),
        holders: &mut Holders,
    ) {
        let around = |pbn: Option<Pbn>| pbn.map(|pbn| (Tag::default(), vec![pbn]));
        let of_block = |(tag, own): &(Tag, Pbn)| {
            let named = holders.get(tag).map(Vec::as_slice).unwrap_or_default();
            (*tag, named.iter().map(|(pbn, _)| *pbn).filter(|pbn| pbn != own).collect())
        };
        let all = around(before).into_iter().chain(blocks.iter().map(of_block)).chain(around(after));
        let (tags, known): (Vec<Tag>, Vec<Vec<Pbn>>) = all.unzip();
        let extended = self.extended(Extension::new(&tags, known, &[]), u32::MAX);
        let found = blocks.iter().zip(extended.into_iter().skip(usize::from(before.is_some())));
        let found = found.filter(|((_, own), pbns)| pbns.iter().any(|pbn| pbn != own));
        let pairs: Vec<(Tag, Pbn)> =
            found.flat_map(|((tag, own), pbns)| pbns.into_iter().chain([*own]).map(|pbn| (*tag, pbn))).collect();
        let entries = self.known_entries(&ascending(pairs.iter().map(|(_, pbn)| *pbn)));
        for (tag, pbn) in pairs {
            if let Some(entry) = entries.get(&pbn).filter(|entry| entry.serves(tag)) {
                add_holder(holders, tag, pbn, *entry);
            }
        }
    }
}
