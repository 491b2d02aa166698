//! Every event counter moves: each workload here is small and deterministic, and together they move all of them. A
//! counter that no workload moves is reported. No counter is exempt.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::background::committer::answer;
use crate::device::Device;
use crate::format::keys::ShardKey;
use crate::format::shard::Target;
use crate::settings::values::{FingerprintMode, Inline, Settings, Verify};
use crate::stats::counters::Counters;
use crate::tests::fixture::{Devices, one_level, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, DedupCommand, DefragOptions, Lbn, MapId, Pbn, ScrubCommand, Tag};

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
    let core = devices.open();
    core.hint_levels.fill_hints().unwrap();
    (devices, core)
}

fn write(core: &Volume, map: u64, data: &[u8]) {
    core.write(MapId(map), 0, data, |_, _| ()).unwrap();
}

/// Writes in requests of 50 blocks, with the hints that leave memory merged in between as the worker does.
fn write_many(core: &Volume, map: u64, data: &[u8]) {
    for (n, part) in data.chunks(50 * BLOCK_BYTES).enumerate() {
        core.write(MapId(map), n as u64 * 50 * BLOCK, part, |_, _| ()).unwrap();
        core.hint_levels.merge_waiting_hints();
    }
}

fn delete(core: &Volume, map: u64) {
    core.range_changes.detach(MapId(map), |_| ()).unwrap();
    let map = core.base.signals.next_detached(Duration::ZERO).unwrap();
    core.reclaimer.reclaim(map).unwrap();
}

fn revisit_all(core: &Volume) {
    let is_done = (0..TURNS_MAX).any(|_| core.revisits.revisit(1_000).unwrap().is_none());
    assert!(is_done, "the worker comes to no end");
}

fn scrub(core: &Volume) {
    core.scrubber.command_scrub(ScrubCommand::Start { rate: None }).unwrap();
    for _ in 0..TURNS_MAX {
        if core.scrubber.scrub_status().state == "finished" {
            return;
        }
        core.scrubber.scrub_some(256).unwrap();
        core.commits.commit().unwrap();
    }
    panic!("the scrub comes to no end: {:?}", core.scrubber.scrub_status());
}

fn first_block(core: &Volume, map: u64) -> Pbn {
    let shard = core.metadata.shard(ShardKey { map: MapId(map), shard: 0 }).unwrap();
    match shard.slice(0, 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("block 0 of map {map} is {other:?}"),
    }
}

/// New, equal, zero and unchanged blocks; a barrier; a checkpoint.
fn writes_and_commits() -> Volume {
    let (_, core) = open(one_level());
    let data = unique(20, 1);
    write(&core, 1, &data);
    write(&core, 1, &data);
    write(&core, 2, &data);
    write(&core, 3, &[0; BLOCK_BYTES]);
    core.base.signals.barrier(Box::new(|result| result.unwrap()));
    answer(&core, core.base.signals.next_commit(Duration::ZERO, false).barriers);
    core.commits.checkpoint().unwrap();
    core
}

/// Requests that are not looked up, equal blocks that the worker finds, and a backlog that is saved.
fn out_of_line() -> Volume {
    let (_, core) = open(Settings { inline: Inline::Off, ..two_levels() });
    let data = unique(100, 1);
    write(&core, 1, &data);
    write(&core, 2, &data);
    core.base.hints.clear_memory();
    core.commits.checkpoint().unwrap();
    core.backlog_notes.checkpoint_backlog(0);
    core.work_loop.dedup(DedupCommand::Now { full: true });
    revisit_all(&core);
    core
}

/// Hints go to disk, come back, become stale there and are swept; freed blocks are punched.
fn disk_level() -> Volume {
    let (_, core) = open(Settings { inline: Inline::All, ..two_levels() });
    let data = unique(MANY, 1);
    write_many(&core, 1, &data);
    revisit_all(&core);
    core.commits.checkpoint().unwrap();
    write(&core, 2, &data[..200 * BLOCK_BYTES]);
    revisit_all(&core);
    delete(&core, 1);
    delete(&core, 2);
    core.commits.checkpoint().unwrap();
    core.groups.release_waiting();
    while core.free_blocks.punch_some() {}
    // The same content again: the disk level names blocks that are free or hold other content by now.
    write_many(&core, 3, &unique(2_000, 9));
    write_many(&core, 4, &data);
    revisit_all(&core);
    delete(&core, 3);
    delete(&core, 4);
    for _ in 0..TURNS_MAX {
        core.hint_levels.sweep_hint_page();
    }
    core
}

/// No thread merges the hints that leave memory.
fn hints_without_room() -> Volume {
    let (_, core) = open(Settings { inline: Inline::All, ..two_levels() });
    for (n, part) in unique(TOO_MANY, 1).chunks(500 * BLOCK_BYTES).enumerate() {
        core.write(MapId(1), n as u64 * 500 * BLOCK, part, |_, _| ()).unwrap();
        core.commits.commit().unwrap();
    }
    core
}

/// A hint that names a block of other content.
fn wrong_hint() -> Volume {
    let (_, core) = open(Settings { fingerprints: FingerprintMode::Eager, ..one_level() });
    let (stored, new) = (unique(1, 1), unique(1, 2));
    write(&core, 1, &stored);
    let tag: Tag = core.base.hasher.tag(&new);
    core.hint_levels.update_hints(&[], &[(tag, first_block(&core, 1)), (tag, Pbn(900))]);
    write(&core, 2, &new);
    core
}

/// A block rots, its content is written again, and its place is reused. Blocks with many references get a replica,
/// which is dropped when the setting changes.
fn damage_and_replicas() -> Volume {
    let settings =
        Settings { fingerprints: FingerprintMode::Eager, verify: Verify::Off, replicate_refs_above: 2, ..one_level() };
    let (devices, core) = open(settings);
    let data = unique(5, 1);
    (1..=3).for_each(|map| write(&core, map, &data));
    let rotten = unique(1, 2);
    (4..=5).for_each(|map| write(&core, map, &rotten));
    core.commits.checkpoint().unwrap();
    let bad = first_block(&core, 4);
    let mut block = rotten.clone();
    block[77] ^= 4;
    devices.data.write_at(&block, bad.0 * BLOCK).unwrap();
    devices.data.flush().unwrap();
    scrub(&core);
    write(&core, 4, &rotten);
    core.repairs.repair_noticed().unwrap();
    scrub(&core);
    core.work_loop.tune(&[("replicate_refs_above".to_owned(), "0".to_owned())]).unwrap();
    scrub(&core);
    core
}

/// Defragments a file whose blocks are scattered.
fn defrag() -> Volume {
    let (_, core) = open(one_level());
    write(&core, 1, &unique(100, 1));
    for n in 0..50 {
        core.clone_blocks((MapId(1), Lbn(98 - 2 * n)), (MapId(2), Lbn(n)), Blocks(1), |_, _| ()).unwrap();
    }
    core.commits.commit().unwrap();
    let options = DefragOptions { run_blocks_min: Some(32), space: Blocks(1_000), ..DefragOptions::default() };
    core.defragmenter.defrag(MapId(2), &options).unwrap();
    core
}

/// One file's read serves another that shares its blocks.
fn shared_reads() -> Volume {
    let (devices, core) = open(Settings { inline: Inline::All, ..two_levels() });
    let data = unique(8, 1);
    (1..=2).for_each(|map| write(&core, map, &data));
    core.commits.checkpoint().unwrap();
    drop(core);
    let core = devices.open();
    // Whether a block is shared is known while the table's page is in memory.
    core.metadata.entries_at(&[first_block(&core, 1)]).unwrap();
    (1..=2).for_each(|map| drop(core.reader.read(MapId(map), 0, data.len()).unwrap()));
    core
}

/// A small file beside another.
fn small_reads() -> Volume {
    let (devices, core) = open(one_level());
    (1..=2).for_each(|map| write(&core, map, &unique(4, map)));
    core.commits.checkpoint().unwrap();
    drop(core);
    let core = devices.open();
    core.reader.read(MapId(1), 0, 4 * BLOCK_BYTES).unwrap();
    core
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
        small_reads,
    ];
    let mut still: BTreeSet<String> = Counters::default().snapshot().into_keys().collect();
    assert!(!still.is_empty(), "there are no counters");
    for workload in workloads {
        let counts: BTreeMap<String, u64> = workload().base.stats.counters.snapshot();
        still.retain(|name| counts[name] == 0);
    }
    assert!(still.is_empty(), "counters that nothing moved: {still:?}");
}
