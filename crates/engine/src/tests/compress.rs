//! Compression by the worker on volumes in memory: what it saves, that content stays, what a power cut leaves, what
//! damage does, and that space comes back.

use oncefs_compress::{Coding, Method};
use oncefs_dedup::Compress;

use crate::device::Device;
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::fragment::is_fragment;
use crate::format::keys::LeafKey;
use crate::format::page::page_of;
use crate::fsck::parts::checker;
use crate::settings::values::{Inline, Settings};
use crate::tests::fixture::{Devices, Random, one_level, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, Error, Lbn, MapId, Pbn};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Blocks of text-like bytes that no other seed gives, and that shrink to about a third.
pub fn text(blocks: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = Vec::with_capacity(blocks * BLOCK_BYTES);
    while bytes.len() < blocks * BLOCK_BYTES {
        let word = random.below(50_000);
        bytes.extend_from_slice(format!("line {word} of file {seed}, {}\n", word * 7).as_bytes());
    }
    bytes.truncate(blocks * BLOCK_BYTES);
    bytes
}

fn later(method: Method) -> Settings {
    Settings { compress: Compress::Later, compress_method_later: method, ..one_level() }
}

pub fn zstd() -> Settings {
    later(Method::Zstd(1))
}

/// Works until nothing is left to compress.
pub fn compress_all(volume: &Volume) {
    while volume.block_compressor.compress_some(300).unwrap().is_some() {}
}

pub fn used(volume: &Volume) -> u64 {
    volume.base.state.lock().totals.used.0
}

pub fn assert_content(volume: &Volume, files: &[(MapId, Vec<u8>)]) {
    for (map, content) in files {
        assert!(*volume.reader.read(*map, 0, content.len()).unwrap() == **content, "map {} has other bytes", map.0);
    }
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// The pbns of a map's first leaf.
pub fn pbns_of(volume: &Volume, map: MapId) -> Vec<Pbn> {
    let leaf = volume.metadata.leaf(LeafKey { map, leaf: 0 }).unwrap();
    let data = leaf.slice(0, LEAF_BLOCKS as u16).filter_map(|extent| match extent.target {
        Target::Data(pbn) => Some((0..u64::from(extent.blocks)).map(move |n| pbn.plus(n))),
        Target::Hole | Target::Reserved => None,
    });
    data.flatten().collect()
}

pub fn written(devices: &Devices, files: &[(MapId, Vec<u8>)]) -> Volume {
    let volume = devices.open();
    for (map, content) in files {
        volume.write(*map, 0, content, |_, _| ()).unwrap();
    }
    volume.commits.commit().unwrap();
    volume
}

#[test]
fn files_shrink_and_keep_their_content_in_memory_on_disk_and_after_a_checkpoint() {
    for method in [Method::Lz4, Method::Zstd(1)] {
        let devices = Devices::new(Blocks(4_000), later(method));
        let files: Vec<_> = (1..5).map(|n| (MapId(n), text(150, n))).collect();
        let volume = written(&devices, &files);
        let before = used(&volume);
        compress_all(&volume);
        volume.commits.commit().unwrap();
        let after = used(&volume);
        assert!(after * 2 < before, "{method}: {before} blocks became {after}");
        assert!(pbns_of(&volume, MapId(1)).iter().all(|pbn| is_fragment(*pbn)), "every block of a text shrinks");
        assert_content(&volume, &files);
        volume.commits.checkpoint().unwrap();
        drop(volume);
        let volume = devices.open();
        assert_eq!(used(&volume), after);
        assert_content(&volume, &files);
        compress_all(&volume);
        assert_eq!(used(&volume), after, "nothing is left to do");
    }
}

#[test]
fn what_does_not_shrink_stays_and_is_tried_once() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), unique(200, 1)), (MapId(2), text(40, 2))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let placed = pbns_of(&volume, MapId(1));
    assert!(placed.iter().all(|pbn| !is_fragment(*pbn)));
    let flags = |pbn: Pbn| volume.metadata.known_entry(pbn).unwrap().flags;
    assert!(placed.iter().all(|pbn| flags(*pbn) == crate::format::page::INCOMPRESSIBLE));
    let read = || volume.base.stats.counters.data_bytes_read.load(std::sync::atomic::Ordering::Relaxed);
    let before = read();
    volume.write(MapId(3), 0, &text(8, 3), |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    compress_all(&volume);
    assert!(read() - before < 20 * BLOCK, "blocks that did not shrink are read again: {} bytes", read() - before);
    assert_content(&volume, &files);
}

#[test]
fn shared_blocks_are_compressed_once_and_stay_shared() {
    let devices = Devices::new(Blocks(4_000), zstd());
    let content = text(200, 1);
    let files: Vec<_> = (1..5).map(|n| (MapId(n), content.clone())).collect();
    let volume = written(&devices, &files[..1]);
    for (map, _) in &files[1..] {
        volume.clone_blocks((MapId(1), Lbn(0)), (*map, Lbn(0)), Blocks(200), |_, _| ()).unwrap();
    }
    compress_all(&volume);
    let first = pbns_of(&volume, MapId(1));
    for (map, _) in &files {
        assert_eq!(pbns_of(&volume, *map), first, "map {}", map.0);
    }
    assert_eq!(volume.metadata.known_entry(first[0]).unwrap().count, 4);
    assert!(used(&volume) < 101, "{} blocks are used", used(&volume));
    assert_content(&volume, &files);
    // A write of the same content shares a fragment.
    let before = used(&volume);
    volume.write(MapId(9), 0, &content[..64 * BLOCK_BYTES], |_, _| ()).unwrap();
    assert_eq!(pbns_of(&volume, MapId(9)), first[..64]);
    assert_eq!(used(&volume), before);
}

#[test]
fn a_volume_that_was_opened_again_finds_the_contents_of_fragments() {
    for settings in [zstd(), Settings { compress: Compress::Later, inline: Inline::All, ..two_levels() }] {
        let devices = Devices::new(Blocks(4_000), settings);
        let content = text(200, 1);
        let volume = written(&devices, &[(MapId(1), content.clone())]);
        compress_all(&volume);
        volume.run(crate::BackgroundStep::LeaveCleanly).unwrap();
        drop(volume);
        let volume = devices.open();
        volume.hint_levels.fill_hints().unwrap();
        volume.write(MapId(2), 0, &content, |_, _| ()).unwrap();
        for _ in 0..20 {
            volume.revisits.revisit(1_000).unwrap();
        }
        assert_eq!(pbns_of(&volume, MapId(2)), pbns_of(&volume, MapId(1)));
    }
}

#[test]
fn rewriting_and_deleting_gives_the_space_of_packs_back() {
    let devices = Devices::new(Blocks(3_000), zstd());
    let mut files: Vec<_> = (1..4).map(|n| (MapId(n), text(300, n))).collect();
    let volume = written(&devices, &files);
    compress_all(&volume);
    for n in (0..300_usize).step_by(3) {
        let block = text(1, 1_000 + n as u64);
        files[0].1[n * BLOCK_BYTES..(n + 1) * BLOCK_BYTES].copy_from_slice(&block);
        volume.write(MapId(1), n as u64 * BLOCK, &block, |_, _| ()).unwrap();
    }
    assert_content(&volume, &files);
    volume.commits.checkpoint().unwrap();
    for (map, _) in &files {
        volume.range_changes.truncate(*map, 0, |_, _| ()).unwrap();
        volume.commits.checkpoint().unwrap();
    }
    assert_eq!(used(&volume), 1, "only the label is left");
    let empty: Vec<_> = files.iter().map(|(map, _)| (*map, Vec::new())).collect();
    assert_content(&volume, &empty);
    // Numbers and blocks are handed out again.
    let again: Vec<_> = (11..20).map(|n| (MapId(n), text(300, n))).collect();
    for (map, content) in &again {
        volume.write(*map, 0, content, |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
        compress_all(&volume);
        volume.commits.commit().unwrap();
    }
    assert_content(&volume, &again);
}

#[test]
fn a_power_cut_leaves_each_block_compressed_or_not() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut devices = Devices::new(Blocks(3_000), zstd());
        let mut files: Vec<_> = (1..4).map(|n| (MapId(n), text(60 + random.below(200) as usize, n))).collect();
        drop(written(&devices, &files));
        for round in 0..4 {
            let volume = devices.open();
            let turns = random.below(6);
            for _ in 0..turns {
                volume.block_compressor.compress_some(300).unwrap();
                match random.below(5) {
                    0 => volume.commits.commit().unwrap(),
                    1 => volume.commits.checkpoint().unwrap(),
                    _ => {}
                }
            }
            volume.commits.commit().unwrap();
            let (map, content) = &mut files[random.below(3) as usize];
            let at = random.below(content.len() as u64 / BLOCK) as usize;
            let block = text(1, seed * 1_000 + round);
            content[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].copy_from_slice(&block);
            volume.write(*map, at as u64 * BLOCK, &block, |_, _| ()).unwrap();
            volume.commits.commit().unwrap();
            // These may or may not survive, and change no content.
            for _ in 0..random.below(4) {
                volume.block_compressor.compress_some(300).unwrap();
            }
            drop(volume);
            devices = devices.after_power_cut(&mut random);
            assert_content(&devices.open(), &files);
        }
    }
}

#[test]
fn a_number_that_holds_other_content_by_now_is_compressed_anew() {
    let devices = Devices::new(Blocks(1_500), zstd());
    let first = text(30, 1);
    let volume = devices.open();
    let share = |from: u64, to: u64| {
        let (from, to) = ((MapId(from), Lbn(0)), (MapId(to), Lbn(0)));
        volume.clone_blocks(from, to, Blocks(30), |_, _| ()).unwrap();
    };
    // The pass moves file 1 and remembers the blocks, because file 9 has them too.
    volume.write(MapId(1), 0, &first, |_, _| ()).unwrap();
    (2..9).for_each(|map| volume.write(MapId(map), 0, &text(1, 1_000 + map), |_, _| ()).unwrap());
    share(1, 9);
    volume.commits.checkpoint().unwrap();
    assert!(volume.block_compressor.compress_some(1).unwrap().is_some());
    let numbers = pbns_of(&volume, MapId(9));
    assert!(numbers.iter().all(|pbn| !is_fragment(*pbn)), "the pass has not come to file 9");
    // They become free, and hold something else, which is shared as well.
    volume.range_changes.truncate(MapId(9), 0, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    volume.run(crate::BackgroundStep::Release).unwrap();
    let mut map = 20;
    while volume.metadata.known_entry(numbers[0]).is_none_or(|entry| entry.count == 0) {
        assert!(map < 150, "the first block is not handed out again");
        volume.write(MapId(map), 0, &text(30, map), |_, _| ()).unwrap();
        volume.range_changes.truncate(MapId(map - 1), 0, |_, _| ()).unwrap();
        volume.commits.checkpoint().unwrap();
        volume.run(crate::BackgroundStep::Release).unwrap();
        map += 1;
    }
    let last = MapId(map - 1);
    share(last.0, 200);
    compress_all(&volume);
    let content = text(30, last.0);
    assert_content(&volume, &[(MapId(1), first), (last, content.clone()), (MapId(200), content)]);
}

#[test]
fn damage_in_a_pack_is_an_error_and_never_other_bytes() {
    let devices = Devices::new(Blocks(2_000), zstd());
    let files = vec![(MapId(1), text(100, 1))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    volume.commits.checkpoint().unwrap();
    let pbns = pbns_of(&volume, MapId(1));
    let place = |pbn: Pbn| {
        let pages = || vec![page_of(pbn)];
        volume.metadata.with_pages(pages, |pages| pages.fragment_place(pbn)).unwrap().unwrap()
    };
    let hit = place(pbns[50]);
    let mut byte = [0];
    devices.data.read_at(&mut byte, hit.at + 7).unwrap();
    devices.data.write_at(&[byte[0] ^ 0x10], hit.at + 7).unwrap();
    for (n, block) in files[0].1.chunks(BLOCK_BYTES).enumerate() {
        match volume.reader.read(MapId(1), n as u64 * BLOCK, BLOCK_BYTES) {
            Ok(read) => assert!(*read == *block, "block {n} has other bytes"),
            Err(error) => assert!(n == 50 && matches!(error, Error::Corrupt { .. }), "block {n}: {error}"),
        }
    }
    let report = checker(&volume).check(true, &mut |_, _| ()).unwrap();
    assert_eq!(report.problems_count, 1, "{:#?}", report.problems);
    // The worker notes what the reads met, and the file can be removed.
    volume.repairs.repair_noticed().unwrap();
    assert!(volume.metadata.known_entry(pbns[50]).unwrap().is_bad());
    volume.range_changes.truncate(MapId(1), 0, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
}

#[test]
fn the_worker_compresses_with_its_own_method_and_writes_with_theirs() {
    let settings = Settings {
        compress: Compress::Inline,
        compress_method: Method::Lz4,
        compress_method_later: Method::Zstd(3),
        ..one_level()
    };
    let devices = Devices::new(Blocks(2_000), settings);
    // Requests of fewer than 32 blocks are left to the worker.
    let files = vec![(MapId(1), text(64, 1)), (MapId(2), text(16, 2))];
    let volume = written(&devices, &files);
    compress_all(&volume);
    let coding = |map| {
        let pbn = pbns_of(&volume, map)[0];
        let place = volume.metadata.with_pages(|| vec![page_of(pbn)], |pages| pages.fragment_place(pbn));
        place.unwrap().unwrap().coding
    };
    assert_eq!((coding(MapId(1)), coding(MapId(2))), (Coding::Lz4, Coding::Zstd));
    assert_content(&volume, &files);
}
