//! Extension: looks up the neighbours of a duplicate block in the block table, without hints. `oncefs_dedup::Extension`
//! chooses the neighbours. This file gives the table's answers.

use oncefs_dedup::Extension;

use crate::base::part;
use crate::format::fragment::is_number;
use crate::format::page::page_of;
use crate::state::loading::Metadata;
use crate::write::visit::{Holders, add_holder, ascending};
use crate::{Pbn, Tag};

/// Turns in which the block table's pages are read for the extension of one request. Each turn goes one page further,
/// and a request of 1 MiB spans three pages in each direction.
const EXTENSION_TURNS_MAX: usize = 8;

part! {
    /// Finds the neighbours of known holders in the block table.
    pub struct Extender {
        base: state;
        metadata: Metadata
    }
}

impl Extender {
    /// The holders that an extension finds. It reads table pages in few turns. Each turn ends once misses exceed hits
    /// by `noes_max`.
    pub fn extended(&self, mut extension: Extension, noes_max: u32) -> Vec<Vec<Pbn>> {
        for _ in 0..EXTENSION_TURNS_MAX {
            let mut noes_left = noes_max;
            let missing = {
                let mut state = self.state.lock();
                let end = state.totals.data.0;
                extension.extend(|pbn, tag| {
                    if noes_left == 0 || (pbn.0 >= end && !is_number(pbn)) {
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
            // No write depends on the entries of a damaged page.
            if let Err(error) = self.metadata.load_pages(&pages) {
                log::debug!("a run is not extended: {error}");
                break;
            }
        }
        extension.into_holders()
    }

    /// Adds holders that no hint names to adjacent blocks of a file: neighbours of known holders, and of the blocks
    /// before and after these in the file. A block that gets one counts as a holder itself, so that the best can be
    /// chosen.
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
        let entries = self.metadata.known_entries(&ascending(pairs.iter().map(|(_, pbn)| *pbn)));
        for (tag, pbn) in pairs {
            if let Some(entry) = entries.get(&pbn).filter(|entry| entry.serves(tag)) {
                add_holder(holders, tag, pbn, *entry);
            }
        }
    }
}
