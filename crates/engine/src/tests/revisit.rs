//! The promises of the out-of-line worker, as plain calls: equal blocks merge into one, whatever was skipped, lost,
//! damaged or stale; no file ever reads other bytes; and the work ends.
//!
//! Blocks that change during a visit: `race`. Power cuts at random moments: `crash`.

mod awaited;
mod bounds;
mod damage;
mod duplicates;
mod ends;
mod sampled;
mod turns;

use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use oncefs_dedup::{Hint, PaceMode, Skipped, Work};

use crate::Backend;
use crate::device::{Device, Io, MemoryDevice};
use crate::format::extent_leaf::{LEAF_BLOCKS, Target};
use crate::format::hint_header::HintHeader;
use crate::format::keys::LeafKey;
use crate::format::page::Entry;
use crate::fsck::parts::checker;
use crate::hash::is_zero;
use crate::kv::{Kv, KvMemory, Put};
use crate::settings::values::{FingerprintMode, Inline, Settings};
use crate::tests::fixture::{Devices, Random, two_levels, unique};
use crate::volume::assembly::Volume;
use crate::{BLOCK_BYTES, Blocks, DedupCommand, Lbn, MapId, Pbn, Result};

const DATA: Blocks = Blocks(40_000);
const BLOCK: u64 = BLOCK_BYTES as u64;
/// More blocks than the memory level of `two_levels` has hints.
const MANY: usize = 6_000;
/// Turns of the worker that suffice for everything here.
const TURNS_MAX: usize = 1_000;

fn settings(inline: Inline) -> Settings {
    Settings { inline, ..two_levels() }
}

fn volume(inline: Inline) -> (Devices, Volume) {
    let devices = Devices::new(DATA, settings(inline));
    let volume = devices.open();
    volume.hint_levels.fill_hints().unwrap();
    (devices, volume)
}

fn write(volume: &Volume, map: u64, first: u64, data: &[u8]) {
    volume.write(MapId(map), first * BLOCK, data, |_, _| ()).unwrap();
}

/// Writes in requests of 50 blocks, with the hints that leave memory merged in between as the worker does.
fn write_many(volume: &Volume, map: u64, data: &[u8]) {
    for (n, part) in data.chunks(50 * BLOCK_BYTES).enumerate() {
        write(volume, map, n as u64 * 50, part);
        volume.hint_levels.merge_waiting_hints();
    }
}

fn tune(volume: &Volume, name: &str, value: &str) -> Result<()> {
    volume.work_loop.tune(&[(name.to_owned(), value.to_owned())])
}

/// Blocks in use without the label.
fn used(volume: &Volume) -> u64 {
    volume.free_blocks.totals().used.0 - 1
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.base.stats.counters.snapshot()[name]
}

fn revisit_all(volume: &Volume) {
    for _ in 0..TURNS_MAX {
        if volume.revisits.revisit(1_000).unwrap().is_none() {
            return;
        }
    }
    panic!("the worker comes to no end");
}

/// Like `oncefs dedup --now`: returns how many turns it took.
fn work_all(volume: &Volume, full: bool) -> usize {
    volume.work_loop.dedup(DedupCommand::Now { full });
    for turns in 0..TURNS_MAX {
        if !volume.work_loop.dedup_status().now {
            return turns;
        }
        volume.work_loop.work();
        // There is no committer here, and the worker would wait for room.
        volume.commits.commit().unwrap();
    }
    panic!("the worker comes to no end: {:?}", volume.work_loop.dedup_status());
}

fn assert_holds(volume: &Volume, map: u64, data: &[u8]) {
    let read = volume.reader.read(MapId(map), 0, data.len()).unwrap();
    let differs = read.iter().zip(data).position(|(a, b)| a != b);
    assert_eq!(differs, None, "map {map} differs");
}

fn assert_clean(volume: &Volume) {
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

fn delete(volume: &Volume, map: u64) {
    volume.range_changes.detach(MapId(map), |_| ()).unwrap();
    let map = volume.base.signals.next_detached(Duration::ZERO).unwrap();
    volume.reclaimer.reclaim(map).unwrap();
}

fn pbn(volume: &Volume, map: u64, lbn: u64) -> Pbn {
    let key = LeafKey { map: MapId(map), leaf: lbn / LEAF_BLOCKS };
    let at = (lbn % LEAF_BLOCKS) as u16;
    match volume.metadata.leaf(key).unwrap().slice(at, at + 1).next().unwrap().target {
        Target::Data(pbn) => pbn,
        other => panic!("block {lbn} of map {map} is {other:?}"),
    }
}

fn entry(volume: &Volume, pbn: Pbn) -> Entry {
    volume.metadata.entries_at(&[pbn]).unwrap()[&pbn]
}

fn close(volume: &Volume) {
    volume.commits.checkpoint().unwrap();
    volume.leave_cleanly();
}

/// A volume whose first file's hints are on disk, with the file's content.
fn volume_with_disk_level() -> (Devices, Volume, Vec<u8>) {
    let (devices, volume) = volume(Inline::All);
    let data = unique(MANY, 1);
    write_many(&volume, 1, &data);
    revisit_all(&volume);
    volume.commits.checkpoint().unwrap();
    (devices, volume, data)
}
