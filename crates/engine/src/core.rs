//! An open volume: a list of parts, and the small steps that several of them need.

use std::path::PathBuf;
use std::sync::Arc;

use crate::background::signals::{Committer, Signals};
use crate::commit::log::Log;
use crate::commit::log::{Journal, JournalBounds};
use crate::damage::notices::Damage;
use crate::device::Device;
use crate::hints::disk::DiskHints;
use crate::hints::store::Hints;
use crate::kv::Kv;
use crate::layout::portion_size::portion_size;
use crate::policy::policies::PolicyFacts;
use crate::read::cache::ReadCache;
use crate::settings::values::Settings;
use crate::settings::values::Tuning;
use crate::space::allocator::Allocator;
use crate::space::data_area::DataArea;
use crate::space::free_space::FreeSpace;
use crate::state::checkpoint_store::CheckpointStore;
use crate::state::maps::MapLocks;
use crate::state::published::State;
use crate::state::staging::Staging;
use crate::stats::counters::Statistics;
use crate::sync::{LockRank, Mutex};
use crate::volume::ballast::Ballast;
use crate::volume::health::Health;
use crate::worker::backlog::Backlog;
use crate::worker::backlog_file::SkippedFile;
use crate::worker::foreground::Foreground;
use crate::worker::out_of_line::Worker;
use crate::worker::system_load::SystemLoad;
use crate::write::hash::Hasher;
use crate::write::inline::InlineDedup;

/// An open volume.
///
/// Each part keeps its fields private. `sync/lock_order.rs` has the order of all locks.
pub struct Core {
    /// Whether it takes changes.
    pub health: Health,
    /// The publish lock.
    pub state: Mutex<State>,
    /// The locks of maps, and new ids.
    pub maps: MapLocks,
    /// The data area.
    pub data: DataArea,
    /// The stores that checkpoints write.
    pub stored: CheckpointStore,
    /// The log, and the gates that order groups and checkpoints.
    pub journal: Journal,
    /// Free space, and the readers that delay its reuse.
    pub space: FreeSpace,
    /// Published blocks in memory.
    pub staging: Staging,
    /// The read cache.
    pub read_cache: ReadCache,
    /// The hint store.
    pub hints: Hints,
    /// In-line deduplication.
    pub inline: InlineDedup,
    /// Blocks that in-line deduplication left to the worker.
    pub backlog: Backlog,
    /// Out-of-line deduplication.
    pub worker: Worker,
    /// The facts that decide how files are deduplicated.
    pub policy: PolicyFacts,
    /// Bad blocks, and the scrub.
    pub damage: Damage,
    /// The settings of this mount.
    pub tuning: Tuning,
    /// Tags and fingerprints.
    pub hasher: Hasher,
    /// Requests of programs.
    pub foreground: Foreground,
    /// Wakes the background threads.
    pub signals: Signals,
    /// Counters, and times of stages.
    pub stats: Statistics,
}

/// The parts of an open volume.
pub struct Parts {
    /// Which volume it is.
    pub volume_id: [u8; 16],
    /// See the fields of [`Core`].
    pub state: State,
    /// Blocks in memory that the log holds.
    pub staging: Staging,
    /// The data area.
    pub data: Arc<dyn Device>,
    /// The block table.
    pub table: Arc<dyn Device>,
    /// The sorted state.
    pub kv: Arc<dyn Kv>,
    /// The log.
    pub log: Log,
    /// Free space.
    pub allocator: Allocator,
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

impl Core {
    /// Assembles the parts.
    pub fn new(parts: Parts) -> Self {
        let settings = parts.settings;
        let opened_at = parts.state.durable_sequence;
        Self {
            health: Health::new(parts.is_read_only),
            maps: MapLocks::new(parts.state.totals.next_map),
            state: Mutex::new(LockRank::State, parts.state),
            data: DataArea::new(parts.data, parts.buffers_max),
            stored: CheckpointStore::new(parts.table, parts.kv),
            journal: Journal::new(parts.volume_id, opened_at, parts.log, parts.journal_bounds),
            space: FreeSpace::new(parts.allocator, parts.host, parts.ballast),
            staging: parts.staging,
            read_cache: ReadCache::new(parts.read_cache_bytes.0, parts.read_cache_bytes.1),
            hints: Hints::new(&settings, parts.disk_hints),
            inline: InlineDedup::new(&settings),
            backlog: Backlog::new(&settings, parts.skipped_file),
            worker: Worker::new(&settings, parts.system_load, portion_size()),
            policy: PolicyFacts::new(parts.policy_bytes_max, parts.read_pattern_bytes_max),
            damage: Damage::new(&settings),
            tuning: Tuning::new(settings),
            hasher: parts.hasher,
            foreground: Foreground::default(),
            signals: Signals::new(parts.committer),
            stats: Statistics::default(),
        }
    }
}
