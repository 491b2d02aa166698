//! Budgets of files: what writes and the worker share within them, across mounts, changes of files and of settings.

use std::time::Instant;

use oncefs_dedup::{FilePieces, PieceCost, ShareLimit, Slowdown, Work};

use crate::policy::accounts::Counted;
use crate::policy::device_reads::Change;
use crate::settings::values::Settings;
use crate::sync::take_most;
use crate::tests::fixture::{Devices, Random, one_level, unique};
use crate::volume::assembly::Volume;
use crate::volume::backend::Backend;
use crate::{BLOCK_BYTES, Blocks, Lbn, MapId};

const BLOCK: u64 = BLOCK_BYTES as u64;
const REQUEST: usize = 256 * BLOCK_BYTES;
const DATA: Blocks = Blocks(60_000);
/// The file that others share with.
const SOURCE: MapId = MapId(1);
const FILE: MapId = MapId(2);
const FILE_BLOCKS: u64 = 4_096;

fn settings(percent: u32) -> Settings {
    Settings { slowdown: Some(Slowdown(percent)), skipped_bytes: 256 << 10, hint_bytes: 4 << 20, ..one_level() }
}

fn volume(percent: u32, piece_blocks: f64) -> (Devices, Volume) {
    let devices = Devices::new(DATA, settings(percent));
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    volume.base.policy.device_reads().start_from(PieceCost::of_blocks(piece_blocks));
    (devices, volume)
}

fn write(volume: &Volume, map: MapId, first: u64, data: &[u8]) {
    for (part, first) in data.chunks(REQUEST).zip((first..).step_by(256)) {
        volume.write(map, first * BLOCK, part, |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
    }
}

/// The file: blocks of the source at random places, none of them adjacent, and new ones. Returns how many are new.
fn scattered(source: &[u8], percent: u64, seed: u64) -> (Vec<u8>, u64) {
    let (mut random, mut data, mut new) = (Random::new(seed), Vec::new(), 0);
    let order = random.permutation(source.len() / BLOCK_BYTES);
    for at in order {
        if random.below(100) < percent {
            data.extend_from_slice(&source[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES]);
        } else {
            data.extend(unique(1, seed << 32 | at as u64 | 1 << 60));
            new += 1;
        }
    }
    (data, new)
}

/// Blocks in use besides the source and the label.
fn stored(volume: &Volume) -> u64 {
    volume.free_blocks.totals().used.0 - 1 - FILE_BLOCKS
}

fn work_off(volume: &Volume) {
    while volume.revisits.revisit(8_192).unwrap().is_some() {}
}

fn account(volume: &Volume, map: MapId) -> FilePieces {
    volume.base.policy.accounts().forget(map);
    volume.file_policies.account(map).unwrap()
}

/// How much longer the file takes to read than in one piece, judging by where its blocks lie.
fn slowdown(volume: &Volume, map: MapId) -> f64 {
    account(volume, map).slowdown_percent(volume.base.policy.device_reads().piece_cost())
}

#[test]
fn scattered_duplicates_are_shared_as_by_exact_dedup_where_a_piece_costs_little() {
    for percent in [25, 75] {
        let (_devices, volume) = volume(100, 1.0);
        let source = unique(FILE_BLOCKS as usize, 1);
        write(&volume, SOURCE, 0, &source);
        let (data, new) = scattered(&source, percent, 2);
        write(&volume, FILE, 0, &data);
        assert_eq!(stored(&volume), new, "{percent} % are duplicates");
        assert!(slowdown(&volume, FILE) < 100.0);
    }
}

#[test]
fn right_after_mkfs_scattered_duplicates_are_shared_unless_the_device_turns() {
    for turns in [false, true] {
        let devices = Devices::new(DATA, settings(100));
        let volume = devices.open_medium(Backend { turns, ..devices.backend() });
        volume.hint_levels.fill_hints().unwrap();
        let source = unique(FILE_BLOCKS as usize, 1);
        write(&volume, SOURCE, 0, &source);
        let (data, new) = scattered(&source, 75, 2);
        write(&volume, FILE, 0, &data);
        let device_reads = volume.base.policy.device_reads();
        assert!(!device_reads.is_measured());
        if !turns {
            assert_eq!(stored(&volume), new, "as by exact dedup");
            continue;
        }
        let pieces_max = 1 + FILE_BLOCKS / 128;
        // By chance some duplicates are adjacent.
        assert!(FILE_BLOCKS - stored(&volume) <= 2 * pieces_max, "{} are stored", stored(&volume));
        assert!(slowdown(&volume, FILE) <= 102.0, "{}", slowdown(&volume, FILE));
        // The measurement says that the device does not turn after all: the worker shares what was refused.
        device_reads.start_from(PieceCost::EXPECTED);
        volume.file_policies.piece_cost_changed(Change::Fell, Instant::now());
        work_off(&volume);
        assert_eq!(stored(&volume), new);
    }
}

#[test]
fn no_file_becomes_slower_to_read_than_its_budget_says_in_line_and_by_the_worker() {
    for (percent, piece_blocks) in [(100, 6.0), (10, 1.0), (10, 6.0), (0, 1.0)] {
        let (_devices, volume) = volume(percent, piece_blocks);
        let source = unique(FILE_BLOCKS as usize, 1);
        write(&volume, SOURCE, 0, &source);
        let (data, new) = scattered(&source, 50, 3);
        write(&volume, FILE, 0, &data);
        let pieces = 1 + (FILE_BLOCKS as f64 * f64::from(percent) / 100.0 / piece_blocks) as u64;
        let saved = FILE_BLOCKS - stored(&volume);
        let told = format!("{percent} % where a piece costs {piece_blocks}");
        // By chance some duplicates are adjacent.
        let range = pieces - pieces / 20 - 1..=pieces + pieces / 20;
        assert!(range.contains(&saved), "{told}: {saved} saved with {pieces} pieces");
        assert!(slowdown(&volume, FILE) <= f64::from(percent) + 2.0, "{told}: {}", slowdown(&volume, FILE));
        work_off(&volume);
        // Blocks that the source shares with the file count in the source's own budget.
        assert!(slowdown(&volume, FILE) <= f64::from(percent) + 2.0, "{told}: {}", slowdown(&volume, FILE));
        assert!(slowdown(&volume, SOURCE) <= f64::from(percent) + 2.0, "{told}: {}", slowdown(&volume, SOURCE));
        assert!(stored(&volume) >= new);
    }
}

#[test]
fn whole_files_and_the_ends_of_files_cost_nothing() {
    let (_devices, volume) = volume(0, 100.0);
    let source = unique(FILE_BLOCKS as usize, 1);
    write(&volume, SOURCE, 0, &source);
    write(&volume, FILE, 0, &source);
    assert_eq!(stored(&volume), 0, "a copy takes nothing");
    let mut data = unique(40, 5);
    data.extend_from_slice(&source[300 * BLOCK_BYTES..310 * BLOCK_BYTES]);
    write(&volume, MapId(3), 0, &unique(1, 6));
    write(&volume, MapId(3), 1, &source[..10 * BLOCK_BYTES]);
    write(&volume, MapId(3), 11, &data);
    assert_eq!(stored(&volume), 1 + 50, "the first run of a file is shared, whatever follows");
    work_off(&volume);
    assert_eq!(stored(&volume), 1 + 40, "and its end is");
}

#[test]
fn blocks_that_the_file_has_elsewhere_cost_nothing() {
    let (_devices, volume) = volume(0, 100.0);
    let own = unique(512, 1);
    write(&volume, FILE, 0, &own);
    let mut random = Random::new(5);
    let again: Vec<u8> = (0..1_024)
        .flat_map(|_| {
            let at = random.below(512) as usize * BLOCK_BYTES;
            own[at..at + BLOCK_BYTES].to_vec()
        })
        .collect();
    write(&volume, FILE, 512, &again);
    assert_eq!(volume.free_blocks.totals().used.0 - 1, 512);
}

#[test]
fn blocks_that_very_many_refer_to_cost_nothing() {
    let (_devices, volume) = volume(0, 100.0);
    let popular = unique(1, 1);
    (0..300).for_each(|n| write(&volume, SOURCE, n, &popular));
    assert_eq!(volume.free_blocks.totals().used.0 - 1, 1, "the first block of a file, and then its own");
    let mut data = unique(64, 2);
    (0..64).step_by(8).for_each(|at| data[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].copy_from_slice(&popular));
    write(&volume, FILE, 0, &data);
    assert_eq!(volume.free_blocks.totals().used.0 - 1, 1 + 56);
}

#[test]
fn the_worker_spends_on_the_longest_runs_what_is_left_of_the_budget() {
    let (_devices, volume) = volume(100, 64.0);
    let source = unique(FILE_BLOCKS as usize, 1);
    write(&volume, SOURCE, 0, &source);
    volume.work_loop.tune(&[("inline".to_owned(), "off".to_owned())]).unwrap();
    // Runs of 1 to 16 blocks, each followed by as many new ones: 272 blocks may have five pieces.
    let (mut data, mut at) = (Vec::new(), 0);
    for blocks in 1..=16 {
        data.extend_from_slice(&source[at * BLOCK_BYTES..(at + blocks) * BLOCK_BYTES]);
        data.extend(unique(blocks, 100 + blocks as u64));
        at += 50;
    }
    write(&volume, FILE, 0, &data);
    volume.base.backlog.requeue(Work::Owner(FILE.0));
    assert_eq!(stored(&volume), 272);
    work_off(&volume);
    assert_eq!(272 - stored(&volume), 16 + 15 + 14 + 13 + 12);
}

#[test]
fn a_larger_budget_and_a_cheaper_piece_share_what_was_refused() {
    let (_devices, volume) = volume(10, 10.0);
    let source = unique(FILE_BLOCKS as usize, 1);
    write(&volume, SOURCE, 0, &source);
    let (data, new) = scattered(&source, 25, 3);
    write(&volume, FILE, 0, &data);
    work_off(&volume);
    let refused = stored(&volume) - new;
    assert!(refused > 900, "{refused}");
    volume.work_loop.tune(&[("read_slowdown_percent_max".to_owned(), "50".to_owned())]).unwrap();
    work_off(&volume);
    let still_refused = stored(&volume) - new;
    assert!(still_refused < refused - 100, "{still_refused} of {refused}");
    volume.base.policy.device_reads().start_from(PieceCost::of_blocks(0.5));
    volume.file_policies.piece_cost_changed(Change::Fell, Instant::now());
    work_off(&volume);
    assert_eq!(stored(&volume), new);
}

#[test]
fn what_a_file_has_spent_is_known_after_a_mount() {
    let (devices, volume) = volume(100, 8.0);
    let source = unique(FILE_BLOCKS as usize, 1);
    write(&volume, SOURCE, 0, &source);
    let (data, _) = scattered(&source, 90, 3);
    let (first, second) = data.split_at(data.len() / 2);
    write(&volume, FILE, 0, first);
    let before = slowdown(&volume, FILE);
    volume.commits.commit().unwrap();
    let volume = devices.after_power_cut_of_all().open();
    volume.hint_levels.fill_hints().unwrap();
    volume.base.policy.device_reads().start_from(PieceCost::of_blocks(8.0));
    write(&volume, FILE, FILE_BLOCKS / 2, second);
    assert!(
        (90.0..=102.0).contains(&before) && slowdown(&volume, FILE) <= 102.0,
        "{before} {}",
        slowdown(&volume, FILE)
    );
}

/// So many times the file's blocks are more than a write reads of the map to begin an account.
const LARGE_ROUNDS: u64 = 5;

/// A cold volume with a file of unique blocks, which are about to be written over.
fn cold_large(piece_blocks: f64, source: &[u8]) -> (Devices, Volume) {
    let (devices, volume) = volume(100, piece_blocks);
    write(&volume, SOURCE, 0, source);
    for round in 0..LARGE_ROUNDS {
        write(&volume, FILE, round * FILE_BLOCKS, &unique(FILE_BLOCKS as usize, 100 + round));
    }
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    volume.base.policy.device_reads().start_from(PieceCost::of_blocks(piece_blocks));
    (devices, volume)
}

#[test]
fn a_large_file_that_is_written_over_after_a_mount_shares_as_a_new_one() {
    let source = unique(FILE_BLOCKS as usize, 1);
    let (_devices, volume) = cold_large(1.0, &source);
    let mut new = 0;
    for round in 0..LARGE_ROUNDS {
        let (data, new_blocks) = scattered(&source, 90, 200 + round);
        write(&volume, FILE, round * FILE_BLOCKS, &data);
        new += new_blocks;
    }
    assert_eq!(stored(&volume), new);
    assert!(slowdown(&volume, FILE) < 100.0);
}

#[test]
fn a_large_file_that_is_written_over_keeps_its_budget() {
    let source = unique(FILE_BLOCKS as usize, 1);
    let (_devices, volume) = cold_large(6.0, &source);
    for round in 0..LARGE_ROUNDS {
        write(&volume, FILE, round * FILE_BLOCKS, &scattered(&source, 75, 200 + round).0);
    }
    let after = slowdown(&volume, FILE);
    // Each request has a piece of new blocks besides those it pays for.
    assert!((80.0..=105.0).contains(&after), "{after}");
}

#[test]
fn what_pays_for_blocks_that_were_written_over_does_not_pay_for_added_ones_again() {
    let source = unique(FILE_BLOCKS as usize, 1);
    let (_devices, volume) = cold_large(6.0, &source);
    let write = |round: u64| write(&volume, FILE, round * FILE_BLOCKS, &scattered(&source, 75, 200 + round).0);
    // The account counts the blocks before the last round.
    (0..LARGE_ROUNDS - 1).for_each(write);
    assert_eq!(volume.base.policy.accounts().counted(FILE), Some(Counted::Window));
    write(LARGE_ROUNDS);
    let after = slowdown(&volume, FILE);
    assert!((70.0..=105.0).contains(&after), "{after}");
}

#[test]
fn a_write_that_holds_the_map_s_lock_reads_few_leaves_and_the_next_one_counts_anew() {
    let source = unique(FILE_BLOCKS as usize, 1);
    let (_devices, volume) = cold_large(6.0, &source);
    let counted = || volume.base.policy.accounts().counted(FILE);
    let partial = [&unique(1, 7)[100..], &source[..10 * BLOCK_BYTES], &[1; 50][..]].concat();
    let place = (LARGE_ROUNDS - 1) * FILE_BLOCKS;
    take_most();
    volume.write(FILE, place * BLOCK + 100, &partial, |_, _| ()).unwrap();
    // Counted only under the feature `checked`.
    assert!(take_most().reads <= 32, "other requests wait for them");
    assert_eq!(counted(), Some(Counted::Few));
    write(&volume, FILE, place, &source[..10 * BLOCK_BYTES]);
    assert_eq!(counted(), Some(Counted::Window));
    volume.write(FILE, place * BLOCK + 100, &partial, |_, _| ()).unwrap();
    assert_eq!(counted(), Some(Counted::Window), "what is known stays");
}

#[test]
fn a_file_that_is_written_over_again_and_again_gets_back_what_its_old_blocks_spent() {
    for piece_blocks in [1.0, 6.0] {
        let (_devices, volume) = volume(100, piece_blocks);
        let source = unique(FILE_BLOCKS as usize, 1);
        write(&volume, SOURCE, 0, &source);
        write(&volume, FILE, 0, &unique(FILE_BLOCKS as usize, 2));
        let mut saved = Vec::new();
        for round in 0..2 {
            let (data, new) = scattered(&source, 75, 200 + round);
            write(&volume, FILE, 0, &data);
            saved.push(FILE_BLOCKS - stored(&volume));
            assert!(piece_blocks > 1.0 || stored(&volume) == new, "round {round}: {} and {new}", stored(&volume));
            assert!(slowdown(&volume, FILE) <= 105.0, "{piece_blocks}, round {round}: {}", slowdown(&volume, FILE));
        }
        assert!(saved.iter().all(|blocks| *blocks > saved[0] / 2), "{piece_blocks}: {saved:?}");
    }
}

#[test]
fn a_file_that_is_cut_and_written_again_begins_anew() {
    let (_devices, volume) = volume(10, 8.0);
    let source = unique(FILE_BLOCKS as usize, 1);
    write(&volume, SOURCE, 0, &source);
    let (data, _) = scattered(&source, 50, 3);
    write(&volume, FILE, 0, &data);
    let first = stored(&volume);
    volume.truncate_in_parts(FILE, 0);
    write(&volume, FILE, 0, &data);
    assert_eq!(stored(&volume), first);
}

#[test]
fn a_file_s_own_budget_beats_that_of_the_mount() {
    let (_devices, volume) = volume(0, 1.0);
    let source = unique(FILE_BLOCKS as usize, 1);
    write(&volume, SOURCE, 0, &source);
    let mut change = crate::Change::new();
    let policy_override = Some("slowdown=100".parse().unwrap());
    volume.file_policies.policy_change(
        &mut change,
        FILE,
        oncefs_dedup::FilePolicy { policy_override, ..Default::default() },
    );
    volume.publisher.publish(change).unwrap();
    assert_eq!(volume.file_policies.share_limit(FILE), ShareLimit::Budget(Slowdown(100)));
    let (data, new) = scattered(&source, 25, 2);
    write(&volume, FILE, 0, &data);
    assert_eq!(stored(&volume), new);
}

/// Shared blocks hold what was written, whatever the budget.
#[test]
fn every_block_reads_as_it_was_written() {
    let mut random = Random::new(11);
    for case in 0..12 {
        let (_devices, volume) = volume(random.pick(&[0, 10, 100, 1_000]), random.pick(&[0.1, 2.0, 30.0]));
        let source = unique(FILE_BLOCKS as usize, 1);
        write(&volume, SOURCE, 0, &source);
        let (data, _) = scattered(&source, random.below(100), case);
        let mut at = 0;
        while at < data.len() {
            let bytes = ((1 + random.below(300)) as usize * BLOCK_BYTES).min(data.len() - at);
            volume.write(FILE, at as u64, &data[at..at + bytes], |_, _| ()).unwrap();
            at += bytes;
            if random.one_in(4) {
                volume.commits.commit().unwrap();
            }
            if random.one_in(8) {
                volume.revisits.revisit(256).unwrap();
            }
        }
        work_off(&volume);
        for (part, first) in data.chunks(REQUEST).zip((0..).step_by(256)) {
            let mut read = vec![0; part.len()];
            volume.reader.read_locked(FILE, Lbn(first), &mut read).unwrap();
            assert!(read == part, "case {case}, from block {first} on");
        }
    }
}

#[test]
fn a_probe_of_a_skipped_request_finds_duplicates_and_admits_it() {
    let rule = oncefs_dedup::AdmissionRule::PROBING;
    let settings = Settings { inline: crate::settings::values::Inline::Adaptive, rule, slowdown: None, ..settings(0) };
    let devices = Devices::new(DATA, settings);
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    let mode = crate::settings::values::Inline::Adaptive;
    for n in 0..2_000 {
        write(&volume, SOURCE, n * 8, &unique(8, n));
    }
    let (_, share) = volume.base.inline.limit_and_share(mode);
    assert!(share <= 0.02, "{share}");
    let before = volume.free_blocks.totals().used.0;
    write(&volume, FILE, 0, &unique(8, 7));
    assert_eq!(volume.free_blocks.totals().used.0, before, "the first request with duplicates is shared");
    assert_eq!(volume.base.inline.limit_and_share(mode).1, 1.0);
}
