//! The hint store of an open volume: its memory level, its disk level, and what is known of both.

use oncefs_dedup::{Hint, HintOptions, HintStore, Sample};

use crate::hints::disk::DiskHints;
use crate::settings::values::Settings;
use crate::stats::counters::Count;
use crate::sync::{AtomicBool, Mutex};

/// Both levels.
pub struct Hints {
    /// Which contents hints name, the same in both levels.
    pub sample: Sample,
    /// Who may hold a content: the memory level.
    pub memory: Mutex<HintStore>,
    /// Hints that left memory and wait to be merged into the disk level.
    pub evicted: Mutex<Vec<Hint>>,
    /// The disk level; None: there is none.
    pub disk: Mutex<Option<DiskHints>>,
    /// Whether there is a disk level.
    pub has_disk_level: AtomicBool,
    /// Whether both levels together name every live block of the sample, as far as is known.
    pub are_complete: AtomicBool,
    /// Whether hints may have left memory since a scan named every live block there.
    pub left_memory: AtomicBool,
    /// Whether hints were lost, so that the block table is to be scanned.
    pub scan_is_wanted: AtomicBool,
    /// Pages of the block table that a scan under way has read.
    pub scan_pages_done: Count,
    /// Pages that it reads; 0: there is none.
    pub scan_pages: Count,
}

impl Hints {
    /// An empty memory level over a disk level whose pages are not adopted yet.
    pub fn new(settings: &Settings, disk: Option<DiskHints>) -> Self {
        let sample = Sample::one_of(settings.hint_sample);
        let options = HintOptions {
            bytes_max: settings.hint_bytes,
            prefix_bits: settings.prefix_bits,
            eviction: settings.eviction,
            keep_evicted: disk.is_some(),
            sample,
        };
        Self {
            sample,
            memory: Mutex::new(HintStore::new(options)),
            evicted: Mutex::default(),
            has_disk_level: AtomicBool::new(disk.is_some()),
            disk: Mutex::new(disk),
            are_complete: AtomicBool::new(false),
            left_memory: AtomicBool::new(true),
            scan_is_wanted: AtomicBool::new(false),
            scan_pages_done: Count::new(0),
            scan_pages: Count::new(0),
        }
    }
}
