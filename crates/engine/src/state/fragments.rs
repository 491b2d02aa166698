//! What a publication does with fragments: it counts them in the blocks that they lie in, which become free with the last
//! of them.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::fragment::{FragmentPlace, is_fragment};
use crate::format::ops::Op;
use crate::format::page::{Entry, PACK, page_of, pbns_of};
use crate::state::published::{Plan, State, StoredBlock, StoredFragment};
use crate::state::table::damaged_entry;
use crate::{Blocks, Error, Pbn, Result};

impl State {
    /// The pages with the entries of blocks whose fragments a plan releases. The plan's own pages are in memory.
    pub fn pages_behind(&mut self, plan: &Plan) -> Result<BTreeSet<u64>> {
        let of_maps = plan.decrefs.iter().flat_map(|run| run.pbns());
        let released = of_maps.chain(plan.record_decrefs.iter().copied()).filter(|pbn| is_fragment(*pbn));
        let mut pages = BTreeSet::new();
        for pbn in released {
            if self.table.is_damaged(pbn) {
                return Err(damaged_entry(pbn));
            }
            // fsck gives a fragment without a place to maps that have lost one.
            let Some(place) = self.table.fragment_place(pbn) else { continue };
            if let Some(outside) = place.blocks().find(|pbn| pbn.0 >= self.totals.data.0) {
                let why = format!("fragment {pbn} lies in block {outside}, outside the data area");
                return Err(Error::corrupt("the block table", why));
            }
            pages.extend(place.blocks().map(page_of));
        }
        Ok(pages)
    }

    /// Whether nothing is known of a block, or of one that it lies in. Their pages are in memory.
    pub(super) fn is_unknown(&mut self, pbn: Pbn) -> bool {
        let place = if is_fragment(pbn) { self.table.fragment_place(pbn) } else { None };
        self.table.is_damaged(pbn) || place.is_some_and(|place| place.blocks().any(|pbn| self.table.is_damaged(pbn)))
    }

    /// The pages with the entries of the blocks that the fragments of a page lie in. The page is in memory.
    pub fn pages_of_holders(&mut self, number: u64) -> BTreeSet<u64> {
        let data = self.totals.data.0;
        let Some(page) = self.table.page(number) else { return BTreeSet::new() };
        let live = pbns_of(number).filter(|pbn| page.count(*pbn) > 0);
        let holders = live.filter_map(|pbn| page.fragment_place(pbn)).flat_map(|place| place.blocks());
        holders.filter(|pbn| pbn.0 < data).map(page_of).collect()
    }

    /// How many blocks hold nothing any more without these fragments. An error: the table lacks some of them.
    pub(super) fn packs_freed_by(&mut self, fragments: &[Pbn]) -> std::result::Result<u64, String> {
        let mut given_back: BTreeMap<Pbn, u32> = BTreeMap::new();
        let places: Vec<FragmentPlace> = fragments.iter().filter_map(|pbn| self.table.fragment_place(*pbn)).collect();
        for holder in places.iter().flat_map(FragmentPlace::blocks) {
            *given_back.entry(holder).or_default() += 1;
        }
        let mut freed = 0;
        for (pbn, fragments) in given_back {
            let entry = self.table.entry(pbn).expect("the plan's pages are in memory");
            if entry.count < fragments || !entry.is_pack() {
                let count = entry.count;
                return Err(format!("block {pbn} holds {count} fragments, and {fragments} are given back"));
            }
            freed += u64::from(entry.count == fragments);
        }
        Ok(freed)
    }

    /// Stores fragments, and counts them in the blocks that hold them.
    pub(super) fn store_fragments(&mut self, fragments: &[StoredFragment]) {
        let mut holders = BTreeMap::new();
        for StoredFragment { block: StoredBlock { pbn, tag, fingerprint }, place } in fragments {
            let page = self.table.edit(page_of(*pbn));
            assert_eq!(page.count(*pbn), 0, "fragment {pbn} replaces a live one");
            page.set(*pbn, &Entry { tag: *tag, fingerprint: *fingerprint, count: 1, flags: 0 });
            page.set_fragment_place(*pbn, *place);
            self.fragment_totals.fragments += 1;
            self.fragment_totals.bytes += u64::from(place.bytes);
            self.group.push(&Op::Fragment { pbn: *pbn, place: *place, tag: *tag, fingerprint: *fingerprint });
            for holder in place.blocks() {
                let page = self.table.edit(page_of(holder));
                let entry = page.entry(holder);
                if entry.count == 0 {
                    page.set(holder, &Entry { flags: PACK, ..Entry::default() });
                    self.totals.used += Blocks(1);
                    self.group.push(&Op::Pack { pbn: holder, blocks: 1 });
                }
                assert!(entry.count == 0 || entry.is_pack(), "fragment {pbn} is placed over block {holder}");
                self.table.edit(page_of(holder)).set_count(holder, entry.count + 1);
                holders.insert(holder, entry.count + 1);
            }
        }
        self.group.count(&holders);
    }

    /// Subtracts a fragment from the blocks that it lies in. Returns how many of them became free.
    pub(super) fn leave_holders(&mut self, fragment: Pbn, holders: &mut BTreeMap<Pbn, u32>) -> u64 {
        let mut freed = 0;
        let place = self.table.fragment_place(fragment);
        // After damage, fsck counts them anew.
        let totals = &mut self.fragment_totals;
        totals.fragments = totals.fragments.saturating_sub(1);
        totals.bytes = totals.bytes.saturating_sub(place.map_or(0, |place| u64::from(place.bytes)));
        for holder in place.into_iter().flat_map(|place| place.blocks()) {
            let page = self.table.edit(page_of(holder));
            let count = page.count(holder);
            assert!(count > 0, "fragment {fragment} leaves block {holder}, which holds none");
            page.set_count(holder, count - 1);
            holders.insert(holder, count - 1);
            if count == 1 {
                self.group.free(holder);
                freed += 1;
            }
        }
        freed
    }
}
