//! Fault drills in memory: every operation on every part of a volume goes wrong once, each in every possible way; every
//! structure on disk has bits flipped; every part is cut short, lost or replaced by another one.
//!
//! `docs/faults.md` says what must hold. Real mounts: `tests/system/tests/faults.rs`.

mod copies;
mod damaged_table;
mod drill;
mod every_operation;
mod flips;
mod host_files;
mod parts;
mod salvage;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::device::{Access, Device, Fault, Faults, FaultyDevice, Lasts};
use crate::fsck::parts::checker;
use crate::kv::{FaultyKv, RECORDS};
use crate::settings::values::Settings;
use crate::tests::fixture::{Devices, Random, two_levels};
use crate::volume::assembly::Volume;
use crate::volume::open::recover;
use crate::{BLOCK_BYTES, Backend, BackgroundStep, Blocks, Change, Error, Lbn, MapId, OpenOptions, Result, TestHooks};

const DATA: Blocks = Blocks(3_000);
const GROWN: Blocks = Blocks(3_500);
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Both levels of hints, with memory for so few that some go to disk.
fn settings() -> Settings {
    Settings { hint_bytes: 1 << 10, ..two_levels() }
}

fn unique(key: u64, len: u64) -> Vec<u8> {
    let mut filler = Random::new(key);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| filler.word().to_le_bytes()).collect();
    bytes.truncate(len as usize);
    bytes
}

/// The content of the files, by map.
type Model = BTreeMap<u64, Arc<Vec<u8>>>;

/// One step of work on a volume.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Bytes from a key.
    Write { map: u64, at: u64, key: u64, len: u64 },
    /// Blocks of a map become another's.
    Clone { from: (u64, u64), to: (u64, u64), blocks: u64 },
    /// A range reads as zeros, and may stay reserved.
    Zero { map: u64, at: u64, len: u64, reserve: bool },
    /// Space is promised.
    Reserve { map: u64, at: u64, len: u64 },
    /// The file is cut.
    Truncate { map: u64, size: u64 },
    /// The file is deleted.
    Detach { map: u64 },
    /// The data area grows to `GROWN`.
    Grow,
    /// In-line deduplication is switched.
    Inline(&'static str),
    /// Everything is read and compared.
    ReadAll,
    /// Everything published becomes durable.
    Commit,
    /// Work in the background.
    BackgroundStep(BackgroundStep),
    /// The process ends and the volume is opened again.
    Reopen,
}

impl Step {
    /// The model with this step done.
    fn applied(self, mut model: Model) -> Model {
        fn file(model: &mut Model, map: u64, end: u64) -> &mut Vec<u8> {
            let bytes = Arc::make_mut(model.entry(map).or_default());
            bytes.resize(bytes.len().max(end as usize), 0);
            bytes
        }
        match self {
            Self::Write { map, at, key, len } => {
                file(&mut model, map, at + len)[at as usize..(at + len) as usize].copy_from_slice(&unique(key, len));
            }
            Self::Clone { from: (source, first), to: (target, at), blocks } => {
                let len = blocks * BLOCK;
                let mut copied = model.get(&source).map(|bytes| bytes.to_vec()).unwrap_or_default();
                copied.resize(copied.len().max((first * BLOCK + len) as usize), 0);
                let copied = &copied[(first * BLOCK) as usize..(first * BLOCK + len) as usize];
                let (at, end) = (at * BLOCK, at * BLOCK + len);
                file(&mut model, target, end)[at as usize..end as usize].copy_from_slice(copied);
            }
            Self::Zero { map, at, len, .. } => {
                file(&mut model, map, at + len)[at as usize..(at + len) as usize].fill(0);
            }
            Self::Reserve { map, at, len } => drop(file(&mut model, map, at + len)),
            Self::Truncate { map, size } => Arc::make_mut(model.entry(map).or_default()).resize(size as usize, 0),
            Self::Detach { map } => drop(model.remove(&map)),
            Self::Grow | Self::Inline(_) | Self::ReadAll | Self::Commit | Self::BackgroundStep(_) | Self::Reopen => {}
        }
        model
    }

    /// Whether its success means that everything published before is durable.
    fn is_barrier(self) -> bool {
        matches!(
            self,
            Self::Grow | Self::Commit | Self::BackgroundStep(BackgroundStep::Checkpoint | BackgroundStep::LeaveCleanly)
        )
    }
}

/// The record that a file system would keep of a file: its size.
fn note(map: u64, model: &Model) -> impl FnOnce(i64, &mut Change) + use<> {
    let size = model.get(&map).map_or(0, |bytes| bytes.len()) as u64;
    move |_, change| change.put(vec![0x10, map as u8], size.to_le_bytes().to_vec())
}

/// Does a step; `after` is the model with it done.
fn perform(volume: &Volume, step: Step, after: &Model) -> Result<()> {
    match step {
        Step::Write { map, at, key, len } => volume.write(MapId(map), at, &unique(key, len), note(map, after)),
        Step::Clone { from, to, blocks } => {
            let place = |(map, lbn)| (MapId(map), Lbn(lbn));
            volume.clone_blocks(place(from), place(to), Blocks(blocks), note(to.0, after))
        }
        Step::Zero { map, at, len, reserve } => {
            volume.range_changes.zero(MapId(map), at, len, reserve, note(map, after))
        }
        Step::Reserve { map, at, len } => volume.range_changes.reserve(MapId(map), at, len, note(map, after)),
        Step::Truncate { map, size } => volume.range_changes.truncate(MapId(map), size, note(map, after)),
        Step::Detach { map } => volume.range_changes.detach(MapId(map), |change| change.delete(vec![0x10, map as u8])),
        Step::Grow => volume.grow(GROWN.bytes()),
        Step::Inline(value) => volume.work_loop.tune(&[("inline".to_owned(), value.to_owned())]),
        Step::Commit => volume.commits.commit(),
        Step::BackgroundStep(step) => {
            // A step that reports more work is repeated, as its thread would. The bound is never reached.
            for _ in 0..100 {
                if !volume.run(step)? {
                    return Ok(());
                }
            }
            panic!("{step:?} comes to no end");
        }
        Step::ReadAll | Step::Reopen => Ok(()),
    }
}

/// The present content of a volume, according to its own records. Map numbers are small.
fn contents(volume: &Volume) -> Result<Model> {
    let mut model = Model::new();
    for (key, value) in volume.metadata.scan(&[0x10], &[0x11], 1000)? {
        let size = u64::from_le_bytes(value[..].try_into().expect("a size has eight bytes"));
        let map = u64::from(key[1]);
        model.insert(map, Arc::new(volume.reader.read(MapId(map), 0, size as usize)?.to_vec()));
    }
    Ok(model)
}

fn assert_clean(volume: &Volume, when: &str) {
    let report = checker(volume).check(true, &mut |_, _| ()).unwrap_or_else(|error| panic!("{when}: check: {error}"));
    assert!(report.is_clean(), "{when}: {:#?}", report.problems);
}

/// The devices behind wrappers that share one script of faults.
fn faulty_medium(devices: &Devices, faults: &Arc<Faults>) -> Backend {
    let device = |inner: &Arc<crate::device::MemoryDevice>, part: &'static str| -> Arc<dyn Device> {
        Arc::new(FaultyDevice::new(inner.clone(), part, faults.clone()))
    };
    Backend {
        data: device(&devices.data, "data"),
        table: device(&devices.table, "table"),
        log: device(&devices.log, "log"),
        kv: Arc::new(FaultyKv::new(devices.kv.clone(), faults.clone())),
        hints: Some(device(&devices.hints, "hints")),
        skipped: Some(device(&devices.skipped, "skipped")),
        ..devices.backend()
    }
}

fn try_open(devices: &Devices, backend: Backend) -> Result<Volume> {
    recover(backend, &OpenOptions::new(2 << 20), devices.settings.clone(), TestHooks::default())
}
