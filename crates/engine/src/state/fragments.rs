//! A publication counts fragments in the blocks that hold them, which become free with the last of them, and moves them
//! to other blocks.

use std::collections::{BTreeMap, BTreeSet};

use crate::format::fragment::{FragmentPlace, is_fragment};
use crate::format::ops::Op;
use crate::format::page::{Entry, PACK, page_of, pbns_of};
use crate::state::fragment_holders::Holders;
use crate::state::published::{MovedFragment, Plan, State, StoredBlock, StoredFragment};
use crate::state::table::damaged_entry;
use crate::{Blocks, Error, Pbn, Result, Tag};

/// An order of directories has room for as many packs of one group as this many bits count.
const PACKS_OF_GROUP_BITS: u32 = 20;

impl MovedFragment {
    /// The blocks and the number whose entries change.
    pub(super) fn changed(&self) -> impl Iterator<Item = Pbn> + use<> {
        self.from.holders().chain(self.to.holders()).chain([self.pbn])
    }
}

impl Plan {
    /// How many free blocks the new places of fragments take. No claim has them.
    pub(super) fn blocks_of_moves(&self) -> i64 {
        self.moves.iter().flat_map(|moved| moved.to.holders()).collect::<BTreeSet<Pbn>>().len() as i64
    }
}

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
            if let Some(outside) = place.holders().find(|pbn| pbn.0 >= self.totals.data.0) {
                let why = format!("fragment {pbn} lies in block {outside}, outside the data area");
                return Err(Error::corrupt("the block table", why));
            }
            pages.extend(place.holders().map(page_of));
        }
        Ok(pages)
    }

    /// Whether nothing is known of a block, or of one that it lies in. Their pages are in memory.
    pub(super) fn is_unknown(&mut self, pbn: Pbn) -> bool {
        let place = if is_fragment(pbn) { self.table.fragment_place(pbn) } else { None };
        self.table.is_damaged(pbn) || place.is_some_and(|place| place.holders().any(|pbn| self.table.is_damaged(pbn)))
    }

    /// The pages with the entries of the blocks that the fragments of a page lie in. The page is in memory.
    pub fn pages_of_holders(&mut self, number: u64) -> BTreeSet<u64> {
        let data = self.totals.data.0;
        let Some(page) = self.table.page(number) else { return BTreeSet::new() };
        let live = pbns_of(number).filter(|pbn| page.count(*pbn) > 0);
        let holders = live.filter_map(|pbn| page.fragment_place(pbn)).flat_map(|place| place.holders());
        holders.filter(|pbn| pbn.0 < data).map(page_of).collect()
    }

    /// Whether a fragment still has the content and the place that a plan moves. Its page is in memory.
    pub(super) fn may_move(&mut self, moved: &MovedFragment) -> bool {
        let is_there = self.table.fragment_place(moved.pbn) == Some(moved.from);
        is_there && self.table.entry(moved.pbn).is_some_and(|entry| entry.serves(moved.tag))
    }

    /// How many blocks hold nothing any more without fragments at these places. An error: the table lacks some of them.
    pub(super) fn packs_freed_by(&mut self, places: &[FragmentPlace]) -> std::result::Result<u64, String> {
        let mut given_back: BTreeMap<Pbn, u32> = BTreeMap::new();
        for holder in places.iter().flat_map(FragmentPlace::holders) {
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

    /// An order for the directory of a pack, higher than all before, also of earlier mounts. The caller has taken the
    /// numbers of the pack's fragments before.
    pub fn next_pack_order(&mut self) -> u64 {
        // A pack that an earlier mount wrote is live only if a durable group says so, and no group has as many packs.
        self.pack_order = (self.pack_order + 1).max(self.durable_sequence << PACKS_OF_GROUP_BITS);
        self.pack_order
    }

    /// Stores fragments, and counts them in the blocks that hold them.
    pub(super) fn store_fragments(&mut self, fragments: &[StoredFragment]) {
        let mut holders = Holders::default();
        for StoredFragment { block: StoredBlock { pbn, tag, fingerprint }, place } in fragments {
            let page = self.table.edit(page_of(*pbn));
            assert_eq!(page.count(*pbn), 0, "fragment {pbn} replaces a live one");
            page.set(*pbn, &Entry { tag: *tag, fingerprint: *fingerprint, count: 1, flags: 0 });
            page.set_fragment_place(*pbn, *place);
            self.fragment_totals.fragments += 1;
            self.fragment_totals.bytes += u64::from(place.bytes);
            self.group.push(&Op::Fragment { pbn: *pbn, place: *place, tag: *tag, fingerprint: *fingerprint });
            self.enter_holders(*pbn, *place, &mut holders);
        }
        holders.log(&mut self.group);
    }

    /// Gives fragments their new places. What only their old places kept in use becomes free.
    pub(super) fn move_fragments(&mut self, moves: &[MovedFragment]) {
        let mut holders = Holders::default();
        let mut freed = 0;
        for MovedFragment { pbn, from, to, .. } in moves {
            freed += self.leave_holders(*pbn, *from, &mut holders);
            self.enter_holders(*pbn, *to, &mut holders);
            self.table.edit(page_of(*pbn)).set_fragment_place(*pbn, *to);
            self.group.push(&Op::Place { pbn: *pbn, place: *to });
        }
        holders.log(&mut self.group);
        self.totals.used = self.totals.used - Blocks(freed);
    }

    /// Releases a fragment that lost its last reference. Returns how many blocks became free.
    pub(super) fn free_fragment(&mut self, pbn: Pbn, holders: &mut Holders) -> u64 {
        let place = self.table.fragment_place(pbn);
        let bytes = place.map_or(0, |place| u64::from(place.bytes));
        // After damage, fsck counts them anew.
        let totals = &mut self.fragment_totals;
        totals.fragments = totals.fragments.saturating_sub(1);
        totals.bytes = totals.bytes.saturating_sub(bytes);
        self.fragment_bytes_freed += bytes;
        place.map_or(0, |place| self.leave_holders(pbn, place, holders))
    }

    /// Counts a fragment in the blocks of a place.
    fn enter_holders(&mut self, fragment: Pbn, place: FragmentPlace, holders: &mut Holders) {
        for holder in place.holders() {
            let page = self.table.edit(page_of(holder));
            let entry = page.entry(holder);
            assert!(entry.count == 0 || entry.is_pack(), "fragment {fragment} is placed over block {holder}");
            let is_new = entry.count == 0;
            let entry = if is_new { Entry { flags: PACK, ..Entry::default() } } else { entry };
            let added = if holder == place.pack_end() { u64::from(place.bytes) } else { 0 };
            let entry = Entry { count: entry.count + 1, tag: Tag(entry.tag.0 + added), ..entry };
            page.set(holder, &entry);
            if is_new {
                self.totals.used += Blocks(1);
                self.fragment_totals.blocks += 1;
                self.group.push(&Op::Pack { pbn: holder, blocks: 1 });
            }
            holders.set(holder, entry);
        }
    }

    /// Subtracts a fragment from the blocks of a place. Returns how many of them became free.
    fn leave_holders(&mut self, fragment: Pbn, place: FragmentPlace, holders: &mut Holders) -> u64 {
        let mut freed = 0;
        for holder in place.holders() {
            let page = self.table.edit(page_of(holder));
            let entry = page.entry(holder);
            assert!(entry.count > 0, "fragment {fragment} leaves block {holder}, which holds none");
            let taken = if holder == place.pack_end() { u64::from(place.bytes) } else { 0 };
            let entry = Entry { count: entry.count - 1, tag: Tag(entry.tag.0.saturating_sub(taken)), ..entry };
            page.set(holder, &entry);
            holders.set(holder, entry);
            if entry.count == 0 {
                self.group.free(holder);
                self.fragment_totals.blocks = self.fragment_totals.blocks.saturating_sub(1);
                freed += 1;
            }
        }
        freed
    }
}
