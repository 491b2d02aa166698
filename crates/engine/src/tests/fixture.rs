//! A volume in memory for the engine's tests: devices that a power cut leaves as a disk might, and a generator.

use std::sync::Arc;

pub use oncefs_toolbox::Random;

use crate::device::{Device, MemoryDevice};
use crate::format::checkpoint::Checkpoint;
use crate::format::keys;
use crate::format::page::table_bytes;
use crate::format::record::Totals;
use crate::kv::{Kv, MemoryKv};
use crate::settings::values::Settings;
use crate::space::ballast::Ballast;
use crate::volume::assembly::Volume;
use crate::volume::backend::{Backend, TestHooks};
use crate::volume::open::recover;
use crate::write::publish::OnPublish;
use crate::{Blocks, Change, Lbn, MapId, OpenOptions, Profile, Result, Store};

/// Each opening reads the whole log, so the thousands of schedules get a smaller one.
pub const LOG_BYTES: u64 = if cfg!(feature = "schedules") { 512 << 10 } else { 4 << 20 };
const MEMORY_BYTES: u64 = 2 << 20;
/// The first map that is handed out. Tests may name lower ones themselves.
const FIRST_MAP: MapId = MapId(1 << 20);

/// Blocks that no other seed gives.
#[cfg(not(feature = "schedules"))]
pub fn unique(blocks: usize, seed: u64) -> Vec<u8> {
    let mut filler = Random::new(seed);
    (0..blocks * crate::BLOCK_BYTES / 8).flat_map(|_| filler.word().to_le_bytes()).collect()
}

/// The complete index in memory, without a worker.
pub fn one_level() -> Settings {
    Settings::of(Profile::Lrlfs, MEMORY_BYTES)
}

/// Both levels of the hint store and a worker, with memory for a few hundred hints only.
pub fn two_levels() -> Settings {
    let settings = Settings::of(Profile::Smartdedup, MEMORY_BYTES);
    Settings { hint_bytes: 24 << 10, prefix_bits: None, skipped_bytes: 8 << 10, ..settings }
}

/// The parts of a volume.
pub struct Devices {
    pub data: Arc<MemoryDevice>,
    pub table: Arc<MemoryDevice>,
    pub fragments: Arc<MemoryDevice>,
    pub log: Arc<MemoryDevice>,
    pub kv: Arc<MemoryKv>,
    pub hints: Arc<MemoryDevice>,
    pub skipped: Arc<MemoryDevice>,
    pub settings: Settings,
}

impl Devices {
    /// An empty volume.
    pub fn new(data: Blocks, settings: Settings) -> Self {
        let devices = Self {
            data: Arc::new(MemoryDevice::new(data.bytes())),
            table: Arc::new(MemoryDevice::new(table_bytes(data))),
            fragments: Arc::default(),
            log: Arc::new(MemoryDevice::new(LOG_BYTES)),
            kv: Arc::default(),
            hints: Arc::default(),
            skipped: Arc::default(),
            settings,
        };
        Store::format_on(&devices.backend(), data).unwrap();
        let totals = Totals { data, used: Blocks(1), next_map: FIRST_MAP, ..Totals::default() };
        let checkpoint = Checkpoint { sequence: 0, log_at: 0, totals };
        devices.kv.write(vec![(keys::checkpoint(), Some(checkpoint.encode(devices.backend().volume_id)))]).unwrap();
        devices.kv.flush().unwrap();
        devices
    }

    /// The devices as a power cut may leave them: any part of the unflushed writes survives.
    pub fn after_power_cut(&self, random: &mut Random) -> Self {
        let mut cut = |device: &MemoryDevice| {
            let share = random.below(4);
            Arc::new(device.after_power_cut(|_| random.below(3) < share))
        };
        let (data, table, log) = (cut(&self.data), cut(&self.table), cut(&self.log));
        let (hints, skipped) = (cut(&self.hints), cut(&self.skipped));
        let kv = Arc::new(self.kv.after_power_cut(random.below(2) == 0));
        // A volume without fragments draws the same numbers as if it had no such device.
        let share = if self.fragments.len().is_ok_and(|bytes| bytes > 0) { random.below(4) } else { 0 };
        let fragments = Arc::new(self.fragments.after_power_cut(|_| random.below(3) < share));
        Self { fragments, data, table, log, kv, hints, skipped, settings: self.settings.clone() }
    }

    /// No unflushed write survives.
    pub fn after_power_cut_of_all(&self) -> Self {
        let cut = |device: &MemoryDevice| Arc::new(device.after_power_cut(|_| false));
        let (data, table, log) = (cut(&self.data), cut(&self.table), cut(&self.log));
        let (hints, skipped) = (cut(&self.hints), cut(&self.skipped));
        let kv = Arc::new(self.kv.after_power_cut(false));
        let fragments = cut(&self.fragments);
        Self { fragments, data, table, log, kv, hints, skipped, settings: self.settings.clone() }
    }

    /// The medium that a volume is opened from.
    pub fn backend(&self) -> Backend {
        Backend {
            data: self.data.clone(),
            table: self.table.clone(),
            fragments: Some(self.fragments.clone()),
            log: self.log.clone(),
            log_bytes: LOG_BYTES,
            kv: self.kv.clone(),
            ballast: Ballast::none(),
            host: None,
            secret: [9; 32],
            volume_id: [1; 16],
            hints: Some(self.hints.clone()),
            skipped: Some(self.skipped.clone()),
            device_load: None,
            turns: false,
            hold: None,
        }
    }

    pub fn open(&self) -> Volume {
        self.open_medium(self.backend())
    }

    #[cfg_attr(feature = "schedules", expect(dead_code, reason = "its users have threads of their own"))]
    pub fn open_with(&self, data: Arc<dyn Device>) -> Volume {
        self.open_medium(Backend { data, ..self.backend() })
    }

    pub fn open_medium(&self, backend: Backend) -> Volume {
        recover(backend, &OpenOptions::new(MEMORY_BYTES), self.settings.clone(), TestHooks::default()).unwrap()
    }
}

impl Volume {
    /// See [`crate::Store::write`].
    pub fn write<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        data: &[u8],
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.writer.write_request(map, at, data, crate::WriteMode::Unawaited, with)
    }

    /// See [`crate::Store::clone_blocks`].
    pub fn clone_blocks<G: OnPublish>(
        &self,
        source: (MapId, Lbn),
        target: (MapId, Lbn),
        blocks: Blocks,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.range_changes.clone_blocks_if(source, target, blocks, || true, with).map(|_| ())
    }

    /// Reserves a range of any length.
    #[cfg(not(feature = "schedules"))]
    pub fn reserve_in_parts(&self, map: MapId, bytes: std::ops::Range<u64>) {
        for part in self.range_parts.parts(map, &bytes, true).unwrap() {
            self.range_changes.reserve(map, part.start, part.end - part.start, |_, _| ()).unwrap();
        }
    }

    /// Cuts a map of any length.
    #[cfg(not(feature = "schedules"))]
    pub fn truncate_in_parts(&self, map: MapId, size: u64) {
        for part in self.range_parts.parts(map, &(size..1 << 50), false).unwrap().into_iter().rev() {
            self.range_changes.zero(map, part.start, part.end - part.start, false, |_, _| ()).unwrap();
        }
    }
}
