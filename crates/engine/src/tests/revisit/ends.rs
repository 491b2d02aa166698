//! Files of rank 1, which are read in sequence: runs of 64 blocks, whole files and the part of a chunk at the end
//! (Selective, section 4.1).

use oncefs_dedup::{FilePolicy, Rank, Ranks};

use super::*;
use crate::Change;
use crate::volume::assembly::Volume;

/// The worker does everything, by the paper's ranks.
fn ranked_volume(ranks: Ranks, inline: Inline) -> (Devices, Volume) {
    let devices = Devices::new(DATA, Settings { ranks, run_blocks_min: None, ..settings(inline) });
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    (devices, volume)
}

fn rank(volume: &Volume, map: u64, rank: Rank) {
    let mut change = Change::default();
    volume.file_policies.policy_change(&mut change, MapId(map), FilePolicy { rank, ..FilePolicy::default() });
    volume.publisher.publish(change).unwrap();
}

/// How many blocks of file 2 are shared with the blocks of file 1 that are as far from its end.
fn shared_at_the_end(volume: &Volume, blocks: [u64; 2]) -> u64 {
    let shortest = blocks[0].min(blocks[1]);
    let is_shared = |back: &u64| pbn(volume, 1, blocks[0] - back) == pbn(volume, 2, blocks[1] - back);
    (1..=shortest).filter(is_shared).count() as u64
}

/// Two files whose last blocks are equal, written and then ranked. Returns how many they share after the worker's
/// visit.
fn shared_by(ranks: [Rank; 2], blocks: [u64; 2], equal: u64) -> u64 {
    let (_devices, volume) = ranked_volume(Ranks::Paper, Inline::Off);
    let end = unique(equal as usize, 9);
    for (map, (blocks, rank_of)) in (1..).zip(blocks.into_iter().zip(ranks)) {
        write(&volume, map, 0, &unique((blocks - equal) as usize, map));
        write(&volume, map, blocks - equal, &end);
        rank(&volume, map, rank_of);
    }
    work_all(&volume, true);
    assert_clean(&volume);
    for (map, blocks) in (1..).zip(blocks) {
        let content = [unique((blocks - equal) as usize, map), end.clone()].concat();
        assert_holds(&volume, map, &content);
    }
    shared_at_the_end(&volume, blocks)
}

const BOTH: [Rank; 2] = [Rank::Sequential; 2];

#[test]
fn the_end_behind_the_last_chunk_is_shared_as_a_whole_or_not_at_all() {
    assert_eq!(shared_by(BOTH, [200, 200], 8), 8, "three chunks and 8 blocks");
    assert_eq!(shared_by(BOTH, [200, 200], 7), 0, "the first of the 8 differs");
    assert_eq!(shared_by(BOTH, [200, 200], 30), 30, "what lies before it and goes on in it is");
    assert_eq!(shared_by(BOTH, [192, 192], 63), 0, "whole chunks have no other end");
    assert_eq!(shared_by(BOTH, [192, 192], 64), 64);
    assert_eq!(shared_by(BOTH, [65, 65], 1), 1, "however short it is");
}

#[test]
fn a_file_below_a_chunk_is_shared_as_a_whole_or_not_at_all() {
    for blocks in [1, 2, 20, 63] {
        assert_eq!(shared_by(BOTH, [blocks; 2], blocks), blocks);
        if blocks > 1 {
            assert_eq!(shared_by(BOTH, [blocks; 2], blocks - 1), 0, "the first of {blocks} differs");
        }
    }
}

#[test]
fn ends_count_by_the_file_that_would_share_them() {
    // The second one is cold and shares every block, wherever the first has it.
    assert_eq!(shared_by([Rank::Sequential, Rank::Cold], [200, 200], 3), 3);
    assert_eq!(shared_by([Rank::New, Rank::New], [200, 200], 100), 0, "new ones are left alone");
}

#[test]
fn what_is_written_over_the_end_of_a_file_is_shared_at_once_and_what_makes_it_longer_is_not() {
    let (_devices, volume) = ranked_volume(Ranks::On, Inline::All);
    let end = unique(8, 9);
    write(&volume, 1, 0, &unique(192, 1));
    write(&volume, 1, 192, &end);
    write(&volume, 2, 0, &unique(200, 2));
    write(&volume, 3, 0, &unique(192, 3));
    (1..=3).for_each(|map| rank(&volume, map, Rank::Sequential));
    write(&volume, 2, 192, &end);
    assert_eq!(shared_at_the_end(&volume, [200, 200]), 8);
    write(&volume, 3, 192, &end);
    assert_ne!(pbn(&volume, 3, 199), pbn(&volume, 1, 199), "it may go on");
    write(&volume, 2, 190, &[unique(2, 4), end].concat());
    assert_eq!(shared_at_the_end(&volume, [200, 200]), 8, "what the file has stays");
    assert_clean(&volume);
}
