//! An open volume: a list of parts, and the small steps that several of them need.

use std::sync::Arc;

use crate::backlog::list::Backlog;
use crate::base::{BaseParts, Parts};
use crate::commit::change_room::ChangeRoom;
use crate::commit::log::Journal;
use crate::damage::notices::Damage;
use crate::damage::reports::DamageReports;
use crate::hints::levels::HintLevels;
use crate::hints::store::Hints;
use crate::policy::effective::FilePolicies;
use crate::policy::policies::PolicyFacts;
use crate::read::cache::ReadCache;
use crate::settings::values::Tuning;
use crate::signals::foreground::Foreground;
use crate::signals::health::Health;
use crate::signals::requests::Signals;
use crate::space::claim::FreeBlocks;
use crate::space::data_area::DataArea;
use crate::space::free_space::FreeSpace;
use crate::state::checkpoint_store::CheckpointStore;
use crate::state::loading::Metadata;
use crate::state::maps::MapLocks;
use crate::state::published::State;
use crate::state::staging::Staging;
use crate::stats::counters::Statistics;
use crate::sync::Mutex;
use crate::worker::backlog_notes::BacklogNotes;
use crate::worker::out_of_line::Worker;
use crate::write::hash::Hasher;
use crate::write::inline::InlineDedup;

/// An open volume.
///
/// Each part keeps its fields private. `sync/lock_order.rs` has the order of all locks.
pub struct Core {
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
    /// Free space, and the readers that delay its reuse.
    pub space: Arc<FreeSpace>,
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
    /// Reads the newest maps, records and entries of the block table.
    pub metadata: Arc<Metadata>,
    /// See [`FreeBlocks`].
    pub free_blocks: Arc<FreeBlocks>,
    /// See [`FilePolicies`].
    pub file_policies: Arc<FilePolicies>,
    /// See [`HintLevels`].
    pub hint_levels: Arc<HintLevels>,
    /// See [`DamageReports`].
    pub damage_reports: Arc<DamageReports>,
    /// See [`BacklogNotes`].
    pub backlog_notes: Arc<BacklogNotes>,
    /// See [`ChangeRoom`].
    pub change_room: Arc<ChangeRoom>,
}

impl Core {
    /// Assembles the parts.
    pub fn new(parts: Parts) -> Self {
        let base = BaseParts::new(parts);
        let metadata = Arc::new(Metadata::new(&base));
        let free_blocks = Arc::new(FreeBlocks::new(&base, &metadata));
        let file_policies = Arc::new(FilePolicies::new(&base, &metadata));
        let hint_levels = Arc::new(HintLevels::new(&base, &metadata));
        let damage_reports = Arc::new(DamageReports::new(&base));
        let backlog_notes = Arc::new(BacklogNotes::new(&base, &file_policies));
        let change_room = Arc::new(ChangeRoom::new(&base));
        let BaseParts {
            health,
            maps,
            state,
            data,
            stored,
            journal,
            space,
            staging,
            read_cache,
            hints,
            inline,
            backlog,
            worker,
            policy,
            damage,
            tuning,
            hasher,
            foreground,
            signals,
            stats,
        } = base;
        Self {
            health,
            maps,
            state,
            data,
            stored,
            journal,
            space,
            staging,
            read_cache,
            hints,
            inline,
            backlog,
            worker,
            policy,
            damage,
            tuning,
            hasher,
            foreground,
            signals,
            stats,
            metadata,
            free_blocks,
            file_policies,
            hint_levels,
            damage_reports,
            backlog_notes,
            change_room,
        }
    }
}
