//! Every event counter moves: each workload here is small and deterministic, and together they move all of them. A
//! counter that no workload moves is reported. No counter is exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use oncefs_dedup::Compress;

use crate::background::committer::answer;
use crate::device::Device;
use crate::format::extent_leaf::Target;
use crate::format::keys::LeafKey;
use crate::settings::values::{FingerprintMode, Inline, Settings, Verify};
use crate::stats::counters::Counters;
use crate::tests::compress::{compress_all, text};
use crate::tests::fixture::{Devices, one_level, two_levels, unique};
use crate::tests::host_cache::Cached;
use crate::tests::packs::passed_over;
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, BackgroundStep, Blocks, DedupCommand, DefragOptions, Lbn, MapId, Pbn, ScrubCommand, Tag};

const DATA: Blocks = Blocks(60_000);
const BLOCK: u64 = BLOCK_BYTES as u64;
/// More blocks than the memory level of `two_levels` has hints.
const MANY: usize = 6_000;
/// More blocks than hints may wait for the disk level.
const TOO_MANY: usize = 30_000;
/// Turns of the worker or steps of the scrub that suffice for everything here.
const TURNS_MAX: usize = 10_000;

fn open(settings: Settings) -> (Devices, Volume) {
    let devices = Devices::new(DATA, settings);
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    (devices, volume)
}

fn write(volume: &Volume, map: u64, data: &[u8]) {
    volume.write(MapId(map), 0, data, |_, _| ()).unwrap();
}

/// Writes in requests of 50 blocks, with the hints that leave memory merged in between as the worker does.
fn write_many(volume: &Volume, map: u64, data: &[u8]) {
    for (n, part) in data.chunks(50 * BLOCK_BYTES).enumerate() {
        volume.write(MapId(map), n as u64 * 50 * BLOCK, part, |_, _| ()).unwrap();
        volume.hint_levels.merge_waiting_hints();
    }
}

fn delete(volume: &Volume, map: u64) {
    volume.range_changes.detach(MapId(map), |_| ()).unwrap();
    let map = volume.base.signals.next_detached(Duration::ZERO).unwrap();
    volume.reclaimer.reclaim(map).unwrap();
}

fn revisit_all(volume: &Volume) {
    let is_done = (0..TURNS_MAX).any(|_| volume.revisits.revisit(1_000).unwrap().is_none());
    assert!(is_done, "the worker comes to no end");
}

fn scrub(volume: &Volume) {
    volume.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    for _ in 0..TURNS_MAX {
        if volume.scrubber.scrub_status().state == "finished" {
            return;
        }
        volume.scrubber.scrub_some(256).unwrap();
        volume.commits.commit().unwrap();
    }
    panic!("the scrub comes to no end: {:?}", volume.scrubber.scrub_status());
}

fn first_block(volume: &Volume, map: u64) -> Pbn {
    let leaf = volume.metadata.leaf(LeafKey { map: MapId(map), leaf: 0 }).unwrap();
    match leaf.slice(0, 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("block 0 of map {map} is {other:?}"),
    }
}

/// New, equal, zero and unchanged blocks; a barrier; a checkpoint.
fn writes_and_commits() -> Volume {
    let (_, volume) = open(one_level());
    let data = unique(20, 1);
    write(&volume, 1, &data);
    write(&volume, 1, &data);
    write(&volume, 2, &data);
    write(&volume, 3, &[0; BLOCK_BYTES]);
    volume.base.signals.barrier(Box::new(|result| result.unwrap()));
    answer(&volume, volume.base.signals.next_commit(Duration::ZERO, false).barriers);
    volume.commits.checkpoint().unwrap();
    volume
}

/// Requests that are not looked up, equal blocks that the worker finds, and a backlog that is saved.
fn out_of_line() -> Volume {
    let (_, volume) = open(Settings { inline: Inline::Off, ..two_levels() });
    let data = unique(100, 1);
    write(&volume, 1, &data);
    write(&volume, 2, &data);
    volume.base.hints.clear_memory();
    volume.commits.checkpoint().unwrap();
    volume.backlog_notes.checkpoint_backlog(0);
    volume.work_loop.dedup(DedupCommand::Now { full: true });
    revisit_all(&volume);
    volume
}

/// Hints go to disk, come back, become stale there and are swept; freed blocks are punched.
fn disk_level() -> Volume {
    let (_, volume) = open(Settings { inline: Inline::All, ..two_levels() });
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    revisit_all(&volume);
    volume.commits.checkpoint().unwrap();
    write(&volume, 2, &data[..200 * BLOCK_BYTES]);
    revisit_all(&volume);
    delete(&volume, 1);
    delete(&volume, 2);
    volume.commits.checkpoint().unwrap();
    volume.groups.release_waiting();
    while volume.free_blocks.punch_some() {}
    // The same content again: the disk level names blocks that are free or hold other content by now.
    write_many(&volume, 3, &unique(2_000, 9));
    write_many(&volume, 4, &data);
    revisit_all(&volume);
    delete(&volume, 3);
    delete(&volume, 4);
    for _ in 0..TURNS_MAX {
        volume.hint_levels.sweep_hint_page();
    }
    volume
}

/// No thread merges the hints that leave memory.
fn hints_without_room() -> Volume {
    let (_, volume) = open(Settings { inline: Inline::All, ..two_levels() });
    for (n, part) in unique(TOO_MANY, 1).chunks(500 * BLOCK_BYTES).enumerate() {
        volume.write(MapId(1), n as u64 * 500 * BLOCK, part, |_, _| ()).unwrap();
        volume.commits.commit().unwrap();
    }
    volume
}

/// A hint that names a block of other content.
fn wrong_hint() -> Volume {
    let (_, volume) = open(Settings { fingerprints: FingerprintMode::Eager, ..one_level() });
    let (stored, new) = (unique(1, 1), unique(1, 2));
    write(&volume, 1, &stored);
    let tag: Tag = volume.base.hasher.tag(&new);
    volume.hint_levels.update_hints(&[], &[(tag, first_block(&volume, 1)), (tag, Pbn(900))]);
    write(&volume, 2, &new);
    volume
}

/// A block rots, its content is written again, and its place is reused. Blocks with many references get a replica,
/// which is dropped when the setting changes.
fn damage_and_replicas() -> Volume {
    let settings =
        Settings { fingerprints: FingerprintMode::Eager, verify: Verify::Off, replicate_refs_above: 2, ..one_level() };
    let (devices, volume) = open(settings);
    let data = unique(5, 1);
    (1..=3).for_each(|map| write(&volume, map, &data));
    let rotten = unique(1, 2);
    (4..=5).for_each(|map| write(&volume, map, &rotten));
    volume.commits.checkpoint().unwrap();
    let bad = first_block(&volume, 4);
    let mut block = rotten.clone();
    block[77] ^= 4;
    devices.data.write_at(&block, bad.0 * BLOCK).unwrap();
    devices.data.flush().unwrap();
    scrub(&volume);
    write(&volume, 4, &rotten);
    volume.repairs.repair_noticed().unwrap();
    scrub(&volume);
    volume.work_loop.tune(&[("replicate_refs_above".to_owned(), "0".to_owned())]).unwrap();
    scrub(&volume);
    volume
}

/// Defragments a file whose blocks are scattered.
fn defrag() -> Volume {
    let (_, volume) = open(one_level());
    write(&volume, 1, &unique(100, 1));
    for n in 0..50 {
        volume.clone_blocks((MapId(1), Lbn(98 - 2 * n)), (MapId(2), Lbn(n)), Blocks(1), |_, _| ()).unwrap();
    }
    volume.commits.commit().unwrap();
    let options = DefragOptions { run_blocks_min: Some(32), space: Blocks(1_000), ..DefragOptions::default() };
    volume.defragmenter.defrag(MapId(2), &options).unwrap();
    volume
}

/// A copy in the host's page cache is wrong, and the device's is right.
fn rotten_copy() -> Volume {
    let (device, volume) = shared_reads_of();
    let first = first_block(&volume, 1);
    volume.base.read_cache.remove(first);
    device.rot(first);
    drop(volume.reader.read(MapId(2), 0, BLOCK_BYTES).unwrap());
    volume
}

/// One file's read serves another that shares its blocks.
fn shared_reads() -> Volume {
    shared_reads_of().1
}

fn shared_reads_of() -> (Arc<Cached>, Volume) {
    let (devices, volume) = open(Settings { inline: Inline::All, host_cache: true, ..two_levels() });
    let data = unique(8, 1);
    (1..=2).for_each(|map| write(&volume, map, &data));
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let device = Cached::of(&devices);
    let volume = devices.open_with(device.clone());
    // Whether a block is shared is known while the table's page is in memory.
    volume.metadata.entries_at(&[first_block(&volume, 1)]).unwrap();
    (1..=2).for_each(|map| drop(volume.reader.read(MapId(map), 0, data.len()).unwrap()));
    (device, volume)
}

/// More shared blocks are read than the read cache holds: some for both files, and then all others for one.
fn shared_reads_beyond_the_cache() -> Volume {
    let (devices, volume) = open(Settings { inline: Inline::All, host_cache: true, ..two_levels() });
    for (n, part) in unique(MANY, 1).chunks(50 * BLOCK_BYTES).enumerate() {
        (1..=2).for_each(|map| volume.write(MapId(map), n as u64 * 50 * BLOCK, part, |_, _| ()).unwrap());
    }
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let volume = devices.open();
    let read = |map, first: usize| {
        volume.metadata.entries_at(&[first_block(&volume, map).plus(first as u64)]).unwrap();
        drop(volume.reader.read(MapId(map), first as u64 * BLOCK, 50 * BLOCK_BYTES).unwrap());
    };
    (0..1_000).step_by(50).for_each(|first| (1..=2).for_each(|map| read(map, first)));
    (1_000..MANY).step_by(50).for_each(|first| read(1, first));
    volume
}

/// A small file beside another.
fn small_reads() -> Volume {
    let (devices, volume) = open(one_level());
    (1..=2).for_each(|map| write(&volume, map, &unique(4, map)));
    volume.commits.checkpoint().unwrap();
    drop(volume);
    let volume = devices.open();
    volume.reader.read(MapId(1), 0, 4 * BLOCK_BYTES).unwrap();
    volume
}

/// A block that shrinks becomes a fragment, and a block again.
fn compressed() -> Volume {
    let volume = Devices::new(Blocks(600), Settings { compress: Compress::Later, ..one_level() }).open();
    let block: Vec<u8> = (0..4 * BLOCK_BYTES).map(|n| (n / 64) as u8).collect();
    volume.write(MapId(1), 0, &block, |_, _| ()).unwrap();
    volume.commits.checkpoint().unwrap();
    volume.block_compressor.compress_some(100).unwrap();
    assert!(volume.converter.expand_all(100).unwrap());
    volume
}

/// Packs of which most is freed are packed anew.
fn repacked() -> Volume {
    let volume = Devices::new(Blocks(4_000), Settings { compress: Compress::Later, ..one_level() }).open();
    write(&volume, 1, &text(300, 1));
    volume.commits.checkpoint().unwrap();
    compress_all(&volume);
    for n in (0..300).filter(|n| n % 4 > 0) {
        volume.write(MapId(1), n * BLOCK, &unique(1, 100 + n), |_, _| ()).unwrap();
    }
    volume.commits.checkpoint().unwrap();
    volume.run(BackgroundStep::Release).unwrap();
    while volume.repacker.repack_some(64).unwrap().is_some() {
        volume.commits.commit().unwrap();
        volume.run(BackgroundStep::Release).unwrap();
    }
    volume
}

/// A large write is compressed at once, and one of random bytes is left alone.
fn compressed_in_line() -> Volume {
    let volume = Devices::new(Blocks(600), Settings { compress: Compress::Inline, ..one_level() }).open();
    write(&volume, 1, &text(40, 1));
    write(&volume, 2, &unique(40, 2));
    volume
}

#[test]
fn every_counter_moves() {
    let workloads = [
        writes_and_commits,
        out_of_line,
        disk_level,
        hints_without_room,
        wrong_hint,
        damage_and_replicas,
        defrag,
        shared_reads,
        rotten_copy,
        shared_reads_beyond_the_cache,
        small_reads,
        compressed,
        compressed_in_line,
        repacked,
        || passed_over().0,
    ];
    let mut still: BTreeSet<String> = Counters::default().snapshot().into_keys().collect();
    assert!(!still.is_empty(), "there are no counters");
    for workload in workloads {
        let counts: BTreeMap<String, u64> = workload().base.stats.counters.snapshot();
        still.retain(|name| counts[name] == 0);
    }
    assert!(still.is_empty(), "counters that nothing moved: {still:?}");
}
