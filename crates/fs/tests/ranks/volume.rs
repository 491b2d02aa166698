//! A volume in memory whose files are ranked when a test asks for it, and operations of programs on its files.

use std::sync::Arc;

use oncefs_engine::device::MemoryDevice;
use oncefs_engine::kv::MemoryKv;
use oncefs_engine::{BLOCK_BYTES, Backend, BackgroundStep, Ballast, Blocks, EffectivePolicy, OpenOptions, Rank, Store};
use oncefs_fs::{AtimePolicy, FileSystem, Ino, Options, Privileges, WriteOrigin};

use crate::common::{TestClock, contradictions, file};

pub const DATA: Blocks = Blocks(40_000);
pub const LOG_BYTES: u64 = 4 << 20;
pub const TABLE_BYTES: u64 = DATA.0.div_ceil(128) * 4096;
pub const BLOCK: u64 = BLOCK_BYTES as u64;
pub const BY_CALLER: WriteOrigin = WriteOrigin::Caller { privileges: Privileges::Kept };
pub const DAY: i64 = 86_400;
/// A day in 2026, at noon.
pub const START: i64 = 20_700 * DAY + DAY / 2;
/// More turns than any test here needs.
pub const TURNS_MAX: usize = 100_000;

/// A volume that can be closed, reopened, and lose power.
pub struct Volume {
    data: Arc<MemoryDevice>,
    table: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    kv: Arc<MemoryKv>,
    clock: Arc<TestClock>,
}

impl Volume {
    pub fn new() -> Self {
        let device = |bytes| Arc::new(MemoryDevice::new(bytes));
        let (data, table, log) = (device(DATA.bytes()), device(TABLE_BYTES), device(LOG_BYTES));
        let volume = Self { data, table, log, kv: Arc::default(), clock: Arc::default() };
        volume.clock.set(START);
        Store::format_on(&volume.backend(), DATA).unwrap();
        FileSystem::format(&volume.store(&[]), &*volume.clock).unwrap();
        volume
    }

    /// The volume that a power failure leaves at this moment.
    pub fn after_power_cut(&self) -> Self {
        let cut = |device: &MemoryDevice| Arc::new(device.after_power_cut(|_| false));
        let (data, table, log) = (cut(&self.data), cut(&self.table), cut(&self.log));
        Self { data, table, log, kv: Arc::new(self.kv.after_power_cut(false)), clock: self.clock.clone() }
    }

    fn backend(&self) -> Backend {
        Backend {
            data: self.data.clone(),
            table: self.table.clone(),
            fragments: None,
            log: self.log.clone(),
            log_bytes: LOG_BYTES,
            kv: self.kv.clone(),
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

    fn store(&self, settings: &[(&str, &str)]) -> Arc<Store> {
        let usual = [("inline", "all"), ("skipped_memory", "256K")];
        let settings = usual.iter().chain(settings).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Store::open_on(self.backend(), &OpenOptions { settings: settings.collect(), ..OpenOptions::new(16 << 20) })
            .unwrap()
    }

    pub fn open_with(&self, settings: &[(&str, &str)]) -> Arc<FileSystem> {
        // A small inode cache, so that eviction is part of every test.
        let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Never, read_only: false, generation: None };
        let clock = self.clock.clone();
        FileSystem::open_without_threads(self.store(settings), clock, &options).unwrap()
    }

    pub fn open(&self) -> Arc<FileSystem> {
        self.open_with(&[("ranks", "on")])
    }

    /// Sets how many days have passed since the volume was made.
    pub fn days(&self, days: i64) {
        self.seconds(days * DAY);
    }

    pub fn seconds(&self, seconds: i64) {
        self.clock.set(START + seconds);
    }
}

/// Ranks until nothing is due, committing now and then because no thread does. Returns the number of turns.
pub fn rank(fs: &FileSystem) -> usize {
    let is_over = |turn: &usize| {
        if turn.is_multiple_of(8) {
            fs.store().commit().unwrap();
        }
        !fs.store().run(BackgroundStep::Rank).unwrap()
    };
    (0..TURNS_MAX).find(is_over).expect("it comes to an end")
}

pub fn rank_of(fs: &FileSystem, ino: Ino) -> Rank {
    fs.publish_reads().unwrap();
    let rank = fs.usage(ino).unwrap().rank();
    assert_eq!(fs.effective(ino).unwrap().policy.rank, rank, "the engine knows the rank of inode {}", ino.0);
    rank
}

pub fn effective_policy(fs: &FileSystem, ino: Ino) -> EffectivePolicy {
    fs.effective(ino).unwrap().effective_policy
}

/// Blocks that all differ, also from those of other keys.
pub fn unique(key: u64, blocks: u64) -> Vec<u8> {
    let word = |n: u64| (key << 32 | n).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes();
    (1..=blocks * BLOCK / 8).flat_map(word).collect()
}

pub fn written(fs: &FileSystem, name: &str, content: &[u8]) -> Ino {
    let ino = file(fs, Ino::ROOT, name).ino;
    fs.write(ino, 0, content, BY_CALLER).unwrap();
    ino
}

pub fn small(fs: &FileSystem, name: &str) -> Ino {
    let key = name.bytes().fold(7_u64, |key, byte| key.wrapping_mul(31).wrapping_add(u64::from(byte)));
    written(fs, name, &unique(key >> 8, 4))
}

/// Reads this many blocks in sequence, starting over at the end.
pub fn read_in_sequence(fs: &FileSystem, ino: Ino, blocks: u64) {
    let size = fs.getattr(ino).unwrap().size;
    for _ in 0..blocks.div_ceil(size / BLOCK) {
        let handle = fs.opened(ino);
        (0..size / BLOCK).for_each(|at| drop(fs.read_by(handle, ino, at * BLOCK, BLOCK_BYTES, true).unwrap()));
    }
}

/// Reads this many blocks, none next to the one before.
pub fn read_at_random(fs: &FileSystem, ino: Ino, blocks: u64) {
    let handle = fs.opened(ino);
    let at = |n: u64| if n.is_multiple_of(2) { 3 } else { 1 };
    (0..blocks).for_each(|n| drop(fs.read_by(handle, ino, at(n) * BLOCK, BLOCK_BYTES, true).unwrap()));
}

pub fn assert_sound(fs: &FileSystem) {
    let found = contradictions(fs);
    assert!(found.is_empty(), "{found:#?}");
    let report = fs.store().check(true, &mut |_, _| ()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
}

/// Files by rank, as `oncefs stats` reports them.
pub fn counted(fs: &FileSystem) -> Vec<u64> {
    fs.report().ranks.values().map(|rank| rank.files).collect()
}
