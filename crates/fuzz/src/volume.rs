//! A whole volume in memory, opened without threads: all work happens in the order of the calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use oncefs_engine::device::Device;
use oncefs_engine::{Backend, Ballast, Blocks, OpenOptions, Profile, Store};
use oncefs_fs::{AtimePolicy, Clock, FileSystem, NamePlaces, Options, Result, Timestamp};

use crate::disk::{Disk, Image, PAGE_BYTES, Records, Requests, Sorted};
use crate::memory::keep_freed;
use crate::seal::VOLUME_ID;

/// Size of the data area.
pub const DATA: Blocks = Blocks(16 << 10);
/// Size of the log.
pub const LOG_BYTES: u64 = 2 << 20;
/// Blocks that a page of the block table describes.
const PAGE_ENTRIES: u64 = 128;
/// Bound on caches and hints.
const MEMORY_BYTES: u64 = 4 << 20;

/// The parts of a volume as bytes.
#[derive(Clone)]
pub struct Parts {
    /// The data area.
    pub data: Image,
    /// The block table.
    pub table: Image,
    /// The block table's pages of fragments.
    pub fragments: Image,
    /// The log.
    pub log: Image,
    /// The file of hints.
    pub hints: Image,
    /// The file of skipped blocks.
    pub skipped: Image,
    /// The sorted state.
    pub records: Records,
}

/// A clock with a time that the test sets.
#[derive(Default)]
pub struct SetClock(AtomicI64);

impl SetClock {
    /// Sets the time, in seconds.
    pub fn set(&self, seconds: i64) {
        self.0.store(seconds, Relaxed);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp { seconds: self.0.load(Relaxed), nanoseconds: 0 }
    }
}

/// The parts as devices, from which a volume is opened.
pub struct Volume {
    data: Arc<Disk>,
    table: Arc<Disk>,
    fragments: Arc<Disk>,
    log: Arc<Disk>,
    hints: Arc<Disk>,
    skipped: Arc<Disk>,
    records: Arc<Sorted>,
    /// The clock of its file system.
    pub clock: Arc<SetClock>,
}

impl Volume {
    /// A volume with an empty file system.
    pub fn new() -> Self {
        Self::with(LOG_BYTES, NamePlaces::default())
    }

    /// A volume with an empty file system, a log of this size and these name places.
    pub fn with(log_bytes: u64, places: NamePlaces) -> Self {
        let table = Image::new(DATA.0.div_ceil(PAGE_ENTRIES) * PAGE_BYTES as u64);
        let volume = Self::of(&Parts {
            data: Image::new(DATA.bytes()),
            table,
            fragments: Image::default(),
            log: Image::new(log_bytes),
            hints: Image::default(),
            skipped: Image::default(),
            records: Records::new(),
        });
        Store::format_on(&volume.backend(), DATA).expect("devices in memory do not fail");
        let store = volume.store(false).expect("a new volume opens");
        FileSystem::format_with(&store, &*volume.clock, places).expect("a new volume takes a file system");
        volume
    }

    /// The volume with these bytes.
    pub fn of(parts: &Parts) -> Self {
        keep_freed();
        let requests = Arc::new(Requests::default());
        let disk = |image| Arc::new(Disk::new(image, &requests));
        Self {
            data: disk(&parts.data),
            table: disk(&parts.table),
            fragments: disk(&parts.fragments),
            log: disk(&parts.log),
            hints: disk(&parts.hints),
            skipped: disk(&parts.skipped),
            records: Arc::new(Sorted::new(&parts.records, &requests)),
            clock: Arc::default(),
        }
    }

    /// Its present bytes.
    pub fn parts(&self) -> Parts {
        self.left(|disk| disk.image(), Sorted::records)
    }

    /// Its bytes after a power cut. `is_kept` chooses among the writes that were not flushed.
    pub fn after_power_cut(&self, is_kept: &mut dyn FnMut() -> bool) -> Parts {
        let is_flushed = is_kept();
        self.left(|disk| disk.after_power_cut(&mut *is_kept), |records| records.after_power_cut(is_flushed))
    }

    fn left(&self, mut image: impl FnMut(&Disk) -> Image, records: impl Fn(&Sorted) -> Records) -> Parts {
        Parts {
            data: image(&self.data),
            table: image(&self.table),
            fragments: image(&self.fragments),
            log: image(&self.log),
            hints: image(&self.hints),
            skipped: image(&self.skipped),
            records: records(&self.records),
        }
    }

    fn backend(&self) -> Backend {
        Backend {
            data: self.data.clone(),
            table: self.table.clone(),
            fragments: Some(self.fragments.clone()),
            log: self.log.clone(),
            log_bytes: self.log.len().expect("devices in memory do not fail"),
            kv: self.records.clone(),
            ballast: Ballast::none(),
            host: None,
            secret: [9; 32],
            volume_id: VOLUME_ID,
            hints: Some(self.hints.clone()),
            skipped: Some(self.skipped.clone()),
            device_load: None,
            turns: false,
            hold: None,
        }
    }

    fn store(&self, read_only: bool) -> oncefs_engine::Result<Arc<Store>> {
        // Every request is looked up, so that nothing depends on time.
        let settings = [
            ("hint_memory", "64K"),
            ("skipped_memory", "64K"),
            ("inline", "all"),
            ("ranks", "on"),
            ("compress", "inline"),
            ("compress_method", "lz4"),
            ("compress_method_later", "lz4"),
            // The clock advances by a second with each call.
            ("rank_evaluation_seconds_min", "3"),
            ("rank_evaluation_reads_min", "4"),
            ("rank_hot_seconds_max", "30"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let profile = Some(Profile::Smartdedup);
        Store::open_on(self.backend(), &OpenOptions { read_only, profile, settings, ..OpenOptions::new(MEMORY_BYTES) })
    }

    /// Opens it.
    pub fn open(&self, read_only: bool) -> Result<Arc<FileSystem>> {
        let options = Options { memory_bytes_max: 0, atime: AtimePolicy::Never, read_only, generation: None };
        FileSystem::open_without_threads(self.store(read_only)?, self.clock.clone(), &options)
    }
}
