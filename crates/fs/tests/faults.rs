//! Every operation on every part of a volume fails once below a file system. Its view of its files always agrees with
//! its records, after failed and successful calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{TestClock, contradictions, directory, file, names};
use oncefs_engine::device::{Access, Device, Fault, Faults, FaultyDevice, Lasts, MemoryDevice};
use oncefs_engine::kv::{FaultyKv, MemoryKv, RECORDS};
use oncefs_engine::{BLOCK_BYTES, Backend, BackgroundStep, Ballast, Blocks, OpenOptions, Store};
use oncefs_fs::{
    AllocateMode, AtimePolicy, CopyKind, FileSystem, Ino, Options, Privileges, Result, SetAttributes, TreeCopy,
    TreeProgress, WriteOrigin,
};

const DATA: Blocks = Blocks(8_000);
const LOG_BYTES: u64 = 4 << 20;
const TABLE_BYTES: u64 = DATA.0.div_ceil(128) * 4096;
const BLOCK: u64 = BLOCK_BYTES as u64;
const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };

/// The parts of a volume that is not open.
struct Parts {
    data: Arc<MemoryDevice>,
    table: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    kv: Arc<MemoryKv>,
}

impl Parts {
    fn empty() -> Self {
        let device = |bytes| Arc::new(MemoryDevice::new(bytes));
        let parts =
            Self { data: device(DATA.bytes()), table: device(TABLE_BYTES), log: device(LOG_BYTES), kv: Arc::default() };
        let faults = Arc::default();
        Store::format_on(&parts.backend(&faults), DATA).unwrap();
        FileSystem::format(&parts.store(&faults).unwrap(), &TestClock::default()).unwrap();
        parts
    }

    fn copy(&self) -> Self {
        let copy = |device: &MemoryDevice| Arc::new(device.after_power_cut(|_| true));
        let kv = Arc::new(self.kv.after_power_cut(true));
        Self { data: copy(&self.data), table: copy(&self.table), log: copy(&self.log), kv }
    }

    fn backend(&self, faults: &Arc<Faults>) -> Backend {
        let faulty = |device: &Arc<MemoryDevice>, part| -> Arc<dyn Device> {
            Arc::new(FaultyDevice::new(device.clone(), part, faults.clone()))
        };
        Backend {
            data: faulty(&self.data, "data"),
            table: faulty(&self.table, "table"),
            fragments: None,
            log: faulty(&self.log, "log"),
            log_bytes: LOG_BYTES,
            kv: Arc::new(FaultyKv::new(self.kv.clone(), faults.clone())),
            ballast: Ballast::none(),
            host: None,
            secret: [9; 32],
            volume_id: [1; 16],
            hints: None,
            skipped: None,
            device_load: None,
            turns: false,
            hold: None,
        }
    }

    fn store(&self, faults: &Arc<Faults>) -> oncefs_engine::Result<Arc<Store>> {
        // A verified read loads the block table, and a later publication would find it in memory.
        let settings = [("inline", "all"), ("verify", "off")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Store::open_on(self.backend(faults), &OpenOptions { settings, ..OpenOptions::new(16 << 20) })
    }

    fn open(&self, faults: &Arc<Faults>) -> Arc<FileSystem> {
        let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Never, read_only: false, generation: None };
        FileSystem::open_without_threads(self.store(faults).unwrap(), Arc::new(TestClock::default()), &options).unwrap()
    }
}

/// Blocks that all differ, also from those of other keys.
fn unique(key: u64, blocks: u64) -> Vec<u8> {
    let word = |n: u64| (key << 32 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (1..=blocks * BLOCK / 8).flat_map(word).collect()
}

/// Two files with common content, checkpointed, so that the next opening has no data of them in memory.
fn prepared() -> Parts {
    let parts = Parts::empty();
    let file_system = parts.open(&Arc::default());
    for name in ["one", "two", "three"] {
        let ino = file(&file_system, Ino::ROOT, name).ino;
        file_system.write(ino, 0, &unique(1, 200), BY_CALLER).unwrap();
        file_system.write(ino, 200 * BLOCK, &unique(name.len() as u64 + 7, 100), BY_CALLER).unwrap();
    }
    file_system.store().run(BackgroundStep::Checkpoint).unwrap();
    parts
}

type Call = (&'static str, fn(&FileSystem, [Ino; 3]) -> Result<()>);

/// Calls that fail in the middle, once for each operation on a part. The offsets are not at block boundaries.
const CALLS: [Call; 8] = [
    ("share", |fs, [one, ..]| fs.write(one, 290 * BLOCK, &unique(1, 150), BY_CALLER).map(drop)),
    ("write", |fs, [one, ..]| fs.write(one, 100, &unique(5, 40), BY_CALLER).map(drop)),
    ("truncate", |fs, [_, two, _]| set_size(fs, two, 150 * BLOCK + 77)),
    ("punch", |fs, [one, ..]| fs.fallocate(one, 5 * BLOCK + 9, 90 * BLOCK, AllocateMode::PunchHole, Privileges::Kept)),
    ("zero", |fs, [one, ..]| {
        fs.fallocate(one, 100 * BLOCK + 9, 9 * BLOCK, AllocateMode::ZeroRange { keep_size: false }, Privileges::Kept)
    }),
    ("reserve", |fs, [_, two, _]| {
        fs.fallocate(two, 280 * BLOCK, 300 * BLOCK, AllocateMode::Reserve { keep_size: false }, Privileges::Kept)
    }),
    ("copy", |fs, [one, _, three]| {
        fs.copy_file_range(one, 0, three, 250 * BLOCK, 200 * BLOCK, Privileges::Kept).map(drop)
    }),
    ("empty", |fs, [_, two, _]| set_size(fs, two, 0)),
];

fn set_size(file_system: &FileSystem, ino: Ino, size: u64) -> Result<()> {
    file_system.setattr(ino, &SetAttributes { size: Some(size), ..SetAttributes::default() }).map(drop)
}

fn run(file_system: &FileSystem, (_, call): &Call) -> Result<()> {
    let ino = |name: &str| file_system.lookup(Ino::ROOT, name.as_bytes()).map(|attributes| attributes.ino);
    call(file_system, [ino("one")?, ino("two")?, ino("three")?])
}

/// Checks that both audits find no fault, and that the names exist.
fn assert_sound(file_system: &FileSystem, case: &str) {
    let found = contradictions(file_system);
    assert!(found.is_empty(), "{case}: {found:#?}");
    let report = file_system.store().check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{case}: {:#?}", report.problems);
    assert_eq!(names(file_system, Ino::ROOT).len(), 3, "{case}");
}

/// The operations on parts that a call causes when no data of the volume is in memory.
fn operations(prepared: &Parts, call: &Call) -> Vec<(&'static str, Access)> {
    let (parts, faults) = (prepared.copy(), Arc::default());
    let file_system = parts.open(&faults);
    let opening = faults.count();
    run(&file_system, call).unwrap();
    faults.seen().split_off(opening)
}

/// Whether a call fails with this operation. In any case the file system must be sound afterwards, in use and after
/// opening it again.
fn fails_and_is_sound(prepared: &Parts, call: &Call, (n, lasts): (usize, Lasts), case: &str) -> bool {
    let (parts, faults) = (prepared.copy(), Arc::new(Faults::default()));
    let file_system = parts.open(&faults);
    faults.arm(faults.count() + n, Fault::Broken, lasts);
    let result = run(&file_system, call);
    faults.mend();
    if file_system.store().failure().is_none() {
        // The next change of the same inode would store anything that a failed call left in memory.
        run(&file_system, call).unwrap();
        file_system.store().commit().unwrap();
        assert_sound(&file_system, case);
    }
    drop(file_system);
    assert_sound(&parts.open(&Arc::default()), case);
    result.is_err()
}

#[test]
fn an_operation_that_fails_leaves_inodes_as_their_records() {
    let prepared = prepared();
    let mut failed: BTreeMap<(&str, &str, Access), u32> = BTreeMap::new();
    for call in &CALLS {
        for (n, (part, access)) in operations(&prepared, call).into_iter().enumerate() {
            // A page of the block table is read twice before it counts as unreadable.
            for lasts in [Lasts::Once, Lasts::UntilMended] {
                let case = format!("{}, operation {n} {part} {access:?}, {lasts:?}", call.0);
                if fails_and_is_sound(&prepared, call, (n, lasts), &case) {
                    *failed.entry((call.0, part, access)).or_default() += 1;
                }
            }
        }
    }
    println!("{failed:#?}");
    // The inode is edited before the block table is read.
    for name in ["share", "write", "truncate", "punch", "zero"] {
        assert!(failed.contains_key(&(name, "table", Access::Read)), "{name} never failed so: {failed:#?}");
    }
}

#[test]
fn a_clone_looks_up_the_inode_and_the_map_of_each_file_and_nothing_that_cannot_be_there() {
    const FILES: usize = 300;
    let parts = Parts::empty();
    let file_system = parts.open(&Arc::default());
    let top = directory(&file_system, Ino::ROOT, "top").ino;
    for number in 0..FILES as u64 {
        let ino = file(&file_system, top, &format!("file{number}")).ino;
        file_system.write(ino, 0, &unique(number, 1), BY_CALLER).unwrap();
    }
    file_system.store().run(BackgroundStep::Checkpoint).unwrap();
    drop(file_system);
    let seen = Arc::new(Faults::default());
    let file_system = parts.open(&seen);
    let order = TreeCopy { source: top, parent: Ino::ROOT, name: b"new", kind: CopyKind::Clone, of: b"" };
    let before = seen.count();
    let copied = file_system.copy_tree(&order, &TreeProgress::default(), &|| true).unwrap().unwrap();
    let looked = |(part, access): &&(&str, Access)| *part == RECORDS && matches!(access, Access::Get | Access::Scan);
    let look_ups = seen.seen()[before..].iter().filter(looked).count();
    // The rest: the names, a portion at a time, and the directories.
    assert!((2 * FILES..2 * FILES + 40).contains(&look_ups), "{look_ups} look-ups for {FILES} files");
    assert_eq!(names(&file_system, copied.ino).len(), FILES);
    assert!(contradictions(&file_system).is_empty());
}
