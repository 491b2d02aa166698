//! Which blocks enter the read cache and leave it, and what their memory does.

use oncefs_toolbox::Random;

use super::*;

const FILE: MapId = MapId(1);

fn block_of(pbn: u64) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    for (place, word) in block.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&(pbn ^ (place as u64) << 48).to_le_bytes());
    }
    block
}

fn read(cache: &ReadCache, pbn: u64) -> Option<[u8; BLOCK_BYTES]> {
    let mut out = [0xEE; BLOCK_BYTES];
    let found = cache.get(Pbn(pbn), FILE, &mut out).is_some();
    assert!(found || out == [0xEE; BLOCK_BYTES], "a miss leaves the buffer alone");
    found.then_some(out)
}

fn admit_twice(cache: &ReadCache, pbn: u64) {
    (0..2).for_each(|_| admit(cache, pbn, &block_of(pbn)));
}

fn admit(cache: &ReadCache, pbn: u64, block: &[u8]) {
    cache.admit(Pbn(pbn), FILE, block, &Counters::default());
}

fn cache_of_slots(slots: usize) -> ReadCache {
    ReadCache::new((slots * SLOT_BYTES) as u64, (4 * slots * SLOT_BYTES) as u64)
}

fn lend(cache: &ReadCache, slots: usize) {
    cache.lend((slots * SLOT_BYTES) as u64);
    cache.check();
}

#[test]
fn a_block_enters_when_it_is_offered_the_second_time() {
    let cache = cache_of_slots(100);
    admit(&cache, 5, &block_of(5));
    assert_eq!(read(&cache, 5), None);
    admit(&cache, 5, &block_of(5));
    assert_eq!(read(&cache, 5), Some(block_of(5)));
    cache.check();
}

#[test]
fn a_shared_block_enters_at_once_and_knows_for_whom_it_was_read() {
    let cache = cache_of_slots(100);
    cache.admit_awaited(Pbn(5), MapId(9), 1, &block_of(5), &Counters::default());
    assert_eq!(cache.get(Pbn(5), FILE, &mut [0; BLOCK_BYTES]), Some(MapId(9)));
    cache.check();
}

#[test]
fn a_scan_read_once_displaces_nothing() {
    let cache = cache_of_slots(100);
    (1..=50).for_each(|pbn| admit_twice(&cache, pbn));
    (1_000..100_000).for_each(|pbn| admit(&cache, pbn, &block_of(pbn)));
    (1..=50).for_each(|pbn| assert_eq!(read(&cache, pbn), Some(block_of(pbn))));
}

#[test]
fn a_removed_block_is_gone_and_has_to_be_offered_twice_again() {
    let cache = cache_of_slots(100);
    admit_twice(&cache, 5);
    admit(&cache, 6, &block_of(6));
    cache.remove(Pbn(5));
    cache.remove(Pbn(6));
    assert_eq!(read(&cache, 5), None);
    for reused in [5, 6] {
        admit(&cache, reused, &block_of(reused + 100));
        assert_eq!(read(&cache, reused), None);
        admit(&cache, reused, &block_of(reused + 100));
        assert_eq!(read(&cache, reused), Some(block_of(reused + 100)));
    }
    cache.check();
}

#[test]
fn a_block_that_is_read_outlives_blocks_that_are_not() {
    let cache = cache_of_slots(SHARD_SLOTS_MIN);
    (1..=SHARD_SLOTS_MIN as u64).for_each(|pbn| admit_twice(&cache, pbn));
    for pbn in 1_000..1_040 {
        assert!(read(&cache, 7).is_some(), "before {pbn}");
        admit_twice(&cache, pbn);
    }
    assert!(read(&cache, 7).is_some());
    assert!(read(&cache, 1).is_none());
    cache.check();
}

fn admit_awaited(cache: &ReadCache, pbn: u64, awaited: u32, counters: &Counters) {
    cache.admit_awaited(Pbn(pbn), FILE, awaited, &block_of(pbn), counters);
}

fn evicted(counters: &Counters) -> (u64, u64) {
    (counters.cache_evicted_spent.load(Relaxed), counters.cache_evicted_awaited.load(Relaxed))
}

#[test]
fn a_block_that_was_read_for_all_of_its_references_leaves_before_those_that_are_awaited() {
    let (cache, counters) = (cache_of_slots(SHARD_SLOTS_MIN), Counters::default());
    let slots = SHARD_SLOTS_MIN as u64;
    (1..=slots).for_each(|pbn| admit_awaited(&cache, pbn, 1, &counters));
    (slots - 15..=slots).for_each(|pbn| assert!(read(&cache, pbn).is_some()));
    (100..108).for_each(|pbn| admit_awaited(&cache, pbn, 1, &counters));
    assert_eq!(evicted(&counters), (8, 0), "those that were read first, but for an eighth of the slots");
    admit_awaited(&cache, 108, 1, &counters);
    assert_eq!(evicted(&counters), (8, 1));
    let held = |pbns: std::ops::RangeInclusive<u64>| pbns.filter(|pbn| cache.holds(Pbn(*pbn))).count();
    assert_eq!((held(1..=slots - 16), held(slots - 15..=slots - 8), held(slots - 7..=slots)), (47, 0, 8));
    assert_eq!(held(100..=108), 9);
    cache.check();
}

#[test]
fn a_spent_block_that_is_read_again_is_like_any_other_and_a_read_for_no_file_spends_none() {
    let (cache, counters) = (cache_of_slots(SHARD_SLOTS_MIN), Counters::default());
    let slots = SHARD_SLOTS_MIN as u64;
    (1..=slots).for_each(|pbn| admit_awaited(&cache, pbn, 2, &counters));
    for _ in 0..2 {
        (1..=16).for_each(|pbn| assert!(read(&cache, pbn).is_some()));
    }
    (1..=16).for_each(|pbn| assert!(read(&cache, pbn).is_some(), "past the kernel's cache"));
    for pbn in 17..=32 {
        (0..3).for_each(|_| assert!(cache.get(Pbn(pbn), NOBODY, &mut [0; BLOCK_BYTES]).is_some()));
    }
    (100..132).for_each(|pbn| admit_awaited(&cache, pbn, 1, &counters));
    assert_eq!(evicted(&counters), (0, 32));
    assert!((1..=16).all(|pbn| cache.holds(Pbn(pbn))), "the clock spares them once");
    assert!((17..=32).all(|pbn| !cache.holds(Pbn(pbn))), "a read for no file makes no block recent");
    cache.check();
}

#[test]
fn a_spent_block_that_is_read_for_no_file_stays_spent_and_such_a_read_takes_no_reference() {
    let (cache, counters) = (cache_of_slots(SHARD_SLOTS_MIN), Counters::default());
    let slots = SHARD_SLOTS_MIN as u64;
    (1..=slots).for_each(|pbn| admit_awaited(&cache, pbn, 1, &counters));
    for pbn in 1..=16 {
        assert!(read(&cache, pbn).is_some());
        assert!(cache.get(Pbn(pbn), NOBODY, &mut [0; BLOCK_BYTES]).is_some());
    }
    (100..108).for_each(|pbn| admit_awaited(&cache, pbn, 1, &counters));
    assert_eq!(evicted(&counters), (8, 0));
    cache.check();

    let cache = cache_of_slots(SHARD_SLOTS_MIN);
    admit(&cache, 5, &block_of(5));
    cache.admit_awaited(Pbn(5), NOBODY, 2, &block_of(5), &counters);
    let awaited = |cache: &ReadCache| cache.shards[0].lock().slots[0].awaited;
    assert_eq!(awaited(&cache), 2);
    assert!(read(&cache, 5).is_some());
    assert_eq!(awaited(&cache), 1);
}

/// Reads of a file of which every other block repeats an earlier one, which was read about 500 blocks before.
fn hits_of_a_file(enter: impl Fn(&ReadCache, u64, &Counters)) -> u64 {
    let (cache, counters) = (cache_of_slots(512), Counters::default());
    let mut random = Random::new(1);
    let mut unread: Vec<u64> = Vec::new();
    for new in 1..=20_000_u64 {
        let is_repeated = unread.len() >= 500;
        let repeated = is_repeated.then(|| unread.swap_remove(random.below(unread.len() as u64) as usize));
        unread.push(new);
        for pbn in [Some(new), repeated].into_iter().flatten() {
            if read(&cache, pbn).is_none() {
                enter(&cache, pbn, &counters);
            }
        }
    }
    cache.check();
    cache.report().hits
}

#[test]
fn a_file_whose_blocks_are_read_twice_finds_more_of_them() {
    let by_age = hits_of_a_file(|cache, pbn, _| admit_twice(cache, pbn));
    let by_references = hits_of_a_file(|cache, pbn, counters| admit_awaited(cache, pbn, 1, counters));
    assert!(by_references * 10 > by_age * 15, "{by_references} hits, and {by_age} without regard to references");
}

#[test]
fn a_cache_without_budget_holds_and_counts_nothing() {
    for bytes_max in [0, SLOT_BYTES as u64 - 1] {
        let cache = ReadCache::new(bytes_max, bytes_max);
        cache.lend(1 << 20);
        admit_twice(&cache, 5);
        assert_eq!(read(&cache, 5), None);
        cache.remove(Pbn(5));
        let report = cache.report();
        assert_eq!((report.bytes, report.hits, report.misses), (0, 0, 0));
    }
}

#[test]
fn a_cache_of_one_block_works() {
    let cache = cache_of_slots(1);
    admit_twice(&cache, 1);
    admit_twice(&cache, 2);
    assert_eq!((read(&cache, 1), read(&cache, 2)), (None, Some(block_of(2))));
    cache.check();
}

#[test]
fn a_cache_that_grows_keeps_what_it_has_and_takes_more() {
    let cache = cache_of_slots(50);
    (1..=50).for_each(|pbn| admit_twice(&cache, pbn));
    lend(&cache, 100);
    (51..=150).for_each(|pbn| admit_twice(&cache, pbn));
    (1..=150).for_each(|pbn| assert_eq!(read(&cache, pbn), Some(block_of(pbn))));
    cache.check();
    lend(&cache, 1_000);
    (1..=1_000).for_each(|pbn| admit_twice(&cache, pbn));
    cache.check();
    assert_eq!((1..=1_000).filter(|&pbn| read(&cache, pbn).is_some()).count(), 200, "as large as it may ever be");
}

#[test]
fn a_cache_that_shrinks_gives_up_what_was_not_read_lately_and_its_memory() {
    let cache = cache_of_slots(50);
    lend(&cache, 150);
    (1..=200).for_each(|pbn| admit_twice(&cache, pbn));
    cache.remove(Pbn(100));
    (1..=50).for_each(|pbn| assert!(read(&cache, pbn).is_some()));
    lend(&cache, 0);
    (1..=50).for_each(|pbn| assert_eq!(read(&cache, pbn), Some(block_of(pbn))));
    assert_eq!(cache.report().bytes, 50 * SLOT_BYTES as u64);
    let shard = cache.shards[0].lock();
    assert_eq!(shard.bytes.chunks_exact(BLOCK_BYTES).filter(|block| block.iter().any(|byte| *byte > 0)).count(), 50);
}

#[test]
fn memory_goes_back_once_however_often_the_cache_shrinks() {
    let cache = ReadCache::new((16 * SLOT_BYTES) as u64, (200 * SLOT_BYTES) as u64);
    lend(&cache, 100);
    (1..=100).for_each(|pbn| admit_twice(&cache, pbn));
    let calls = || cache.shards.iter().map(|shard| shard.lock().bytes.given_back()).sum::<u64>();
    lend(&cache, 0);
    let once = calls();
    assert!((1..=84).contains(&once), "{once} calls for the slots of 100 blocks");
    for _ in 0..50 {
        lend(&cache, 1);
        lend(&cache, 0);
    }
    assert!(calls() <= once + 2, "{} calls, {once} of them for the first time", calls());
    cache.check();
    lend(&cache, 100);
    (200..300).for_each(|pbn| admit_twice(&cache, pbn));
    assert!((200..300).all(|pbn| read(&cache, pbn) == Some(block_of(pbn))));
    cache.check();
}

#[test]
fn memory_that_no_block_has_yet_stays_below_the_bound_and_goes_back() {
    let cache = cache_of_slots(PREPARED_SLOTS + 4);
    let prepared = || cache.shards[0].lock().prepared;
    admit_twice(&cache, 1);
    assert_eq!(prepared(), PREPARED_SLOTS);
    (2..=PREPARED_SLOTS as u64 + 1).for_each(|pbn| admit_twice(&cache, pbn));
    assert_eq!(prepared(), PREPARED_SLOTS + 4, "no more than may be used");
    lend(&cache, 30);
    lend(&cache, 0);
    assert_eq!(prepared(), PREPARED_SLOTS + 1, "what is lent back takes with it what nobody used");
    (30..60).for_each(|pbn| admit_twice(&cache, pbn));
    assert_eq!(prepared(), PREPARED_SLOTS + 4);
    cache.check();
}

#[test]
fn the_report_counts_bytes_hits_and_misses() {
    let cache = cache_of_slots(1_000);
    (1..=10).for_each(|pbn| admit_twice(&cache, pbn));
    assert_eq!((1..=30).filter(|&pbn| read(&cache, pbn).is_some()).count(), 10);
    let report = cache.report();
    assert_eq!((report.hits, report.misses), (10, 20));
    assert_eq!(report.bytes, 10 * SLOT_BYTES as u64);
    assert_eq!(report.bytes_max, 1_000 * SLOT_BYTES as u64);
}

/// Four threads read, admit and remove at once. Each pbn has a lock that stands in for its pin,
/// and a generation that stands in for its content: no read may see an older one.
#[test]
fn no_block_of_an_earlier_use_of_a_pbn_is_ever_returned() {
    const PBNS: u64 = 200;
    let cache = cache_of_slots(150);
    let generations: Vec<_> = (0..PBNS).map(|_| parking_lot::RwLock::new(0_u64)).collect();
    let hits = std::sync::atomic::AtomicU64::new(0);
    let work = |seed: u64| {
        let mut random = Random::new(seed);
        for _ in 0..50_000 {
            let pbn = random.below(PBNS);
            if random.one_in(64) {
                cache.lend(random.below(300) * SLOT_BYTES as u64);
            }
            if random.one_in(16) {
                let mut generation = generations[pbn as usize].write();
                cache.remove(Pbn(pbn + 1));
                *generation += 1;
                continue;
            }
            let generation = generations[pbn as usize].read();
            let content = block_of(pbn << 32 | *generation);
            match read(&cache, pbn + 1) {
                Some(found) => {
                    assert!(found == content, "pbn {} in generation {generation}", pbn + 1);
                    hits.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                }
                None => admit(&cache, pbn + 1, &content),
            }
        }
    };
    std::thread::scope(|scope| {
        (1..=4).for_each(|seed: u64| drop(scope.spawn(move || work(seed))));
    });
    assert!(hits.into_inner() > 10_000, "the test has to hit");
    cache.check();
}
