//! How an open volume is assembled from its parts.

use oncefs_dedup::Compress;

use crate::backlog::file;
use crate::base::Parts;
use crate::commit::log::{JournalBounds, Log};
use crate::format::checkpoint::Checkpoint;
use crate::format::fragment::FIRST_NUMBER;
use crate::format::keys;
use crate::format::page::{PAGE_BYTES, PAGE_ENTRIES};
use crate::hash::Hasher;
use crate::hints::disk_level;
use crate::pace::system_load::SystemLoad;
use crate::settings::values::Settings;
use crate::space::allocator::Allocator;
use crate::state::maps::Leaves;
use crate::state::published::State;
use crate::state::staging::Staging;
use crate::state::table::Table;
use crate::volume::assembly::Volume;
use crate::volume::backend::{Backend, TestHooks};
use crate::volume::memory_budget::Budget;
use crate::volume::{files as volume, recover};
use crate::{Blocks, Copies, Error, OpenOptions, Profile, Result};

/// All blocks and numbers that there can be.
const ALL_NUMBERS: Blocks = Blocks(2 * FIRST_NUMBER);
/// Bytes of the table of fragments for each number.
const ENTRY_SHARE: u64 = PAGE_BYTES as u64 / PAGE_ENTRIES;

/// The settings of a mount: the profile's, overridden by the options.
pub fn settings_of(options: &OpenOptions, own: Profile, copies: Option<Copies>) -> Result<Settings> {
    let mut settings = Settings::of(options.profile.unwrap_or(own), options.memory_bytes_max);
    settings.copies = copies.unwrap_or(settings.copies);
    options.settings.iter().try_for_each(|(name, value)| settings.set(name, value, false))?;
    Ok(settings)
}

/// Recovers the last commit of a volume. No thread runs yet.
pub fn recover(backend: Backend, options: &OpenOptions, settings: Settings, driver: TestHooks) -> Result<Volume> {
    let checkpoint = backend.kv.get(&keys::checkpoint())?;
    let checkpoint = checkpoint.as_deref().and_then(|bytes| Checkpoint::decode(bytes, backend.volume_id));
    let checkpoint = checkpoint
        .ok_or_else(|| Error::corrupt("the checkpoint record", "it is missing, damaged or that of another volume"))?;
    let Checkpoint { sequence, log_at, totals } = checkpoint;
    let mut settings = settings;
    settings.follow_data(totals.data);
    let (log, records) = Log::open(backend.log, Hasher::log_id(&backend.secret), backend.log_bytes, sequence, log_at)?;
    if let Some(last) = records.last().filter(|_| !options.read_only) {
        log.settle(last)?;
    }
    let budget = Budget::of(options.memory_bytes_max, &settings);
    let mut state = State::new(Table::new(budget.table), Leaves::new(budget.leaves), totals, sequence);
    let staging = Staging::default();
    let found = recover::replay(&mut state, &staging, &records)?;
    let (recovered, logged) = (state.durable_sequence, log.mark().sequence);
    assert_eq!(recovered, logged, "group {recovered} was recovered last, the log ends at {logged}");
    settings.follow_data(state.totals.data);
    volume::check_sizes(&*backend.data, &*backend.table, &state.totals)?;
    volume::check_table(&*backend.table, backend.volume_id, sequence..=state.durable_sequence)?;
    let (from, to) = keys::all_advice();
    let advice = backend.kv.scan(&from, &to, usize::MAX)?;
    let advice: Vec<u16> = advice.iter().flat_map(|(_, value)| keys::parse_advice(value)).collect();
    let numbers = match &backend.fragments {
        Some(device) => device.len().map_err(|e| Error::io("looking at the table of fragments", e))? / ENTRY_SHARE,
        None => 0,
    };
    let is_fresh = state.durable_sequence == 0;
    let disk_hints = backend.hints.filter(|_| settings.disk_level);
    // Hints name fragments too, by numbers above every block.
    let named = if settings.compress == Compress::Off && numbers == 0 { state.totals.data } else { ALL_NUMBERS };
    let disk_hints = disk_hints.and_then(|device| disk_level::open(device, backend.volume_id, named));
    let skipped = backend.skipped.filter(|_| settings.skipped_bytes > 0);
    let (skipped_file, newest) = skipped.map_or((None, None), |device| file::open(device, backend.volume_id));
    let volume = Volume::new(Parts {
        volume_id: backend.volume_id,
        allocator: Allocator::new(state.totals.data, &advice),
        state,
        staging,
        data: backend.data,
        numbers: Allocator::new(Blocks(numbers), &[]),
        table: backend.table,
        fragments: backend.fragments,
        kv: backend.kv,
        log,
        hasher: Hasher::new(&backend.secret),
        ballast: backend.ballast,
        host: backend.host,
        read_cache_bytes: (budget.read_cache, budget.read_cache + budget.lent_most),
        policy_bytes_max: budget.policies,
        read_pattern_bytes_max: budget.read_patterns,
        journal_bounds: JournalBounds { dirty_bytes_max: budget.dirty, gated_leaves_max: driver.gated_leaves_max },
        committer: driver.committer,
        buffers_max: budget.buffers,
        settings,
        disk_hints,
        skipped_file,
        system_load: SystemLoad::new(&options.machine, backend.device_load),
        turns: backend.turns,
        stopwatch: driver.stopwatch,
        is_read_only: options.read_only,
    });
    volume.metadata.restore_fragment_totals()?;
    volume.lazy_clones.restore()?;
    volume.repairs.restore_bad()?;
    volume.scrubber.restore_scrub()?;
    volume.device_probe.restore_piece_cost()?;
    volume.worklist.restore_backlog(newest, is_fresh);
    volume.hint_levels.update_hints(&[], &found.stored);
    for map in volume.metadata.detached_maps()? {
        volume.base.state.lock().remember_detached(map);
        volume.base.signals.detached(map);
    }
    Ok(volume)
}
