//! Memory for a stated number of hints: evictions are compared with as many hints, not with as many bytes, because a
//! single hint takes four times what it takes in a group.

use oncefs_dedup::{Eviction, HintOptions, HintStore, Pbn, Sample};

use crate::trace::Content;

/// Bytes that a hint may take at most, in a store of at least some hundred.
const HINT_BYTES_MAX: u64 = 256;
/// Found to within one part in so many.
const PRECISION: u64 = 200;

/// The least number of hints, not below this one, that single hints can be bounded to: their memory grows in steps.
pub(super) fn boundable(hints: u64) -> u64 {
    let bytes = bytes_for(Eviction::Singles, hints);
    let (mut held, mut too_many) = (hints, 2 * hints);
    while too_many - held > 1 {
        let middle = held + (too_many - held) / 2;
        if holds(Eviction::Singles, bytes, middle) { held = middle } else { too_many = middle }
    }
    held
}

/// The least memory in which a memory level holds so many hints before it evicts the first.
pub(crate) fn bytes_for(eviction: Eviction, hints: u64) -> u64 {
    let (mut too_few, mut enough) = (0, hints * HINT_BYTES_MAX);
    while enough - too_few > enough / PRECISION {
        let bytes = too_few + (enough - too_few) / 2;
        if holds(eviction, bytes, hints) { enough = bytes } else { too_few = bytes }
    }
    enough
}

fn holds(eviction: Eviction, bytes_max: u64, hints: u64) -> bool {
    let mut store = HintStore::new(HintOptions {
        bytes_max,
        prefix_bits: None,
        eviction,
        keep_evicted: false,
        sample: Sample::ALL,
    });
    (0..hints).all(|number| {
        let inserted = store.insert(Content::numbered(number).tag(), Pbn(number));
        inserted.added && inserted.evicted == 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_level_holds_what_it_was_given_memory_for() {
        for eviction in [Eviction::Groups, Eviction::ColdOfGroups, Eviction::Singles] {
            let bytes = bytes_for(eviction, 10_000);
            assert!(holds(eviction, bytes, 10_000), "{eviction:?}");
            assert!(!holds(eviction, bytes * 98 / 100, 10_000), "{eviction:?}: {bytes} bytes are too many");
        }
        let hints = boundable(10_000);
        assert!((10_000..11_500).contains(&hints) && boundable(hints) == hints, "{hints} hints");
        let [groups, singles] = [Eviction::Groups, Eviction::Singles].map(|eviction| bytes_for(eviction, 10_000));
        assert!(singles > 2 * groups, "{singles} and {groups} bytes");
    }
}
