//! The parts of a volume that own state, made from what was opened. Each keeps its fields private.

use std::sync::Arc;

use oncefs_dedup::PieceCost;

use crate::backlog::file::SkippedFile;
use crate::backlog::list::Backlog;
use crate::commit::log::{Journal, JournalBounds, Log};
use crate::device::Device;
use crate::hash::Hasher;
use crate::hints::disk_level::DiskHints;
use crate::hints::store::Hints;
use crate::known_damage::notices::Damage;
use crate::kv::Kv;
use crate::pace::portion_size::portion_size;
use crate::pace::stopwatch::Stopwatch;
use crate::pace::system_load::SystemLoad;
use crate::pace::worker_state::Worker;
use crate::policy::device_reads::DeviceReads;
use crate::policy::inline::InlineDedup;
use crate::policy::policies::PolicyFacts;
use crate::read::cache::ReadCache;
use crate::settings::values::{Settings, Tuning};
use crate::signals::foreground::Foreground;
use crate::signals::health::Health;
use crate::signals::requests::{Committer, Signals};
use crate::space::allocator::Allocator;
use crate::space::ballast::Ballast;
use crate::space::data_area::DataArea;
use crate::space::free_space::FreeSpace;
use crate::space::host::Host;
use crate::space::pins::Pins;
use crate::state::checkpoint_store::CheckpointStore;
use crate::state::maps::MapLocks;
use crate::state::published::State;
use crate::state::staging::Staging;
use crate::stats::counters::Statistics;
use crate::sync::{LockRank, Mutex};

/// Declares the parts that own state, and `base_part!`, which is the type of one of them by the name of its field.
macro_rules! base_parts {
    ($($(#[$about:meta])* $part:ident: $type:ty;)+) => {
        /// The parts that own state. Every other part of a volume uses some of them.
        #[derive(Clone)]
        pub struct BaseParts {
            $($(#[$about])* pub $part: Arc<$type>,)+
        }

        macro_rules! base_part {
            $(($part) => { $type };)+
        }
        pub(crate) use base_part;
    };
}

// `tests/words` counts these files as imports of a part that names the field.
base_parts! {
    /// Whether it takes changes.
    health: crate::signals::health::Health;
    /// The publish lock.
    state: crate::sync::Mutex<crate::state::published::State>;
    /// The locks of maps, and new ids.
    maps: crate::state::maps::MapLocks;
    /// The data area.
    data: crate::space::data_area::DataArea;
    /// The stores that checkpoints write.
    stored: crate::state::checkpoint_store::CheckpointStore;
    /// The log, and the gates that order groups and checkpoints.
    journal: crate::commit::log::Journal;
    /// Free space.
    space: crate::space::free_space::FreeSpace;
    /// The readers that delay the reuse of freed blocks.
    pins: crate::space::pins::Pins;
    /// Published blocks in memory.
    staging: crate::state::staging::Staging;
    /// The read cache.
    read_cache: crate::read::cache::ReadCache;
    /// The hint store.
    hints: crate::hints::store::Hints;
    /// In-line deduplication.
    inline: crate::policy::inline::InlineDedup;
    /// Blocks that in-line deduplication left to the worker.
    backlog: crate::backlog::list::Backlog;
    /// Out-of-line deduplication.
    worker: crate::pace::worker_state::Worker;
    /// The facts that decide how files are deduplicated.
    policy: crate::policy::policies::PolicyFacts;
    /// Bad blocks, and the scrub.
    damage: crate::known_damage::notices::Damage;
    /// The settings of this mount.
    tuning: crate::settings::values::Tuning;
    /// Tags and fingerprints.
    hasher: crate::hash::Hasher;
    /// Requests of programs.
    foreground: crate::signals::foreground::Foreground;
    /// Wakes the background threads.
    signals: crate::signals::requests::Signals;
    /// Counters, and times of stages.
    stats: crate::stats::counters::Statistics;
}

/// The parts of an open volume.
pub struct Parts {
    /// Which volume it is.
    pub volume_id: [u8; 16],
    /// The published state.
    pub state: State,
    /// Blocks in memory that the log holds.
    pub staging: Staging,
    /// The data area.
    pub data: Arc<dyn Device>,
    /// The block table.
    pub table: Arc<dyn Device>,
    /// The block table's pages of fragments, if the volume may have any.
    pub fragments: Option<Arc<dyn Device>>,
    /// The sorted state.
    pub kv: Arc<dyn Kv>,
    /// The log.
    pub log: Log,
    /// Free space.
    pub allocator: Allocator,
    /// Free numbers of fragments.
    pub numbers: Allocator,
    /// Tags and fingerprints.
    pub hasher: Hasher,
    /// Space set aside on the host.
    pub ballast: Ballast,
    /// The provider of the data area's space, unless it is a raw device.
    pub host: Option<Host>,
    /// Bound of the read cache: its own bytes, and the bytes with all that others can lend it.
    pub read_cache_bytes: (u64, u64),
    /// Bound of the memory for policies of files.
    pub policy_bytes_max: u64,
    /// Bound of the memory for read patterns of files.
    pub read_pattern_bytes_max: u64,
    /// Buffers of 1 MiB kept for reuse.
    pub buffers_max: usize,
    /// Bounds of the changes between two commits and checkpoints.
    pub journal_bounds: JournalBounds,
    /// The settings of this mount.
    pub settings: Settings,
    /// The disk level of the hint store.
    pub disk_hints: Option<DiskHints>,
    /// The file of skipped blocks.
    pub skipped_file: Option<SkippedFile>,
    /// The committer of a volume without threads.
    pub committer: Option<Committer>,
    /// The machine.
    pub system_load: SystemLoad,
    /// The device with the data says that it turns, and is believed.
    pub turns: bool,
    /// Times the requests to the device.
    pub stopwatch: Stopwatch,
    /// No change is possible.
    pub is_read_only: bool,
}

impl BaseParts {
    /// Makes them from what was opened.
    pub fn new(parts: Parts) -> Self {
        let settings = parts.settings;
        let opened_at = parts.state.durable_sequence;
        let pins = Arc::new(Pins::default());
        Self {
            health: Arc::new(Health::new(parts.is_read_only)),
            maps: Arc::new(MapLocks::new(parts.state.totals.next_map)),
            state: Arc::new(Mutex::new(LockRank::State, parts.state)),
            data: Arc::new(DataArea::new(parts.data, parts.buffers_max)),
            stored: Arc::new(CheckpointStore::new(parts.table, parts.fragments, parts.kv)),
            journal: Arc::new(Journal::new(parts.volume_id, opened_at, parts.log, parts.journal_bounds)),
            space: Arc::new(FreeSpace::new(parts.allocator, parts.numbers, pins.clone(), parts.host, parts.ballast)),
            pins,
            staging: Arc::new(parts.staging),
            read_cache: Arc::new(ReadCache::new(parts.read_cache_bytes.0, parts.read_cache_bytes.1)),
            hints: Arc::new(Hints::new(&settings, parts.disk_hints)),
            inline: Arc::new(InlineDedup::new(&settings, parts.stopwatch.clone())),
            backlog: Arc::new(Backlog::new(&settings, parts.skipped_file)),
            worker: Arc::new(Worker::new(&settings, parts.system_load, portion_size())),
            policy: Arc::new(PolicyFacts::new(
                parts.policy_bytes_max,
                parts.read_pattern_bytes_max,
                DeviceReads::new(PieceCost::expected(parts.turns), parts.stopwatch),
            )),
            damage: Arc::new(Damage::new(&settings)),
            tuning: Arc::new(Tuning::new(settings)),
            hasher: Arc::new(parts.hasher),
            foreground: Arc::new(Foreground::default()),
            signals: Arc::new(Signals::new(parts.committer)),
            stats: Arc::new(Statistics::default()),
        }
    }
}

/// Declares a part and its constructor, `new(base, &part, ...)`. The part keeps handles of the parts of `base` that are
/// named, and of other parts, which are named with their types. A field has the name of the part that it holds. State
/// of its own follows in `own`, each field with its first value, which may use the constructor's arguments.
macro_rules! part {
    ($(#[$about:meta])* pub struct $name:ident {
        $vis:vis $base:ident: $($of_base:ident),* $(; $($part:ident: $type:ty),+)?
    } $(own { $($(#[$of_field:meta])* $field:ident: $kept:ty = $first:expr),+ })?) => {
        $(#[$about])*
        pub struct $name {
            $($vis $of_base: std::sync::Arc<$crate::base::base_part!($of_base)>,)*
            $($($vis $part: std::sync::Arc<$type>,)+)?
            $($($(#[$of_field])* $field: $kept,)+)?
        }

        impl $name {
            /// It uses these parts.
            #[allow(clippy::too_many_arguments, unused_variables, reason = "each part that it uses, by its name")]
            pub fn new($base: &$crate::base::BaseParts $($(, $part: &std::sync::Arc<$type>)+)?) -> Self {
                Self {
                    $($of_base: $base.$of_base.clone(),)*
                    $($($part: $part.clone(),)+)?
                    $($($field: $first,)+)?
                }
            }
        }
    };
}

pub(crate) use part;
