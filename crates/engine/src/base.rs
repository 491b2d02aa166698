//! The parts of a volume that own state, made from what was opened. Each keeps its fields private.

use std::path::PathBuf;
use std::sync::Arc;

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
use crate::pace::system_load::SystemLoad;
use crate::pace::worker_state::Worker;
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
use crate::space::pins::Pins;
use crate::state::checkpoint_store::CheckpointStore;
use crate::state::maps::MapLocks;
use crate::state::published::State;
use crate::state::staging::Staging;
use crate::stats::counters::Statistics;
use crate::sync::{LockRank, Mutex};

/// The parts that own state. Every other part of a volume uses some of them.
#[derive(Clone)]
pub struct BaseParts {
    /// Whether it takes changes.
    pub health: Arc<Health>,
    /// The publish lock.
    pub state: Arc<Mutex<State>>,
    /// The locks of maps, and new ids.
    pub maps: Arc<MapLocks>,
    /// The data area.
    pub data: Arc<DataArea>,
    /// The stores that checkpoints write.
    pub stored: Arc<CheckpointStore>,
    /// The log, and the gates that order groups and checkpoints.
    pub journal: Arc<Journal>,
    /// Free space.
    pub space: Arc<FreeSpace>,
    /// The readers that delay the reuse of freed blocks.
    pub pins: Arc<Pins>,
    /// Published blocks in memory.
    pub staging: Arc<Staging>,
    /// The read cache.
    pub read_cache: Arc<ReadCache>,
    /// The hint store.
    pub hints: Arc<Hints>,
    /// In-line deduplication.
    pub inline: Arc<InlineDedup>,
    /// Blocks that in-line deduplication left to the worker.
    pub backlog: Arc<Backlog>,
    /// Out-of-line deduplication.
    pub worker: Arc<Worker>,
    /// The facts that decide how files are deduplicated.
    pub policy: Arc<PolicyFacts>,
    /// Bad blocks, and the scrub.
    pub damage: Arc<Damage>,
    /// The settings of this mount.
    pub tuning: Arc<Tuning>,
    /// Tags and fingerprints.
    pub hasher: Arc<Hasher>,
    /// Requests of programs.
    pub foreground: Arc<Foreground>,
    /// Wakes the background threads.
    pub signals: Arc<Signals>,
    /// Counters, and times of stages.
    pub stats: Arc<Statistics>,
}

/// The parts of an open volume.
pub struct Parts {
    /// Which volume it is.
    pub volume_id: [u8; 16],
    /// What was published.
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
    /// The volume's directory, if the data area takes its space from the host file system.
    pub host: Option<PathBuf>,
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
            inline: Arc::new(InlineDedup::new(&settings)),
            backlog: Arc::new(Backlog::new(&settings, parts.skipped_file)),
            worker: Arc::new(Worker::new(&settings, parts.system_load, portion_size())),
            policy: Arc::new(PolicyFacts::new(parts.policy_bytes_max, parts.read_pattern_bytes_max)),
            damage: Arc::new(Damage::new(&settings)),
            tuning: Arc::new(Tuning::new(settings)),
            hasher: Arc::new(parts.hasher),
            foreground: Arc::new(Foreground::default()),
            signals: Arc::new(Signals::new(parts.committer)),
            stats: Arc::new(Statistics::default()),
        }
    }
}

/// Writes the constructor of a part, `new(base, &part, ...)`: the part keeps handles of those parts of `base` that are
/// named, and of the other parts, which are given with their types. A field has the name of the part that it holds.
macro_rules! part {
    ($name:ident { base: $($of_base:ident),+ $(; $($part:ident: $type:ty),+)? }) => {
        impl $name {
            /// It uses these parts.
            #[allow(clippy::too_many_arguments, reason = "each part that it uses, by its name")]
            pub fn new(base: &$crate::base::BaseParts $($(, $part: &std::sync::Arc<$type>)+)?) -> Self {
                Self { $($of_base: base.$of_base.clone(),)+ $($($part: $part.clone(),)+)? }
            }
        }
    };
}

pub(crate) use part;
