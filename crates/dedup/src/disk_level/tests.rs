//! The disk level against a set of hints that is obviously right, and its pages counted.
//! Not covered: a page's bytes, which the engine owns.

use std::collections::BTreeSet;

use super::*;
use crate::counts::gate_or_drill;
use crate::random::Random;
use crate::{Eviction, HintOptions, HintStore, Sample};

/// The tag of content number `content`, spread as XXH3 spreads it.
fn tag_of(content: u64) -> Tag {
    let mixed = (content + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Tag(mixed ^ mixed >> 32)
}

fn hint(content: u64, pbn: u64) -> Hint {
    Hint::new(tag_of(content), Pbn(pbn))
}

fn ascending(mut hints: Vec<Hint>) -> Vec<Hint> {
    hints.sort_unstable();
    hints
}

/// No holder is better than another.
fn all_alike(hints: &[Hint]) -> Vec<u32> {
    vec![1; hints.len()]
}

/// The level, its pages and its expected content.
struct Twin {
    level: DiskLevel,
    pages: MemoryPages,
    model: BTreeSet<Hint>,
}

impl Twin {
    fn new(page_hints_max: usize) -> Self {
        Self { level: DiskLevel::new(page_hints_max), pages: MemoryPages::default(), model: BTreeSet::new() }
    }

    fn merge(&mut self, hints: Vec<Hint>) -> Merged {
        let hints = ascending(hints);
        let new = hints.iter().filter(|&&hint| self.model.insert(hint)).count() as u64;
        let before = (self.pages.reads, self.pages.writes);
        let merged = self.level.merge(&mut self.pages, &hints, all_alike).unwrap();
        let after = (before.0 + merged.pages_read, before.1 + merged.pages_written);
        assert_eq!((self.pages.reads, self.pages.writes), after, "{merged:?}");
        assert_eq!((merged.added, merged.dropped, merged.lost), (new, 0, 0));
        merged
    }

    /// Sweeps to the end, keeping what the predicate keeps.
    fn sweep(&mut self, is_live: impl Fn(&Hint) -> bool) -> u64 {
        let mut cursor = Some(Tag(0));
        let mut discarded = 0;
        while let Some(tag) = cursor {
            let live = |hints: &[Hint]| hints.iter().map(&is_live).collect();
            let swept = self.level.sweep(&mut self.pages, tag, live).unwrap();
            assert!(swept.pages_read <= 2 && swept.pages_written <= 2, "{swept:?}");
            discarded += swept.pages_discarded;
            cursor = swept.next;
        }
        self.model.retain(is_live);
        discarded
    }

    /// Forgets the directory and rebuilds it from the pages.
    fn remount(&mut self, backwards: bool) {
        let max = self.level.page_hints_max;
        let mut found: Vec<(PageNo, HintPage)> =
            self.pages.contents().map(|(page, content)| (page, content.clone())).collect();
        if backwards {
            found.reverse();
        }
        let end = self.level.pages_end();
        let mut adoption = Adoption::new(max);
        found.iter().for_each(|(page, content)| adoption.adopt(*page, content.prefix, content.hints.len()));
        self.level = adoption.finish(&mut self.pages, end).unwrap();
    }

    fn all_hints(&mut self) -> Vec<Hint> {
        let pages: Vec<(Prefix, PageNo)> = self.level.directory.pages().collect();
        pages.iter().flat_map(|&(prefix, page)| read_intact(&mut self.pages, page, prefix).unwrap().unwrap()).collect()
    }

    fn check(&mut self) {
        self.level.check(&mut self.pages);
        assert_eq!(self.level.len(), self.model.len() as u64);
        assert!(self.all_hints().into_iter().eq(self.model.iter().copied()));
        assert_eq!(self.pages.contents().count() as u32, self.level.pages(), "discarded pages take no space");
    }
}

#[test]
fn random_merges_sweeps_and_remounts_agree_with_the_model() {
    for seed in 1..=gate_or_drill(4, 40) {
        let mut numbers = Random::new(seed);
        let mut twin = Twin::new([16, 40, 452, 581][seed as usize % 4]);
        for step in 0..200 {
            match numbers.below(40) {
                0 => {
                    let residue = numbers.below(3);
                    twin.sweep(|hint| hint.pbn.0 % 3 == residue);
                }
                1 => twin.remount(step % 2 == 0),
                2 => twin.level.set_page_hints_max(20 + numbers.below(600) as usize),
                _ => {
                    let count = 1 + numbers.below(4_000);
                    let batch = (0..count).map(|_| hint(numbers.below(200_000), numbers.below(5)));
                    twin.merge(batch.collect());
                }
            }
            if step % 20 == 0 {
                twin.check();
            }
        }
        twin.check();
        println!("seed {seed}: {} hints in {} pages", twin.level.len(), twin.level.pages());
    }
}

#[test]
fn a_look_up_reads_one_page_at_most_and_none_where_there_are_no_hints() {
    let mut twin = Twin::new(509);
    twin.merge((0..100_000).map(|content| hint(content, content)).collect());
    let mut absent = 0;
    for content in 0..3_000 {
        let mut pbns = Vec::new();
        let looked_up = twin.level.lookup_one(&mut twin.pages, tag_of(content), &mut pbns).unwrap();
        assert_eq!((pbns, looked_up.pages_read), (vec![Pbn(content)], 1));
    }
    twin.sweep(|hint| hint.tag.0 >> 63 == 0);
    for content in 0..3_000 {
        let mut pbns = Vec::new();
        let looked_up = twin.level.lookup_one(&mut twin.pages, tag_of(content), &mut pbns).unwrap();
        let expected = tag_of(content).0 >> 63 == 0;
        assert_eq!((pbns.len(), looked_up.pages_read), (usize::from(expected), u64::from(expected)));
        assert_eq!(twin.level.locate(tag_of(content)).is_some(), expected);
        absent += u64::from(!expected);
    }
    assert!(absent > 1_000);
}

#[test]
fn a_sorted_batch_of_tags_reads_every_page_once() {
    let mut twin = Twin::new(509);
    twin.merge((0..100_000).flat_map(|content| [hint(content, content), hint(content, 7)]).collect());
    let mut tags: Vec<Tag> = (50_000..150_000).map(tag_of).chain([tag_of(60_000)]).collect();
    tags.sort_unstable();
    let mut found = Vec::new();
    let looked_up = twin.level.lookup(&mut twin.pages, &tags, &mut found).unwrap();
    let expected: BTreeSet<Hint> =
        (50_000..100_000).flat_map(|content| [hint(content, content), hint(content, 7)]).collect();
    assert!(found.into_iter().eq(expected), "every hint of the tags, once, ascending");
    assert_eq!(looked_up.pages_read, u64::from(twin.level.pages()));
}

#[test]
fn a_merge_that_changes_nothing_writes_nothing() {
    let mut twin = Twin::new(509);
    let hints: Vec<Hint> = (0..10_000).map(|content| hint(content, 1)).collect();
    twin.merge(hints.clone());
    let again = twin.merge(hints);
    assert_eq!((again.added, again.pages_written), (0, 0));
    assert_eq!(again.pages_read, u64::from(twin.level.pages()));
}

#[test]
fn so_many_holders_of_one_tag_are_kept_and_no_more() {
    let mut level = DiskLevel::new(452);
    let mut pages = MemoryPages::default();
    let hints: Vec<Hint> = (0..1_000).map(|pbn| hint(1, pbn)).collect();
    let merged = level.merge(&mut pages, &hints, all_alike).unwrap();
    assert_eq!((merged.added, merged.dropped), (1_000, 1_000 - HOLDERS_MAX as u64));
    let mut pbns = Vec::new();
    level.lookup_one(&mut pages, tag_of(1), &mut pbns).unwrap();
    assert!(pbns.into_iter().eq((0..HOLDERS_MAX as u64).map(Pbn)));
    level.check(&mut pages);
}

#[test]
fn of_too_many_holders_the_stale_ones_leave_first_and_those_with_few_references_next() {
    let (mut level, mut pages) = (DiskLevel::new(400), MemoryPages::default());
    let tag = Tag(7 << 40);
    let holders = |pbns: std::ops::Range<u64>| pbns.map(|pbn| Hint::new(tag, Pbn(pbn))).collect::<Vec<_>>();
    let nobody_asks = |_: &[Hint]| -> Vec<u32> { panic!("there is room for all") };
    let (first, other) = (holders(0..HOLDERS_MAX as u64), Hint::new(Tag(9 << 40), Pbn(3)));
    level.merge(&mut pages, &[first, vec![other]].concat(), nobody_asks).unwrap();
    // The even ones are stale; of the others the higher ones are worth more.
    let worth = |hints: &[Hint]| {
        assert!(
            hints.iter().all(|hint| hint.tag == Hint::new(tag, Pbn(0)).tag),
            "asked of the content concerned alone"
        );
        hints.iter().map(|hint| if hint.pbn.0.is_multiple_of(2) { 0 } else { hint.pbn.0 as u32 / 10 + 1 }).collect()
    };
    let merged = level.merge(&mut pages, &holders(16..37), worth).unwrap();
    assert_eq!((merged.added, merged.dropped), (21, 21));
    let mut pbns = Vec::new();
    level.lookup_one(&mut pages, tag, &mut pbns).unwrap();
    // 18 are odd: of the five below 10, those with the lowest pbns stay.
    let kept: Vec<u64> = (1..37).filter(|pbn| pbn % 2 == 1 && ![7, 9].contains(pbn)).collect();
    assert_eq!(pbns.iter().map(|pbn| pbn.0).collect::<Vec<_>>(), kept);
    level.check(&mut pages);
}

#[test]
fn a_page_that_cannot_be_split_drops_what_it_has_no_room_for() {
    let mut level = DiskLevel::new(20);
    let mut pages = MemoryPages::default();
    // They agree in 38 bits, more than the longest prefix has.
    let hints = ascending((0..40).map(|n| Hint::new(Tag(0xABCD_EF01_2000_0000 | (n % 4) << 24), Pbn(n))).collect());
    let merged = level.merge(&mut pages, &hints, all_alike).unwrap();
    assert_eq!((merged.added, merged.dropped, merged.pages_written, level.len()), (40, 20, 1, 20));
    assert!(level.bytes() < 16 << 10, "{} bytes", level.bytes());
    level.check(&mut pages);
}

#[test]
fn a_damaged_page_is_replaced_and_costs_its_hints_only() {
    let mut twin = Twin::new(509);
    twin.merge((0..50_000).map(|content| hint(content, content)).collect());
    let victim = tag_of(77);
    let page = twin.level.locate(victim).unwrap();
    let (prefix, _) = twin.level.directory.region(victim);
    let held = twin.level.table.hints_in(page) as u64;
    twin.pages.damage(page);
    let mut pbns = Vec::new();
    let looked_up = twin.level.lookup_one(&mut twin.pages, victim, &mut pbns).unwrap();
    assert_eq!((pbns.len(), looked_up.pages_damaged), (0, 1));
    let merged = twin.level.merge(&mut twin.pages, &[Hint::new(victim, Pbn(5))], all_alike).unwrap();
    assert_eq!((merged.added, merged.lost, merged.pages_damaged, merged.pages_written), (1, held, 1, 1));
    assert_eq!(twin.level.locate(victim), Some(page));
    twin.model.retain(|hint| !prefix.holds(hint.tag));
    twin.model.insert(Hint::new(victim, Pbn(5)));
    twin.check();
}

#[test]
fn a_page_of_another_prefix_or_out_of_order_counts_as_damaged() {
    let mut twin = Twin::new(509);
    twin.merge((0..50_000).map(|content| hint(content, content)).collect());
    let (page, other) = (twin.level.locate(Tag(0)).unwrap(), twin.level.locate(Tag(u64::MAX)).unwrap());
    let mut content = twin.pages.read(other).unwrap().unwrap();
    twin.pages.write(page, &content).unwrap();
    content.hints.reverse();
    twin.pages.write(other, &content).unwrap();
    for tag in [Tag(0), Tag(u64::MAX)] {
        let looked_up = twin.level.lookup(&mut twin.pages, &[tag], &mut Vec::new()).unwrap();
        assert_eq!((looked_up.pages_read, looked_up.pages_damaged), (1, 1));
    }
}

#[test]
fn the_level_shrinks_with_its_hints() {
    let mut twin = Twin::new(509);
    twin.merge((0..1_000_000).map(|content| hint(content, content)).collect());
    let (pages, bytes) = (twin.level.pages(), twin.level.bytes());
    let discarded = twin.sweep(|hint| hint.pbn.0 % 16 == 0);
    assert!(discarded >= u64::from(pages) / 2, "{discarded} of {pages} in the first pass");
    for _ in 0..4 {
        twin.sweep(|_| true);
    }
    twin.check();
    assert!(twin.level.pages() <= pages / 8, "{} pages for a sixteenth of what {pages} held", twin.level.pages());
    assert!(twin.level.bytes() < bytes);
    twin.sweep(|_| false);
    twin.check();
    assert_eq!((twin.level.pages(), twin.level.len()), (0, 0));
    let reused = twin.merge(vec![hint(1, 1)]);
    assert_eq!((reused.pages_written, twin.level.locate(tag_of(1))), (1, Some(PageNo(0))));
    twin.level.clear(&mut twin.pages).unwrap();
    twin.model.clear();
    twin.check();
}

#[test]
fn adoption_survives_lost_and_contradicting_pages_in_any_order() {
    for seed in 1..=12 {
        let mut numbers = Random::new(seed);
        let mut twin = Twin::new(40);
        for _ in 0..10 {
            twin.merge((0..500).map(|_| hint(numbers.below(1 << 30), 1)).collect());
        }
        let mut found: Vec<(PageNo, Prefix, usize)> =
            twin.pages.contents().map(|(page, content)| (page, content.prefix, content.hints.len())).collect();
        let end = twin.level.pages_end();
        // Some are lost, and some were not overwritten when their hints moved to longer or equal prefixes.
        found.retain(|_| numbers.below(10) != 0);
        for extra in 0..50 {
            let depth = DEPTH_MIN + numbers.below(6) as u32;
            found.push((PageNo(end + extra), Prefix::of(Tag(numbers.word()), depth), 3));
        }
        let adopt = |found: &[(PageNo, Prefix, usize)]| {
            let mut adoption = Adoption::new(40);
            found.iter().for_each(|&(page, prefix, hints)| adoption.adopt(page, prefix, hints));
            adoption.finish(&mut MemoryPages::default(), end + 50).unwrap()
        };
        let level = adopt(&found);
        let adopted: Vec<(Prefix, PageNo)> = level.directory.pages().collect();
        level.directory.check();
        level.table.check();
        for &(page, prefix, _) in &found {
            let rivals = found.iter().filter(|&&(other, other_prefix, _)| {
                let overlap = prefix.holds(other_prefix.first_tag()) && other_prefix.depth >= prefix.depth;
                overlap && (other_prefix.depth, page) > (prefix.depth, other)
            });
            assert_eq!(level.table.is_used(page), rivals.count() == 0, "seed {seed}: {page:?} of {prefix:?}");
        }
        for _ in 0..5 {
            let last = found.len() - 1;
            (0..=last).for_each(|place| found.swap(place, numbers.below(last as u64 + 1) as usize));
            let again = adopt(&found);
            assert!(again.directory.pages().eq(adopted.iter().copied()), "seed {seed}");
            assert_eq!(again.len(), level.len(), "seed {seed}");
        }
    }
}

#[test]
fn nonsense_is_not_adopted() {
    let mut adoption = Adoption::new(509);
    adoption.adopt(PageNo(0), Prefix { bits: 0, depth: 7 }, 3);
    adoption.adopt(PageNo(1), Prefix { bits: 0, depth: 27 }, 3);
    adoption.adopt(PageNo(2), Prefix { bits: 256, depth: 8 }, 3);
    adoption.adopt(PageNo(3), Prefix { bits: 255, depth: 8 }, 0);
    adoption.adopt(PageNo(4), Prefix { bits: 255, depth: 8 }, 3);
    let mut pages = MemoryPages::default();
    let level = adoption.finish(&mut pages, 7).unwrap();
    assert_eq!((level.pages(), level.len(), level.pages_end(), pages.discards), (1, 3, 7, 4));
    level.table.check();
}

/// Pages of which every `fail_every`-th write fails.
struct FailingPages {
    pages: MemoryPages,
    fail_every: u64,
}

impl HintPages for FailingPages {
    type Error = String;

    fn read(&mut self, page: PageNo) -> Result<Option<HintPage>, String> {
        Ok(self.pages.read(page).unwrap())
    }

    fn write(&mut self, page: PageNo, content: &HintPage) -> Result<(), String> {
        self.pages.write(page, content).unwrap();
        if self.pages.writes.is_multiple_of(self.fail_every) {
            self.pages.damage(page);
            return Err(format!("write {}", self.pages.writes));
        }
        Ok(())
    }

    fn discard(&mut self, page: PageNo) -> Result<(), String> {
        self.pages.discard(page).unwrap();
        Ok(())
    }
}

#[test]
fn a_failed_write_costs_hints_but_no_consistency() {
    let mut pages = FailingPages { pages: MemoryPages::default(), fail_every: 13 };
    let mut level = DiskLevel::new(40);
    let mut numbers = Random::new(1);
    let (mut failed, mut given) = (0, BTreeSet::new());
    for step in 0..300 {
        let batch = ascending((0..100).map(|_| hint(numbers.below(1 << 20), 1)).collect());
        given.extend(batch.iter().copied());
        failed += usize::from(level.merge(&mut pages, &batch, all_alike).is_err());
        if step % 10 == 0 {
            let live = |hints: &[Hint]| hints.iter().map(|hint| hint.tag.0 >> 30 & 3 != 0).collect();
            failed += usize::from(level.sweep(&mut pages, tag_of(step), live).is_err());
        }
        level.check(&mut pages);
    }
    let found: Vec<Hint> =
        level.directory.pages().flat_map(|(_, page)| pages.read(page).unwrap().unwrap().hints).collect();
    assert!(failed > 10 && !found.is_empty(), "{failed} failed");
    assert!(found.iter().all(|hint| given.contains(hint)));
}

/// Inserts `contents` new hints into a memory level of this many bytes and demotes the evicted ones. Returns pages
/// written per demoted hint, over the second half.
fn demote(bytes_max: u64, prefix_bits: Option<u32>, eviction: Eviction, contents: u64) -> f64 {
    let mut store =
        HintStore::new(HintOptions { bytes_max, prefix_bits, eviction, keep_evicted: true, sample: Sample::ALL });
    let mut twin = Twin::new(509);
    let (mut demoted, mut written) = (0, 0);
    for content in 0..contents {
        store.insert(tag_of(content), Pbn(content));
        if content % 64 == 63 {
            let evicted = store.take_evicted();
            let measured = content > contents / 2;
            demoted += if measured { evicted.len() } else { 0 };
            let merged = twin.merge(evicted);
            written += if measured { merged.pages_written } else { 0 };
            store.set_eviction_range_bits(Some(twin.level.eviction_range_bits()));
        }
    }
    let per_hint = written as f64 / demoted as f64;
    println!(
        "{eviction:?} {prefix_bits:?}: {} hints in memory ({:.2} bytes each), {} on disk in {} pages ({} bytes of memory), {per_hint:.5} pages written per demoted hint",
        store.len(),
        store.bytes() as f64 / store.len() as f64,
        twin.level.len(),
        twin.level.pages(),
        twin.level.bytes(),
    );
    assert_eq!(store.len() as u64 + twin.level.len(), contents, "every hint is on one of the levels");
    store.check();
    twin.check();
    per_hint
}

#[test]
fn neighbours_evicted_together_share_their_page_writes() {
    let grouped = demote(3 << 20, Some(14), Eviction::ColdOfGroups, 2_000_000);
    let whole = demote(3 << 20, Some(14), Eviction::Groups, 2_000_000);
    let growing = demote(3 << 20, None, Eviction::ColdOfGroups, 2_000_000);
    let single = demote(3 << 20, None, Eviction::Singles, 320_000);
    for pages_per_hint in [grouped, whole, growing] {
        assert!(pages_per_hint < 0.02, "{pages_per_hint} pages per demoted hint");
        assert!(pages_per_hint < single / 20.0, "{pages_per_hint} against {single} for single hints");
    }
}
