//! Compression as blocks are written, on volumes in memory: what becomes a fragment, that sharing and room are as for
//! whole blocks, and what a power cut leaves.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use oncefs_compress::Method;
use oncefs_dedup::{Compress, CompressionPace, Rank, Ranks};

use crate::format::fragment::is_fragment;
use crate::format::page::INCOMPRESSIBLE;
use crate::settings::values::{FingerprintMode, Settings};
use crate::tests::compress::{assert_content, compress_all, pbns_of, text, used};
use crate::tests::fixture::{Devices, Random, one_level, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Change, Error, FilePolicy, Lbn, MapId, Pbn};

const BLOCK: u64 = BLOCK_BYTES as u64;

fn in_line() -> Settings {
    Settings { compress: Compress::Inline, compress_method: Method::Zstd(1), ..one_level() }
}

fn write(volume: &Volume, map: u64, at: u64, bytes: &[u8]) -> crate::Result<()> {
    volume.write(MapId(map), at * BLOCK, bytes, |_, _| ())
}

fn claimed(volume: &Volume) -> u64 {
    volume.base.state.lock().claims.blocks().0
}

/// Blocks of text and of random bytes by turns.
fn mixed(pairs: usize, seed: u64) -> Vec<u8> {
    let (text, random) = (text(pairs, seed), unique(pairs, seed));
    let pairs = text.chunks(BLOCK_BYTES).zip(random.chunks(BLOCK_BYTES));
    pairs.flat_map(|(text, random)| [text, random].concat()).collect()
}

#[test]
fn a_large_write_is_stored_compressed_at_once() {
    for method in [Method::Lz4, Method::Zstd(1), Method::Zstd(19)] {
        let devices = Devices::new(Blocks(4_000), Settings { compress_method: method, ..in_line() });
        let files: Vec<_> = (1..5).map(|n| (MapId(n), text(150, n))).collect();
        let volume = devices.open();
        files.iter().for_each(|(map, content)| write(&volume, map.0, 0, content).unwrap());
        assert!(used(&volume) < 300, "{method}: 600 blocks became {}", used(&volume));
        assert!(pbns_of(&volume, MapId(1)).iter().all(|pbn| is_fragment(*pbn)), "every block of a text shrinks");
        assert_eq!(volume.base.stats.counters.blocks_compressed_inline.load(Relaxed), 600);
        assert_eq!(volume.base.stats.counters.blocks_placed.load(Relaxed), 600);
        assert_content(&volume, &files);
        volume.commits.commit().unwrap();
        volume.commits.checkpoint().unwrap();
        let before = used(&volume);
        drop(volume);
        let volume = devices.open();
        assert_eq!((used(&volume), claimed(&volume)), (before, 0));
        assert_content(&volume, &files);
        for (map, _) in &files {
            volume.range_changes.truncate(*map, 0, |_, _| ()).unwrap();
        }
        assert_eq!(used(&volume), 1, "only the label is left");
    }
}

#[test]
fn a_small_write_is_left_to_the_worker() {
    let devices = Devices::new(Blocks(2_000), in_line());
    let volume = devices.open();
    let content = text(64, 1);
    for (at, part) in (0..).step_by(16).zip(content.chunks(16 * BLOCK_BYTES)) {
        write(&volume, 1, at, part).unwrap();
    }
    assert!(pbns_of(&volume, MapId(1)).iter().all(|pbn| !is_fragment(*pbn)));
    volume.commits.checkpoint().unwrap();
    compress_all(&volume);
    assert!(pbns_of(&volume, MapId(1)).iter().all(|pbn| is_fragment(*pbn)));
    assert_content(&volume, &[(MapId(1), content)]);
}

#[test]
fn random_bytes_are_tried_in_a_few_blocks_only_and_left_alone() {
    let devices = Devices::new(Blocks(2_000), in_line());
    let volume = devices.open();
    let content = unique(256, 1);
    write(&volume, 1, 0, &content).unwrap();
    let pbns = pbns_of(&volume, MapId(1));
    assert!(pbns.iter().all(|pbn| !is_fragment(*pbn)) && pbns.is_sorted());
    // Only what was tried as a whole is known not to shrink.
    assert!(pbns.iter().all(|pbn| volume.metadata.known_entry(*pbn).unwrap().flags == 0));
    assert_eq!(volume.base.stats.counters.write_requests_incompressible.load(Relaxed), 1);
    assert_eq!((used(&volume), claimed(&volume)), (257, 0));
    assert_content(&volume, &[(MapId(1), content)]);
}

#[test]
fn blocks_that_do_not_shrink_lie_beside_fragments_and_are_not_tried_again() {
    let devices = Devices::new(Blocks(2_000), in_line());
    let volume = devices.open();
    let content = mixed(100, 1);
    write(&volume, 1, 0, &content).unwrap();
    for (n, pbn) in pbns_of(&volume, MapId(1)).into_iter().enumerate() {
        assert_eq!(is_fragment(pbn), n % 2 == 0, "block {n}");
        let flags = volume.metadata.known_entry(pbn).unwrap().flags;
        assert_eq!(flags, if n % 2 == 0 { 0 } else { INCOMPRESSIBLE }, "block {n}");
    }
    volume.commits.checkpoint().unwrap();
    let read = || volume.base.stats.counters.data_bytes_read.load(Relaxed);
    let before = read();
    compress_all(&volume);
    assert_eq!(read(), before, "the worker reads nothing");
    assert_content(&volume, &[(MapId(1), content)]);
}

#[test]
fn a_request_that_saves_less_than_an_eighth_stays_in_one_piece() {
    let devices = Devices::new(Blocks(2_000), in_line());
    let volume = devices.open();
    let content = [text(16, 1), unique(184, 1)].concat();
    write(&volume, 1, 0, &content).unwrap();
    assert!(pbns_of(&volume, MapId(1)).iter().all(|pbn| !is_fragment(*pbn)));
    assert_content(&volume, &[(MapId(1), content)]);
}

#[test]
fn tags_fingerprints_and_hints_are_those_of_the_uncompressed_block() {
    for fingerprints in [FingerprintMode::Eager, FingerprintMode::Lazy] {
        let devices = Devices::new(Blocks(2_000), Settings { fingerprints, ..in_line() });
        let volume = devices.open();
        // The second half equals the first one.
        let content = [text(64, 1), text(64, 1)].concat();
        write(&volume, 1, 0, &content).unwrap();
        let pbns = pbns_of(&volume, MapId(1));
        assert_eq!(pbns[..64], pbns[64..]);
        for (pbn, block) in pbns.iter().zip(content.chunks(BLOCK_BYTES)).take(64) {
            let entry = volume.metadata.known_entry(*pbn).unwrap();
            assert!(is_fragment(*pbn) && entry.count == 2);
            assert_eq!(entry.tag, volume.base.hasher.tag(block));
            let expected = volume.base.hasher.fingerprint_of(block);
            assert!(entry.fingerprint.is_none_or(|fingerprint| fingerprint == expected));
            assert_eq!(entry.fingerprint.is_some(), fingerprints == FingerprintMode::Eager);
        }
        let before = used(&volume);
        write(&volume, 2, 0, &content[..100 * BLOCK_BYTES]).unwrap();
        assert_eq!(pbns_of(&volume, MapId(2)), pbns[..100]);
        // The same content once more changes nothing.
        write(&volume, 1, 0, &content).unwrap();
        assert_eq!((used(&volume), pbns_of(&volume, MapId(1))), (before, pbns));
        // Blocks that are stored as they are share with fragments too.
        write(&volume, 3, 0, &[unique(40, 7), content[..BLOCK_BYTES].to_vec()].concat()).unwrap();
        assert_eq!(used(&volume), before + 40);
        let cut = content[..100 * BLOCK_BYTES].to_vec();
        assert_content(&volume, &[(MapId(1), content), (MapId(2), cut)]);
    }
}

#[test]
fn a_full_volume_refuses_a_write_when_it_is_made_and_not_later() {
    let devices = Devices::new(Blocks(1_200), in_line());
    let volume = devices.open();
    let mut files = Vec::new();
    let refused = loop {
        let map = files.len() as u64 + 1;
        let content = text(64, map);
        match write(&volume, map, 0, &content) {
            Ok(()) => files.push((MapId(map), content)),
            Err(error) => break error,
        }
        volume.commits.commit().unwrap();
    };
    assert!(matches!(refused, Error::NoSpace) && files.len() > 20, "{} files: {refused}", files.len());
    assert_eq!(claimed(&volume), 0);
    // Bytes that do not shrink in the place of some that did.
    let mut written = 0;
    let refused = loop {
        let bytes = unique(64, 9_000 + written as u64);
        match write(&volume, files[written].0.0, 0, &bytes) {
            Ok(()) => files[written].1 = bytes,
            Err(error) => break error,
        }
        written += 1;
    };
    assert!(matches!(refused, Error::NoSpace), "{refused}");
    assert_eq!(claimed(&volume), 0);
    assert_content(&volume, &files);
    volume.commits.checkpoint().unwrap();
    for (map, _) in &files {
        volume.range_changes.truncate(*map, 0, |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    assert_eq!((used(&volume), claimed(&volume)), (1, 0));
}

#[test]
fn promised_room_takes_what_is_compressed_and_gives_the_rest_back() {
    let devices = Devices::new(Blocks(1_200), in_line());
    let volume = devices.open();
    let blocks = volume.free_blocks.available().0;
    volume.range_changes.reserve(MapId(1), 0, blocks * BLOCK, |_, _| ()).unwrap();
    assert!(matches!(write(&volume, 2, 0, &unique(1, 1)), Err(Error::NoSpace)));
    let content = [mixed(50, 1), text(100, 2), unique(100, 3)].concat();
    write(&volume, 1, 0, &content).unwrap();
    let totals = volume.base.state.lock().totals;
    assert_eq!((totals.reserved.0, claimed(&volume)), (blocks - 300, 0));
    assert!(totals.used.0 < 250, "{totals:?}");
    // What was saved is free for other files.
    write(&volume, 2, 0, &text(64, 5)).unwrap();
    assert_content(&volume, &[(MapId(1), content), (MapId(2), text(64, 5))]);
}

#[test]
fn packs_fit_into_scattered_free_space_or_blocks_stay_as_they_are() {
    let devices = Devices::new(Blocks(1_000), in_line());
    let volume = devices.open();
    let mut random = Random::new(5);
    let mut map = 0;
    while write(&volume, map + 1, 0, &unique(1, map)).is_ok() {
        map += 1;
    }
    volume.commits.checkpoint().unwrap();
    for map in (1..=map).filter(|_| random.below(3) > 0) {
        volume.range_changes.truncate(MapId(map), 0, |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    volume.run(crate::BackgroundStep::Release).unwrap();
    // The long runs are taken.
    (0..4).for_each(|n| write(&volume, 9_000 + n, 0, &unique(60, 9_000 + n)).unwrap());
    let files: Vec<_> = (10_000..10_005).map(|map| (MapId(map), text(64, map))).collect();
    for (map, content) in &files {
        write(&volume, map.0, 0, content).unwrap();
        assert_eq!(claimed(&volume), 0);
    }
    let numbers = files.iter().flat_map(|(map, _)| pbns_of(&volume, *map)).filter(|pbn| is_fragment(*pbn)).count();
    assert!(numbers >= 64, "{numbers} blocks are compressed");
    assert_content(&volume, &files);
}

#[test]
fn a_write_without_room_for_numbers_is_stored_as_it_is() {
    let devices = Devices::new(Blocks(1_000), in_line());
    let volume = devices.open_medium(crate::volume::backend::Backend { fragments: None, ..devices.backend() });
    let content = text(64, 1);
    write(&volume, 1, 0, &content).unwrap();
    assert_eq!((used(&volume), claimed(&volume)), (65, 0));
    assert_content(&volume, &[(MapId(1), content)]);
}

fn set_compress(volume: &Volume, map: u64, compress: Option<Compress>) {
    let mut change = Change::new();
    let policy = FilePolicy { compress, ..FilePolicy::default() };
    volume.file_policies.policy_change(&mut change, MapId(map), policy);
    volume.publisher.publish(change).unwrap();
}

#[test]
fn each_file_is_compressed_as_its_policy_says() {
    for mount in [Compress::Later, Compress::Inline] {
        let devices = Devices::new(Blocks(3_000), Settings { compress: mount, ..in_line() });
        let volume = devices.open();
        set_compress(&volume, 1, Some(Compress::Off));
        set_compress(&volume, 2, Some(Compress::Later));
        set_compress(&volume, 3, Some(Compress::Inline));
        let files: Vec<_> = (1..5).map(|n| (MapId(n), text(60, n))).collect();
        files.iter().for_each(|(map, content)| write(&volume, map.0, 0, content).unwrap());
        let compressed = || (1..5).map(|map| is_fragment(pbns_of(&volume, MapId(map))[0])).collect::<Vec<_>>();
        assert_eq!(compressed(), [false, false, true, mount == Compress::Inline]);
        volume.commits.checkpoint().unwrap();
        compress_all(&volume);
        assert_eq!(compressed(), [false, true, true, true]);
        // Nothing was written since, but a file may be compressed now that might not before.
        set_compress(&volume, 1, None);
        compress_all(&volume);
        assert_eq!(compressed(), [true; 4]);
        assert_content(&volume, &files);
    }
}

#[test]
fn no_file_is_compressed_where_the_mount_compresses_nothing() {
    let devices = Devices::new(Blocks(2_000), Settings { compress: Compress::Off, ..in_line() });
    let volume = devices.open();
    set_compress(&volume, 1, Some(Compress::Inline));
    write(&volume, 1, 0, &text(60, 1)).unwrap();
    compress_all(&volume);
    assert!(pbns_of(&volume, MapId(1)).iter().all(|pbn| !is_fragment(*pbn)));
}

#[test]
fn what_files_share_stays_shared_if_only_one_of_them_is_compressed() {
    for (left, compressed) in [(1, 9), (9, 1)] {
        let devices = Devices::new(Blocks(3_000), Settings { compress: Compress::Later, ..in_line() });
        let volume = devices.open();
        set_compress(&volume, left, Some(Compress::Off));
        let content = text(60, 7);
        write(&volume, 1, 0, &content).unwrap();
        // The pass comes to file 1, then to these, and in another turn to file 9.
        (2..9).for_each(|map| write(&volume, map, 0, &text(1, 1_000 + map)).unwrap());
        volume.clone_blocks((MapId(1), Lbn(0)), (MapId(9), Lbn(0)), Blocks(60), |_, _| ()).unwrap();
        write(&volume, compressed, 60, &text(60, 8)).unwrap();
        volume.commits.checkpoint().unwrap();
        while volume.block_compressor.compress_some(1).unwrap().is_some() {}
        let pbns = pbns_of(&volume, MapId(1));
        assert_eq!(pbns[..60], pbns_of(&volume, MapId(9))[..60], "one content is stored once");
        let own = pbns_of(&volume, MapId(compressed));
        assert!(own[60..].iter().all(|pbn| is_fragment(*pbn)));
        assert_eq!(is_fragment(pbns[0]), left == 9);
        let files = [(MapId(1), content.clone()), (MapId(9), content)];
        assert_content(&volume, &files);
    }
}

/// A device and a compressor that take so long for a block that no machine comes near it.
fn measured(device_seconds: u64, compress_seconds: u64) -> CompressionPace {
    let mut pace = CompressionPace::default();
    pace.observe_device(1, Duration::from_secs(device_seconds));
    pace.observe_compressed(10, 6, Duration::from_secs(10 * compress_seconds));
    pace
}

#[test]
fn auto_compresses_at_once_where_the_device_takes_longer_and_else_leaves_it_to_the_worker() {
    let devices = Devices::new(Blocks(2_000), Settings { compress: Compress::Auto, ..in_line() });
    let volume = devices.open();
    volume.base.inline.set_compression_pace(measured(1_000_000, 1));
    write(&volume, 1, 0, &text(60, 1)).unwrap();
    assert!(volume.work_loop.dedup_status().compression.starts_with("as blocks are written: a block takes the device"));
    volume.base.inline.set_compression_pace(measured(1, 1_000_000));
    write(&volume, 2, 0, &text(60, 2)).unwrap();
    assert!(volume.work_loop.dedup_status().compression.starts_with("by the worker: a block takes the device"));
    let compressed = |map| is_fragment(pbns_of(&volume, MapId(map))[0]);
    assert_eq!([1, 2].map(compressed), [true, false]);
    // A file that is to be compressed at once is.
    set_compress(&volume, 3, Some(Compress::Inline));
    write(&volume, 3, 0, &text(60, 3)).unwrap();
    assert!(compressed(3));
    volume.commits.checkpoint().unwrap();
    compress_all(&volume);
    assert!(compressed(2));
    assert_content(&volume, &[(MapId(1), text(60, 1)), (MapId(2), text(60, 2)), (MapId(3), text(60, 3))]);
}

#[test]
fn auto_compresses_cold_files_first_where_files_are_ranked() {
    let settings = Settings { compress: Compress::Auto, ranks: Ranks::On, ..in_line() };
    let devices = Devices::new(Blocks(2_000), settings);
    let volume = devices.open();
    for map in 1..9 {
        volume.base.inline.set_compression_pace(measured(1, 1_000_000));
        write(&volume, map, 0, &text(40, map)).unwrap();
    }
    let mut change = Change::new();
    let cold = FilePolicy { rank: Rank::Cold, ..FilePolicy::default() };
    volume.file_policies.policy_change(&mut change, MapId(8), cold);
    volume.publisher.publish(change).unwrap();
    volume.commits.checkpoint().unwrap();
    let compressed = |map| is_fragment(pbns_of(&volume, MapId(map))[0]);
    while !compressed(8) {
        assert!(volume.block_compressor.compress_some(1).unwrap().is_some());
        assert!(!(1..8).any(compressed), "other files wait");
    }
    compress_all(&volume);
    assert!((1..9).all(compressed));
}

#[test]
fn writers_at_the_same_time_get_numbers_of_their_own() {
    let devices = Devices::new(Blocks(8_000), in_line());
    let volume = devices.open();
    let files: Vec<_> = (1..9).map(|n| (MapId(n), text(600, n))).collect();
    thread::scope(|scope| {
        for (map, content) in &files {
            let volume = &volume;
            scope.spawn(move || {
                for (at, part) in (0..).step_by(40).zip(content.chunks(40 * BLOCK_BYTES)) {
                    write(volume, map.0, at, part).unwrap();
                }
            });
        }
    });
    let mut numbers: Vec<Pbn> = files.iter().flat_map(|(map, _)| pbns_of(&volume, *map)).collect();
    let count = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!((numbers.len(), claimed(&volume)), (count, 0));
    assert_content(&volume, &files);
}

#[test]
fn a_power_cut_leaves_each_compressed_write_whole_or_absent() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut devices = Devices::new(Blocks(3_000), in_line());
        let mut files: Vec<_> = (1..4).map(|n| (MapId(n), text(200, n))).collect();
        let volume = devices.open();
        files.iter().for_each(|(map, content)| write(&volume, map.0, 0, content).unwrap());
        volume.commits.commit().unwrap();
        drop(volume);
        for round in 0..4 {
            let volume = devices.open();
            let edit = |random: &mut Random, files: &mut Vec<(MapId, Vec<u8>)>| {
                let (map, content) = &mut files[random.below(3) as usize];
                let (at, blocks) = (random.below(140) as usize, 1 + random.below(60) as usize);
                let bytes = match random.below(3) {
                    0 => unique(blocks, random.word()),
                    1 => mixed(blocks.div_ceil(2), random.word()),
                    _ => text(blocks, random.word()),
                };
                let bytes = &bytes[..blocks * BLOCK_BYTES];
                content[at * BLOCK_BYTES..][..bytes.len()].copy_from_slice(bytes);
                write(&volume, map.0, at as u64, bytes).unwrap();
            };
            for _ in 0..1 + random.below(4) {
                edit(&mut random, &mut files);
                match random.below(5) {
                    0 => volume.commits.commit().unwrap(),
                    1 => volume.commits.checkpoint().unwrap(),
                    _ => {}
                }
            }
            volume.commits.commit().unwrap();
            // Compressed, and not committed: the file is as it was before.
            write(&volume, 1, 0, &text(64, 1_000 * seed + round)).unwrap();
            drop(volume);
            devices = devices.after_power_cut(&mut random);
            assert_content(&devices.open(), &files);
        }
    }
}
