//! Single hints against a list in the order of use that is obviously right, and their cost.

use super::*;
use crate::random::Random;

/// The tag of content number `content`, spread as XXH3 spreads it.
fn tag_of(content: u64) -> Tag {
    let mixed = (content + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    Tag(mixed ^ mixed >> 32)
}

fn found(hints: &mut SingleHints, content: u64) -> Vec<u64> {
    let mut pbns = Vec::new();
    hints.lookup(tag_of(content), &mut pbns);
    pbns.into_iter().map(|pbn| pbn.0).collect()
}

/// Contents and pbns from the least to the most recently used.
#[derive(Default)]
struct Model(Vec<(u64, u64)>);

impl Model {
    fn lookup(&mut self, content: u64) -> Vec<u64> {
        let mut used: Vec<(u64, u64)> = self.0.iter().filter(|hint| hint.0 == content).copied().collect();
        used.sort_unstable();
        self.0.retain(|hint| hint.0 != content);
        self.0.extend(&used);
        used.into_iter().map(|hint| hint.1).collect()
    }

    fn insert(&mut self, content: u64, pbn: u64, hints_max: usize) -> (bool, Option<(u64, u64)>) {
        let holders = self.0.iter().filter(|hint| hint.0 == content).count();
        if holders >= HOLDERS_MAX || self.0.contains(&(content, pbn)) {
            return (false, None);
        }
        let evicted = (self.0.len() == hints_max).then(|| self.0.remove(0));
        self.0.push((content, pbn));
        (true, evicted)
    }

    fn remove(&mut self, content: u64, pbn: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|hint| *hint != (content, pbn));
        self.0.len() < before
    }
}

fn hint(of: (u64, u64)) -> Hint {
    Hint::new(tag_of(of.0), Pbn(of.1))
}

#[test]
fn random_work_agrees_with_a_list_in_the_order_of_use() {
    for seed in 1..=12 {
        println!("seed {seed}");
        let mut numbers = Random::new(seed);
        let hints_max = 40 * seed as usize;
        let mut hints = SingleHints::new(hints_max as u64 * SINGLE_HINT_BYTES + numbers.below(SINGLE_HINT_BYTES), true);
        let mut model = Model::default();
        for _ in 0..6_000 {
            let (content, pbn) = (numbers.below(10 + 20 * seed), numbers.below(20) << 33 | 7);
            match numbers.below(6) {
                0 => assert_eq!(found(&mut hints, content), model.lookup(content)),
                1 => assert_eq!(hints.remove(tag_of(content), Pbn(pbn)), model.remove(content, pbn)),
                _ => {
                    let (added, evicted) = model.insert(content, pbn, hints_max);
                    let inserted = hints.insert(tag_of(content), Pbn(pbn));
                    assert_eq!(inserted, Inserted { added, evicted: evicted.iter().count() });
                    assert_eq!(hints.take_evicted(), evicted.map(hint).into_iter().collect::<Vec<_>>());
                }
            }
        }
        hints.check();
        assert_eq!(hints.len(), model.0.len());
        let order: Vec<Hint> = hints.in_order_of_use().map(|node| hints.node(node).key.hint()).collect();
        assert!(order.into_iter().eq(model.0.iter().copied().map(hint)));
    }
}

#[test]
fn a_lower_bound_takes_the_least_recently_used_and_a_higher_one_makes_room() {
    let mut hints = SingleHints::new(1_000 * SINGLE_HINT_BYTES, true);
    (0..1_000).for_each(|n| assert!(hints.insert(tag_of(n), Pbn(n)).added));
    (0..100).for_each(|n| assert_eq!(found(&mut hints, n), [n]));
    assert_eq!(hints.set_bytes_max(300 * SINGLE_HINT_BYTES), 700);
    hints.check();
    let evicted: Vec<Hint> = (100..800).map(|n| hint((n, n))).collect();
    assert_eq!(hints.take_evicted(), evicted);
    assert_eq!(hints.set_bytes_max(400 * SINGLE_HINT_BYTES), 0);
    (1_000..1_100).for_each(|n| assert_eq!(hints.insert(tag_of(n), Pbn(n)), Inserted { added: true, evicted: 0 }));
    assert_eq!(hints.insert(tag_of(2_000), Pbn(1)), Inserted { added: true, evicted: 1 });
    hints.check();
}

/// The paper's caches (section 5.2): 100, 50 and 25 % of the blocks, chosen by bytes.
#[test]
fn a_cache_holds_as_many_blocks_as_its_bytes_say() {
    let blocks = 100_000;
    for percent in [100, 50, 25] {
        let mut hints = SingleHints::new(blocks * SINGLE_HINT_BYTES / 100 * percent, false);
        let evicted: u64 = (0..blocks).map(|n| hints.insert(tag_of(n), Pbn(n)).evicted as u64).sum();
        assert_eq!((hints.len() as u64, evicted), (blocks / 100 * percent, blocks - blocks / 100 * percent));
        assert_eq!(hints.bytes(), hints.bytes_max());
        let still = (0..blocks).filter(|n| !found(&mut hints, *n).is_empty()).count() as u64;
        assert_eq!(still, hints.len() as u64, "{percent} %: the latest blocks are held, by no other content's hint");
    }
}

#[test]
fn a_store_that_grows_takes_at_most_36_bytes_a_hint() {
    let mut hints = SingleHints::new(1 << 40, false);
    for n in 0..300_000 {
        hints.insert(tag_of(n), Pbn(n));
        let bytes = hints.bytes();
        assert!(n < 5_000 || bytes <= 36 * hints.len() as u64, "{bytes} bytes for {} hints", hints.len());
    }
}

#[test]
fn chains_stay_short() {
    let mut hints = SingleHints::new(1 << 30, false);
    (0..200_000).for_each(|n| assert!(hints.insert(tag_of(n), Pbn(n)).added));
    let longest = hints.chains.iter().map(|first| hints.chain_from(*first).count()).max();
    assert!(longest < Some(16), "{longest:?} nodes in one chain");
}
