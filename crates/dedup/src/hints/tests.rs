//! The hint store against a model that is obviously right, and its memory measured.
//! Not covered: tags that are not spread evenly, which the volume's secret rules out.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// A xorshift generator: the same numbers every run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 16) % end
    }
}

/// The tag of content number `content`, spread as XXH3 spreads it.
fn tag_of(content: u64) -> Tag {
    let mixed = (content + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Tag(mixed ^ mixed >> 32)
}

type Model = BTreeMap<u64, BTreeSet<Pbn>>;

fn candidates(store: &mut HintStore, tag: Tag) -> Vec<Pbn> {
    let mut pbns = Vec::new();
    store.lookup(tag, &mut pbns);
    pbns
}

fn model_insert(model: &mut Model, content: u64, pbn: Pbn) -> bool {
    let holders = model.entry(content).or_default();
    holders.len() < HOLDERS_MAX && holders.insert(pbn)
}

fn assert_holds_exactly(store: &mut HintStore, model: &Model) {
    for (&content, holders) in model {
        let expected: Vec<Pbn> = holders.iter().copied().collect();
        assert_eq!(candidates(store, tag_of(content)), expected, "content {content}");
    }
    assert_eq!(store.len(), model.values().map(BTreeSet::len).sum::<usize>());
}

#[test]
fn a_store_with_room_agrees_with_the_model() {
    for seed in 1..=8 {
        let mut numbers = Numbers(seed * 0x1234_5678_9ABC_DEF1);
        let (mut store, mut model) = (HintStore::with_bytes_max(64 << 20), Model::new());
        let contents = 100 << (2 * (seed % 4));
        for step in 0..60_000 {
            let (content, pbn) = (numbers.below(contents), Pbn(numbers.below(30) << 35 | 7));
            if numbers.below(3) == 0 {
                let removed = model.get_mut(&content).is_some_and(|holders| holders.remove(&pbn));
                assert_eq!(store.remove(tag_of(content), pbn), removed, "seed {seed} step {step}");
            } else {
                let added = model_insert(&mut model, content, pbn);
                let inserted = store.insert(tag_of(content), pbn);
                assert_eq!(inserted, Inserted { added, evicted: 0 }, "seed {seed} step {step}");
            }
            if step % 10_000 == 0 {
                store.check();
            }
        }
        store.check();
        assert_holds_exactly(&mut store, &model);
    }
}

#[test]
fn a_full_store_keeps_its_bound_and_accounts_for_every_hint() {
    for bytes_max in [8_400, 20_000, 100_000, 3_500_000] {
        let mut numbers = Numbers(bytes_max);
        let (mut store, mut model) = (HintStore::with_bytes_max(bytes_max), Model::new());
        let (mut added, mut removed, mut evicted) = (0, 0, 0);
        for step in 0..bytes_max / 3 {
            let (content, pbn) = (numbers.below(bytes_max), Pbn(numbers.below(1 << 40)));
            let inserted = store.insert(tag_of(content), pbn);
            added += usize::from(inserted.added);
            evicted += inserted.evicted;
            model.entry(content).or_default().insert(pbn);
            if numbers.below(4) == 0 {
                removed += usize::from(store.remove(tag_of(content), pbn));
            }
            candidates(&mut store, tag_of(numbers.below(bytes_max)));
            assert!(store.bytes() <= bytes_max, "step {step}");
            if step % (bytes_max / 30) == 0 {
                store.check();
            }
        }
        store.check();
        assert!(evicted > 0 && removed > 0, "the test has to reach the bound of {bytes_max}");
        assert_eq!(added, store.len() + removed + evicted, "bound {bytes_max}");
        let idle = bytes_max - store.bytes();
        assert!(idle < (bytes_max / 10).max(10_000), "{idle} of {bytes_max} lie idle");
        let looked_up = model.iter().map(|(&content, held)| (candidates(&mut store, tag_of(content)), held));
        let wrong = looked_up.filter(|(found, held)| found.iter().any(|pbn| !held.contains(pbn))).count();
        assert!(wrong <= model.len() / 10_000, "{wrong} of {} look-ups matched falsely", model.len());
    }
}

#[test]
fn candidates_do_not_depend_on_the_order_of_insertion() {
    let (mut up, mut down) = (HintStore::with_bytes_max(1 << 20), HintStore::with_bytes_max(1 << 20));
    for pbn in 0..HOLDERS_MAX as u64 {
        up.insert(tag_of(1), Pbn(pbn));
        down.insert(tag_of(1), Pbn(HOLDERS_MAX as u64 - 1 - pbn));
    }
    assert_eq!(candidates(&mut up, tag_of(1)), candidates(&mut down, tag_of(1)));
    assert_eq!(up.len(), HOLDERS_MAX);
}

#[test]
fn a_content_with_many_holders_keeps_only_so_many() {
    let mut store = HintStore::with_bytes_max(1 << 20);
    let added = (0..1_000).filter(|&pbn| store.insert(tag_of(1), Pbn(pbn)).added).count();
    assert_eq!((added, store.len()), (HOLDERS_MAX, HOLDERS_MAX));
    store.check();
}

#[test]
fn a_group_in_use_outlives_groups_that_are_not() {
    let mut store = HintStore::with_bytes_max(1 << 20);
    store.insert(tag_of(0), Pbn(1));
    let mut evicted = 0;
    for content in 1..500_000 {
        assert_eq!(candidates(&mut store, tag_of(0)), [Pbn(1)], "after {content}");
        evicted += store.insert(tag_of(content), Pbn(content)).evicted;
    }
    assert!(evicted > 300_000);
}

#[test]
fn the_widest_pbn_is_kept_and_a_wider_one_refused() {
    let mut store = HintStore::with_bytes_max(1 << 20);
    let widest = Pbn((1 << 40) - 1);
    assert!(store.insert(tag_of(1), widest).added);
    assert!(!store.insert(tag_of(1), widest.plus(1)).added);
    assert!(!store.remove(tag_of(1), widest.plus(1)));
    assert_eq!(candidates(&mut store, tag_of(1)), [widest]);
}

#[test]
fn a_store_too_small_for_anything_holds_nothing() {
    for bytes_max in [0, 1, 8_191, 8_192, 8_281] {
        let mut store = HintStore::with_bytes_max(bytes_max);
        for content in 0..100 {
            assert_eq!(store.insert(tag_of(content), Pbn(1)), Inserted::default());
            assert!(!store.remove(tag_of(content), Pbn(1)));
            assert_eq!(candidates(&mut store, tag_of(content)), []);
        }
        store.check();
    }
}

#[test]
fn memory_is_given_back_when_hints_go() {
    let mut store = HintStore::with_bytes_max(16 << 20);
    let empty = store.bytes();
    (0..500_000).for_each(|n| assert!(store.insert(tag_of(n), Pbn(n)).added));
    (0..500_000).for_each(|n| assert!(store.remove(tag_of(n), Pbn(n))));
    assert!(store.bytes() < 1 << 20, "{} bytes for nothing", store.bytes());
    store.check();
    store.clear();
    assert_eq!((store.len(), store.bytes()), (0, empty));
}

#[test]
fn the_largest_bound_costs_little_while_the_store_is_empty() {
    let store = HintStore::with_bytes_max(u64::MAX);
    assert!(store.bytes() <= 2 << 20, "{} bytes", store.bytes());
}

#[test]
fn a_hint_takes_at_most_eleven_bytes() {
    for hints in [300_000, 1_000_000] {
        let mut store = HintStore::with_bytes_max(1 << 30);
        (0..hints).for_each(|n| assert!(store.insert(tag_of(n), Pbn(n)).added));
        let bytes_per_hint = store.bytes() as f64 / hints as f64;
        assert!(bytes_per_hint <= 11.0, "{bytes_per_hint:.2} bytes at {hints} hints");
    }
}
