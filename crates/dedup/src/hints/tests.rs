//! The hint store against a model that is obviously right, and its memory measured.
//! Not covered: tags that are not spread evenly, which the volume's secret rules out.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::random::Random;

/// The tag of content number `content`, spread as XXH3 spreads it.
fn tag_of(content: u64) -> Tag {
    let mixed = (content + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Tag(mixed ^ mixed >> 32)
}

const POLICIES: [Eviction; 3] = [Eviction::Groups, Eviction::ColdOfGroups, Eviction::Singles];

fn keeping(bytes_max: u64, prefix_bits: Option<u32>, eviction: Eviction) -> HintStore {
    HintStore::new(HintOptions { bytes_max, prefix_bits, eviction, keep_evicted: true, sample: Sample::ALL })
}

fn hint(content: u64) -> Hint {
    Hint::new(tag_of(content), Pbn(content))
}

/// All hints of the store, batch by batch.
fn drain(store: &mut HintStore) -> Vec<Hint> {
    let mut all = Vec::new();
    loop {
        let batch = store.drain_next();
        assert!(batch.is_sorted_by(|a, b| a < b), "a batch is ascending");
        store.check();
        if batch.is_empty() {
            return all;
        }
        all.extend(batch);
    }
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
        let mut numbers = Random::new(seed);
        let (mut store, mut model) = (HintStore::with_bytes_max(64 << 20), Model::new());
        let contents = 100 << (2 * (seed % 4));
        for step in 0..60_000 {
            let (content, pbn) = (numbers.below(contents), Pbn(numbers.below(30) << 34 | 7));
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
        let mut numbers = Random::new(bytes_max);
        let (mut store, mut model) = (HintStore::with_bytes_max(bytes_max), Model::new());
        let (mut added, mut removed, mut evicted) = (0, 0, 0);
        for step in 0..bytes_max / 3 {
            let (content, pbn) = (numbers.below(bytes_max), Pbn(numbers.below(1 << 39)));
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
    let widest = Pbn((1 << 39) - 1);
    assert!(store.insert(tag_of(1), widest).added);
    assert!(!store.insert(tag_of(1), widest.plus(1)).added);
    assert!(!store.remove(tag_of(1), widest.plus(1)));
    assert_eq!(candidates(&mut store, tag_of(1)), [widest]);
}

#[test]
fn a_store_too_small_for_anything_holds_nothing() {
    for bytes_max in [0, 1, 6_143, 6_144, 6_200] {
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

#[test]
fn every_hint_is_held_removed_or_handed_out() {
    for eviction in POLICIES {
        for (prefix_bits, bytes_max) in [(None, 60_000), (Some(8), 60_000), (Some(14), 400_000), (Some(24), 60_000)] {
            let mut numbers = Random::new(bytes_max);
            let mut store = keeping(bytes_max, prefix_bits, eviction);
            let mut held = BTreeSet::new();
            for step in 0..50_000 {
                let content = numbers.below(bytes_max);
                if store.insert(tag_of(content), Pbn(content)).added {
                    assert!(held.insert(hint(content)), "{eviction:?} {prefix_bits:?} step {step}");
                }
                let evicted = store.take_evicted();
                assert!(evicted.is_sorted_by(|a, b| a < b));
                evicted.iter().for_each(|hint| assert!(held.remove(hint), "{eviction:?} {prefix_bits:?} step {step}"));
                let content = numbers.below(bytes_max);
                match numbers.below(6) {
                    0 => assert_eq!(store.remove(tag_of(content), Pbn(content)), held.remove(&hint(content))),
                    1 => assert_eq!(
                        candidates(&mut store, tag_of(content)).len(),
                        usize::from(held.contains(&hint(content)))
                    ),
                    _ => (),
                }
                if step % 1_000 == 0 {
                    store.set_eviction_range_bits([None, Some(6), Some(9), Some(12)][numbers.below(4) as usize]);
                }
                if step % 10_000 == 0 {
                    store.check();
                }
            }
            assert_eq!(store.len(), held.len());
            let all: BTreeSet<Hint> = drain(&mut store).into_iter().collect();
            assert_eq!(all, held, "{eviction:?} {prefix_bits:?}");
        }
    }
}

#[test]
fn a_changed_bound_is_kept_and_loses_no_hint() {
    for eviction in POLICIES {
        let mut store = keeping(16 << 20, None, eviction);
        let mut all: BTreeSet<Hint> = (0..200_000).map(hint).collect();
        all.iter().for_each(|hint| assert!(store.insert(hint.tag, hint.pbn).added));
        let mut evicted = Vec::new();
        for bytes_max in [4 << 20, 1 << 20, 30_000, 5_000, 0, 1 << 20] {
            let count = store.set_bytes_max(bytes_max);
            let left = store.take_evicted();
            assert_eq!(left.len(), count, "{eviction:?} {bytes_max}");
            evicted.extend(left);
            store.check();
            assert!(store.bytes() <= bytes_max && store.bytes_max() == bytes_max);
            let used = store.len() as u64 * 48 + 10_000 >= bytes_max.min(store.len() as u64 * 48);
            assert!(used, "{eviction:?}: {} hints in {bytes_max}", store.len());
        }
        assert_eq!(evicted.len(), all.len());
        evicted.iter().for_each(|hint| assert!(all.remove(hint)));
        assert!(store.insert(tag_of(1), Pbn(1)).added, "{eviction:?}: a raised bound makes room again");
    }
}

/// How many of 1,000 contents in use the store still holds after many others were seen once, and how many hints it has.
fn survivors(eviction: Eviction) -> (usize, usize) {
    let mut store = keeping(1 << 20, Some(14), eviction);
    for content in 0..1_000 {
        store.insert(tag_of(content), Pbn(content));
    }
    for content in 1_000..400_000 {
        candidates(&mut store, tag_of(content % 1_000));
        store.insert(tag_of(content), Pbn(content));
        store.take_evicted();
    }
    let still = (0..1_000).filter(|&content| !candidates(&mut store, tag_of(content)).is_empty()).count();
    (still, store.len())
}

#[test]
fn hints_in_use_outlive_those_that_are_not() {
    for eviction in POLICIES {
        let (still, held) = survivors(eviction);
        println!("{eviction:?}: {still} of 1000 hints in use are held among {held}");
        assert_eq!(still, 1_000, "{eviction:?}");
    }
}

#[test]
fn a_match_spares_the_group_or_the_hint_itself() {
    for (eviction, neighbour_stays) in [(Eviction::Groups, true), (Eviction::ColdOfGroups, false)] {
        let mut store = keeping(200_000, Some(8), eviction);
        // Two of one group, only one of them in use.
        let (used, neighbour) = (Tag(0x1100 << 48), Tag(0x1101 << 48));
        store.insert(used, Pbn(1));
        store.insert(neighbour, Pbn(2));
        let mut evicted = 0;
        for content in 0.. {
            candidates(&mut store, used);
            store.insert(tag_of(content), Pbn(content));
            let left = store.take_evicted();
            evicted += left.len();
            assert!(!left.contains(&Hint::new(used, Pbn(1))), "{eviction:?} after {content}");
            if left.contains(&Hint::new(neighbour, Pbn(2))) {
                assert!(!neighbour_stays, "{eviction:?} after {content}");
            }
            if evicted > 100_000 {
                break;
            }
        }
        assert_eq!(!candidates(&mut store, neighbour).is_empty(), neighbour_stays, "{eviction:?}");
    }
}

#[test]
fn one_eviction_takes_all_groups_of_a_range() {
    for (range_bits, agree) in [(None, 14), (Some(10), 10), (Some(6), 6), (Some(18), 14)] {
        let mut store = keeping(1 << 20, Some(14), Eviction::ColdOfGroups);
        store.set_eviction_range_bits(range_bits);
        let (mut held, mut ranges) = (BTreeSet::<Hint>::new(), Vec::new());
        for content in 0..300_000 {
            store.insert(tag_of(content), Pbn(content));
            let evicted = store.take_evicted();
            evicted.iter().for_each(|hint| assert!(held.remove(hint)));
            let mut taken: Vec<u64> = evicted.iter().map(|hint| hint.tag.0 >> (64 - agree)).collect();
            taken.dedup();
            for &range in &taken {
                let first = range << (64 - agree);
                let hints = Hint::new(Tag(first), Pbn(0))..=Hint::new(Tag(first | u64::MAX >> agree), Pbn(u64::MAX));
                let stayed = held.range(hints).count();
                assert_eq!(stayed, 0, "{range_bits:?}: hints of range {range} stayed");
            }
            ranges.extend(taken);
            held.insert(hint(content));
        }
        let rounds = 1 + ranges.windows(2).filter(|pair| pair[0] > pair[1]).count();
        println!("{range_bits:?}: {} ranges evicted in {rounds} rounds", ranges.len());
        assert!(ranges.len() > 70 && ranges.len() > (rounds - 2) << (agree - 1), "in prefix order: few rounds");
    }
}

#[test]
fn the_paper_s_sizes_take_so_many_bytes_a_hint() {
    for (bytes_max, prefix_bits) in [(3 << 20, 14), (40 << 20, 18)] {
        let mut store = keeping(bytes_max, Some(prefix_bits), Eviction::ColdOfGroups);
        let (mut when_first_full, mut content) = (0, 0);
        while content < 4 * bytes_max / 10 {
            store.insert(tag_of(content), Pbn(content));
            content += 1;
            if !store.take_evicted().is_empty() && when_first_full == 0 {
                when_first_full = store.len();
            }
        }
        let bytes_per_hint = bytes_max as f64 / store.len() as f64;
        println!(
            "{bytes_max} bytes, {prefix_bits} bits: {} hints, {when_first_full} when first full; {bytes_per_hint:.2} bytes a hint",
            store.len()
        );
        assert!(bytes_per_hint <= 11.0, "{bytes_per_hint:.2} bytes a hint");
    }
}

#[test]
fn a_sampled_store_knows_the_contents_of_its_sample_and_no_others() {
    for eviction in POLICIES {
        let sample = Sample::one_of(64);
        let mut store =
            HintStore::new(HintOptions { bytes_max: 1 << 20, prefix_bits: None, eviction, keep_evicted: true, sample });
        assert_eq!(store.sample(), sample);
        for content in 0..100_000 {
            let (tag, is_in) = (tag_of(content), sample.has(tag_of(content)));
            assert_eq!(store.insert(tag, Pbn(content)), Inserted { added: is_in, evicted: 0 });
            assert_eq!(candidates(&mut store, tag), is_in.then_some(Pbn(content)).into_iter().collect::<Vec<_>>());
            let mut peeked = Vec::new();
            store.peek(tag, &mut peeked);
            assert_eq!(peeked.len(), usize::from(is_in));
        }
        store.check();
        assert!((1_400..1_700).contains(&store.len()), "{} of 100,000 in a sample of 1 of 64", store.len());
        let removed = (0..100_000).filter(|content| store.remove(tag_of(*content), Pbn(*content))).count();
        assert_eq!((store.len(), removed > 1_400), (0, true));
    }
}

/// Hints are grouped by the leading bits of tags, and a sample covers all of these: groups stay full.
#[test]
fn sampled_hints_take_as_many_bytes_each_as_all_hints() {
    for (number, bytes_max) in [(2, 1 << 20), (64, 32 << 20), (1_000, 1 << 20)] {
        let (sample, eviction) = (Sample::one_of(number), Eviction::ColdOfGroups);
        let mut store =
            HintStore::new(HintOptions { bytes_max, prefix_bits: None, eviction, keep_evicted: false, sample });
        let tags = (0..).map(tag_of).map(|tag| Tag(tag.0 - tag.0 % u64::from(number)));
        let mut evicted = 0;
        for (n, tag) in tags.enumerate() {
            evicted += store.insert(tag, Pbn(n as u64)).evicted;
            if evicted > 0 {
                break;
            }
        }
        let bytes_per_hint = store.bytes() as f64 / store.len() as f64;
        let tib = store.len() as f64 * f64::from(number) * 4096.0 / (1_u64 << 40) as f64;
        println!(
            "1 of {number}: {bytes_max} bytes hold {} hints of {bytes_per_hint:.2} bytes when first full, for {tib:.2} TiB",
            store.len()
        );
        assert!(bytes_per_hint <= 11.0, "{bytes_per_hint:.2} bytes a hint");
    }
}

#[test]
fn one_content_of_so_many_is_in_the_sample() {
    for number in [1, 2, 3, 64, 100, 1024] {
        let sample = Sample::one_of(number);
        let contents = 1_000 * u64::from(number);
        let found = (0..contents).filter(|content| sample.has(tag_of(*content))).count();
        assert!((900..=1_100).contains(&found), "{found} of {contents} in a sample of 1 of {number}");
    }
    assert_eq!((Sample::one_of(0), Sample::one_of(1)), (Sample::ALL, Sample::ALL));
}

#[test]
fn what_hints_keep_of_a_tag_says_nothing_about_the_sample() {
    for number in [2, 3, 64, 1000, 1024] {
        let sample = Sample::one_of(number);
        for leading in (0..200).map(tag_of) {
            let kept = Hint::new(leading, Pbn(0)).tag.0;
            let span = 1_u64 << (u64::BITS - TAG_BITS_KEPT);
            let even = span / u64::from(number);
            let first = kept.div_ceil(u64::from(number)) * u64::from(number);
            let found = (kept + span - first).div_ceil(u64::from(number));
            assert!(sample.has(Tag(first)) && found.abs_diff(even) <= 1, "{found} of {span}, 1 of {number}");
        }
    }
}

#[test]
fn a_sample_covers_those_that_leave_out_more() {
    let samples = [1, 2, 3, 6, 64, 1024].map(Sample::one_of);
    for (of, other) in samples.iter().flat_map(|of| samples.map(|other| (*of, other))) {
        let none_is_missed = (0..100_000).map(tag_of).all(|tag| of.has(tag) || !other.has(tag));
        assert_eq!(of.covers(other), none_is_missed, "{of:?} {other:?}");
    }
}

#[test]
#[should_panic(expected = "prefix_bits: Some(7)")]
fn a_prefix_out_of_range_is_refused() {
    keeping(1 << 20, Some(7), Eviction::Groups);
}
