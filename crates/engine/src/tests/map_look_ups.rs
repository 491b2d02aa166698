//! How often a read of a cold file queries the sorted state for the file's map.

use std::sync::Arc;

use crate::device::{Access, Faults};
use crate::kv::FaultyKv;
use crate::tests::fixture::{Devices, Random, one_level, unique};
use crate::volume::assembly::Volume;
use crate::volume::backend::Backend;
use crate::{BLOCK_BYTES, Blocks, MapId};

const FILE: MapId = MapId(1);
const MIB: usize = 1 << 20;
const MIBS: usize = 4;

/// A file written in sequence, in requests that end anywhere, and a cold volume that counts.
fn cold_file() -> (Vec<u8>, Arc<Faults>, Volume) {
    let devices = Devices::new(Blocks(4_000), one_level());
    let content = unique(MIBS * MIB / BLOCK_BYTES, 1);
    let volume = devices.open();
    let requests = content.chunks(37 * BLOCK_BYTES);
    requests
        .enumerate()
        .for_each(|(n, bytes)| volume.write(FILE, (n * 37 * BLOCK_BYTES) as u64, bytes, |_, _| ()).unwrap());
    volume.commits.checkpoint().unwrap();
    let asked = Arc::new(Faults::default());
    let kv = Arc::new(FaultyKv::new(devices.kv.clone(), asked.clone()));
    let volume = devices.open_medium(Backend { kv, ..devices.backend() });
    (content, asked, volume)
}

/// Look-ups during `work`.
fn look_ups(asked: &Faults, work: impl FnOnce()) -> usize {
    let before = asked.count();
    work();
    asked.seen()[before..].iter().filter(|(_, access)| matches!(access, Access::Get | Access::Scan)).count()
}

#[test]
fn a_file_written_in_sequence_takes_one_look_up_for_each_mib_read_in_any_order() {
    let block = |n: usize| n * BLOCK_BYTES..(n + 1) * BLOCK_BYTES;
    let mut random = Random::new(4);
    let orders: [Vec<usize>; 2] =
        [(0..1_024).collect(), (0..5_000).map(|_| random.below((MIBS * MIB / BLOCK_BYTES) as u64) as usize).collect()];
    for order in orders {
        let (content, asked, volume) = cold_file();
        let found = look_ups(&asked, || {
            for n in order {
                let bytes = volume.reader.read(FILE, block(n).start as u64, BLOCK_BYTES).unwrap();
                assert!(*bytes == content[block(n)], "block {n}");
            }
        });
        assert!(found <= MIBS + 1, "{found} look-ups for {MIBS} MiB and the file's policy");
    }
}
