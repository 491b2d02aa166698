//! Keys of the engine's own records. Callers' keys start at `CALLER_FIRST_BYTE`.

use crate::{Lbn, MapId, Pbn};

/// The lowest first byte of callers' keys.
pub const CALLER_FIRST_BYTE: u8 = 0x10;

const CHECKPOINT: u8 = 0x01;
const LEAF: u8 = 0x02;
const DETACHED: u8 = 0x03;
const ADVICE: u8 = 0x04;
const BAD: u8 = 0x05;
const REPLICA: u8 = 0x06;
const SCRUB: u8 = 0x07;
const FILE_POLICY: u8 = 0x08;
const DEVICE: u8 = 0x09;
const PENDING_CLONE: u8 = 0x0A;
const TAKEN_LEAF: u8 = 0x0B;
const FRAGMENT_TOTALS: u8 = 0x0C;
/// Regions per record of free counts.
const ADVICE_REGIONS: usize = 512;

/// Key of the checkpoint record.
pub fn checkpoint() -> Vec<u8> {
    vec![CHECKPOINT]
}

/// Blocks of a leaf.
pub const LEAF_BLOCKS: u64 = 256;

/// Names one leaf: 256 consecutive lbns of one map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeafKey {
    /// The map.
    pub map: MapId,
    /// Its lbns divided by 256.
    pub leaf: u64,
}

impl LeafKey {
    /// The first lbn of the leaf.
    pub fn first(&self) -> Lbn {
        Lbn(self.leaf * LEAF_BLOCKS)
    }
}

/// Key of a leaf: map id and leaf number, so that a map's leaves follow each other.
pub fn leaf(key: LeafKey) -> Vec<u8> {
    numbered(LEAF, &[key.map.0, key.leaf])
}

/// Decodes a leaf's key. None: it is not one, or its blocks are beyond the largest number.
pub fn parse_leaf(key: &[u8]) -> Option<LeafKey> {
    let key = parse_of_leaf(LEAF, key)?;
    (key.leaf < u64::MAX / LEAF_BLOCKS).then_some(key)
}

/// Makes the keys of records that one number names: the key, the number of a key, and the bounds of all such keys.
macro_rules! numbered_keys {
    ($($what:literal: $kind:ident, $number:ident, $key:ident, $parse:ident, $all:ident;)+) => {$(
        #[doc = concat!("Key of ", $what, ".")]
        pub fn $key(number: $number) -> Vec<u8> {
            numbered($kind, &[number.0])
        }

        #[doc = concat!("Decodes the key of ", $what, ".")]
        pub fn $parse(key: &[u8]) -> Option<$number> {
            let rest: &[u8; 8] = key.strip_prefix(&[$kind])?.try_into().ok()?;
            Some($number(u64_be(rest)))
        }

        #[doc = concat!("Bounds of all keys like that of ", $what, ".")]
        pub fn $all() -> (Vec<u8>, Vec<u8>) {
            (vec![$kind], vec![$kind + 1])
        }
    )+};
}

numbered_keys! {
    "a detached map whose blocks are still to be freed": DETACHED, MapId, detached, parse_detached, all_detached;
    "the record of a bad block": BAD, Pbn, bad, parse_bad, all_bad;
    "the record that names a block's replica": REPLICA, Pbn, copy, parse_replica, all_replicas;
    "the policy of a map's file": FILE_POLICY, MapId, file_policy, parse_file_policy, all_file_policies;
    "the record of a pending clone, by the map that takes":
        PENDING_CLONE, MapId, pending_clone, parse_pending_clone, all_pending_clones;
}

/// Records of the regions' free counts: two bytes per region, `ADVICE_REGIONS` per record.
pub fn advice(free: &[u16]) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
    let records = free.chunks(ADVICE_REGIONS).enumerate();
    let value = |part: &[u16]| part.iter().flat_map(|count| count.to_le_bytes()).collect();
    records.map(|(index, part)| (numbered(ADVICE, &[index as u64]), Some(value(part)))).collect()
}

/// Bounds of all records of free counts.
pub fn all_advice() -> (Vec<u8>, Vec<u8>) {
    (vec![ADVICE], vec![ADVICE + 1])
}

/// Decodes a record of free counts. It is advice: a damaged one only misleads the first search.
pub fn parse_advice(value: &[u8]) -> impl Iterator<Item = u16> + '_ {
    value.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
}

/// Whether the engine writes keys of this form.
pub fn is_known(key: &[u8]) -> bool {
    match key.first() {
        Some(&(CHECKPOINT | SCRUB | DEVICE | FRAGMENT_TOTALS)) => key.len() == 1,
        Some(&(LEAF | TAKEN_LEAF)) => key.len() == 17,
        Some(&(DETACHED | ADVICE | BAD | REPLICA | FILE_POLICY | PENDING_CLONE)) => key.len() == 9,
        _ => false,
    }
}

/// Bounds of all keys of the engine except those of leaves.
pub fn all_but_leaves() -> [(Vec<u8>, Vec<u8>); 2] {
    [(Vec::new(), vec![LEAF]), (vec![LEAF + 1], vec![CALLER_FIRST_BYTE])]
}

/// Key of the scrub's progress.
pub fn scrub() -> Vec<u8> {
    vec![SCRUB]
}

/// Key of the record about the volume's device.
pub fn device() -> Vec<u8> {
    vec![DEVICE]
}

/// Key of the record of how much is compressed.
pub fn fragment_totals() -> Vec<u8> {
    vec![FRAGMENT_TOTALS]
}

/// Key of the mark of a leaf that a pending clone took out of order.
pub fn taken_leaf(key: LeafKey) -> Vec<u8> {
    numbered(TAKEN_LEAF, &[key.map.0, key.leaf])
}

/// Decodes such a mark's leaf.
pub fn parse_taken_leaf(key: &[u8]) -> Option<LeafKey> {
    parse_of_leaf(TAKEN_LEAF, key)
}

/// Bounds of all such marks.
pub fn all_taken_leaves() -> (Vec<u8>, Vec<u8>) {
    (vec![TAKEN_LEAF], vec![TAKEN_LEAF + 1])
}

fn numbered(kind: u8, numbers: &[u64]) -> Vec<u8> {
    let mut key = vec![kind];
    for number in numbers {
        key.extend_from_slice(&number.to_be_bytes());
    }
    key
}

fn parse_of_leaf(kind: u8, key: &[u8]) -> Option<LeafKey> {
    let rest: &[u8; 16] = key.strip_prefix(&[kind])?.try_into().ok()?;
    let (map, leaf) = rest.split_at(8);
    Some(LeafKey { map: MapId(u64_be(map)), leaf: u64_be(leaf) })
}

fn u64_be(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().expect("the caller split off eight bytes"))
}

/// The part of `first..first + blocks` that lies in each leaf.
pub fn leaf_parts(map: MapId, first: Lbn, blocks: u64) -> impl Iterator<Item = (LeafKey, u16, u16)> {
    let end = first.0 + blocks;
    let mut at = first.0;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let leaf = at / LEAF_BLOCKS;
        let stop = end.min((leaf + 1) * LEAF_BLOCKS);
        debug_assert!(stop > at && stop - at <= LEAF_BLOCKS, "blocks {at} to {stop} of leaf {leaf}");
        let part = (LeafKey { map, leaf }, (at % LEAF_BLOCKS) as u16, (stop - leaf * LEAF_BLOCKS) as u16);
        at = stop;
        Some(part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_golden_bytes_and_come_back() {
        let key = LeafKey { map: MapId(0x0102), leaf: 3 };
        assert_eq!(leaf(key), [2, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(parse_leaf(&leaf(key)), Some(key));
        assert_eq!(detached(MapId(7)), [3, 0, 0, 0, 0, 0, 0, 0, 7]);
        assert_eq!(parse_detached(&detached(MapId(7))), Some(MapId(7)));
        assert_eq!(checkpoint(), [1]);
        assert_eq!(bad(Pbn(0x0102)), [5, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(parse_bad(&bad(Pbn(7))), Some(Pbn(7)));
        assert_eq!(copy(Pbn(3)), [6, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(parse_replica(&copy(Pbn(7))), Some(Pbn(7)));
        assert_eq!(scrub(), [7]);
        assert_eq!(file_policy(MapId(0x0102)), [8, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(parse_file_policy(&file_policy(MapId(7))), Some(MapId(7)));
        assert_eq!(pending_clone(MapId(0x0102)), [10, 0, 0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(parse_pending_clone(&pending_clone(MapId(7))), Some(MapId(7)));
        assert_eq!(taken_leaf(key), [11, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(parse_taken_leaf(&taken_leaf(key)), Some(key));
    }

    #[test]
    fn foreign_and_cut_keys_are_refused() {
        assert_eq!(parse_leaf(&[2, 0, 0]), None);
        assert_eq!(parse_leaf(&detached(MapId(1))), None);
        assert_eq!(parse_detached(&[3]), None);
        for key in [&[][..], &[1, 0], &[2, 0, 0], &[3], &[4], &[5], &[8], &[15, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(!is_known(key), "{key:?}");
        }
        let [of_leaf, of_map] = [leaf(LeafKey { map: MapId(1), leaf: 2 }), file_policy(MapId(4))];
        let [of_clone, mark] = [pending_clone(MapId(5)), taken_leaf(LeafKey { map: MapId(5), leaf: 6 })];
        let known = [checkpoint(), of_leaf, detached(MapId(3)), advice(&[1])[0].0.clone(), of_map, of_clone, mark];
        assert!(known.iter().all(|key| is_known(key)));
    }
}
