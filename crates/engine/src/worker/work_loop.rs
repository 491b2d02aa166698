//! The out-of-line worker's turns: the order of its work, its commands and its status.
//!
//! `dedup` decides how fast it works and when (`Pace`, `Admission`).

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_dedup::{Compress, Conditions, Supply, Turn};

use crate::base::part;
use crate::damage::repair::Repairs;
use crate::damage::scrub::Scrubber;
use crate::hints::levels::HintLevels;
use crate::pace::local_time;
use crate::pace::system_load::energy_rule;
use crate::policy::effective::FilePolicies;
use crate::settings::values::Settings;
use crate::worker::compress::BlockCompressor;
use crate::worker::find_fragments::FragmentFinder;
use crate::worker::probe::DeviceProbe;
use crate::worker::rank_files::FileRanker;
use crate::worker::repack::Repacker;
use crate::worker::revisit::{BATCH_BLOCKS_MAX, Revisits};
use crate::worker::status::{DedupCommand, DedupStatus};
use crate::worker::worklist::Worklist;
use crate::write::backlog_notes::BacklogNotes;
use crate::{Blocks, Error, Result};

/// If more than one block in this many hints was freed since the last round, the disk level is swept at once.
const STALE_SHARE_MAX: u64 = 8;
/// Reads say nothing of the device while the CPUs are busier than this.
const MEASURE_CPU_BUSY_MAX: f64 = 0.5;
/// Pages swept per turn in that case.
const SWEEP_PAGES: usize = 16;
/// The longest sleep between turns.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// After a failure the worker tries again after this time.
const SLEEP_AFTER_FAILURE: Duration = Duration::from_secs(5);

part! {
    /// Gives each kind of out-of-line work its turn.
    pub struct WorkLoop {
        base: foreground, hints, worker, policy, tuning, backlog, inline, signals, stats, damage;
        hint_levels: HintLevels, file_policies: FilePolicies, backlog_notes: BacklogNotes, repairs: Repairs,
        scrubber: Scrubber, device_probe: DeviceProbe, file_ranker: FileRanker, block_compressor: BlockCompressor,
        fragment_finder: FragmentFinder,
        repacker: Repacker, revisits: Revisits, worklist: Worklist
    }
}

impl WorkLoop {
    /// One turn of the worker. Returns how long it may sleep before the next.
    pub fn work(&self) -> Duration {
        self.hint_levels.merge_waiting_hints();
        self.observe_machine(self.foreground.now());
        self.checkpoint_backlog_when_due();
        if let Err(error) = self.device_probe.save_piece_cost() {
            log::debug!("cannot keep what scattered reads cost: {error}");
        }
        if let Err(error) = self.repairs.repair_noticed() {
            log::warn!("cannot repair blocks that were found damaged, trying again later: {error}");
        }
        self.update_paces(false);
        let until_scrub = self.scrubber.scrub_turn(&self.conditions());
        if until_scrub.is_zero() {
            self.update_paces(true);
        }
        let conditions = Conditions { opens_in: self.opens_in(), ..self.conditions() };
        let until_dedup = match self.worker.next_turn(&conditions) {
            Turn::Wait { time, why } => {
                self.worker.note_doing(why.to_string());
                time.min(SLEEP_MAX)
            }
            Turn::Run { blocks_max } => self.work_on(blocks_max.min(BATCH_BLOCKS_MAX)),
        };
        until_dedup.min(until_scrub)
    }

    /// Reports requests since the last call to both paces, during work or not.
    fn update_paces(&self, beside_work: bool) {
        let (requests, time) = self.foreground.take();
        self.worker.note_requests(requests, time, beside_work);
        self.scrubber.tell_scrub(requests, time, beside_work);
    }

    fn work_on(&self, blocks_max: u64) -> Duration {
        if self.hints.coverage().is_scan_wanted() {
            self.worker.note_doing("filling the hint store from the block table");
            return self.scan_again();
        }
        self.foreground.giving_way(self.worker.gives_way(), || self.look_at_some(blocks_max))
    }

    fn look_at_some(&self, blocks_max: u64) -> Duration {
        // A busy machine would measure its own load.
        if !self.is_machine_busy() && self.device_probe.probe_if_due() {
            return Duration::ZERO;
        }
        self.worker.note_doing("working");
        let began = self.foreground.now();
        let worked = self.fragment_finder.find_some().and_then(|read| match read {
            None => self.revisits.revisit(blocks_max),
            some => Ok(some),
        });
        let worked = worked.and_then(|looked_at| match looked_at {
            None => self.file_ranker.rank(),
            some => Ok(some),
        });
        let worked = worked.and_then(|looked_at| match looked_at {
            None => self.block_compressor.compress_some(blocks_max),
            some => Ok(some),
        });
        let worked = worked.and_then(|looked_at| match looked_at {
            None => self.repacker.repack_some(blocks_max),
            some => Ok(some),
        });
        match worked {
            Ok(Some(blocks)) => {
                let took = self.foreground.now() - began;
                self.worker.note_batch(blocks, took, &self.conditions());
                self.update_paces(true);
                Duration::ZERO
            }
            Ok(None) => self.rest(),
            Err(Error::ReadOnly(_)) => SLEEP_AFTER_FAILURE,
            Err(error) => {
                log::warn!("cannot deduplicate out of line, trying again in {SLEEP_AFTER_FAILURE:?}: {error}");
                SLEEP_AFTER_FAILURE
            }
        }
    }

    fn scan_again(&self) -> Duration {
        match self.hint_levels.scan_table() {
            Ok(()) => Duration::ZERO,
            Err(error) => {
                log::warn!("cannot read all of the block table, some duplicates will be missed: {error}");
                SLEEP_AFTER_FAILURE
            }
        }
    }

    /// The worker has no work left.
    fn rest(&self) -> Duration {
        self.hints.retry_disk_level();
        if self.hints.coverage().is_scan_wanted() || self.sweep_if_due() {
            return Duration::ZERO;
        }
        self.worker.note_doing("waiting for work");
        self.worker.force(false);
        SLEEP_MAX
    }

    /// Sweeps the disk level if blocks were freed since the last round: slowly, one page a turn, unless many were.
    /// True: many were, and the round continues at once.
    fn sweep_if_due(&self) -> bool {
        let freed = self.stats.counters.blocks_freed.load(Relaxed);
        let since = self.worker.freed_since_sweep(freed);
        let are_many = since > self.hints.disk_level_size().1 / STALE_SHARE_MAX;
        if since == 0 {
            return false;
        }
        let mut pages = (0..if are_many { SWEEP_PAGES } else { 1 }).take_while(|_| !self.foreground.calls());
        let goes_on = pages.all(|_| self.hint_levels.sweep_hint_page());
        if !goes_on {
            self.worker.note_swept(freed);
        }
        are_many && goes_on
    }

    /// Time until the worker's hours begin. None: it may run now.
    fn opens_in(&self) -> Option<Duration> {
        self.tuning.with(|settings| settings.schedule.opens_in(local_time::week_minute()))
    }

    /// The conditions of all background work.
    fn conditions(&self) -> Conditions {
        let energy_rule = self.tuning.with(energy_rule);
        self.worker.conditions(self.foreground.now(), self.foreground.last(), energy_rule)
    }

    /// Reads load and supply, at most once a second. Sets the bound of in-line work accordingly, and whether reads say
    /// something of the device.
    fn observe_machine(&self, now: Duration) {
        let settings = self.tuning.settings();
        if let Some(limit) = self.worker.observe_machine(now, &settings) {
            self.inline.set_limit(limit);
            self.policy.device_reads().note_machine(self.is_machine_busy());
        }
    }

    /// Whether the CPUs are too busy to measure anything. They count as busy until it is known: a machine that boots is.
    fn is_machine_busy(&self) -> bool {
        self.worker.cpu_busy().is_none_or(|busy| busy >= MEASURE_CPU_BUSY_MAX)
    }

    fn checkpoint_backlog_when_due(&self) {
        let every = self.tuning.with(|settings| settings.skipped_checkpoint);
        if self.worker.take_checkpoint_due(self.foreground.now(), every) && self.backlog.is_on() {
            self.backlog_notes.checkpoint_backlog(0);
        }
    }

    /// See [`crate::Store::tune`].
    pub fn tune(&self, changes: &[(String, String)]) -> Result<()> {
        let _one = self.tuning.begin_change();
        let mut settings = self.tuning.settings();
        changes.iter().try_for_each(|(name, value)| settings.set(name, value, true))?;
        self.apply_settings(settings)
    }

    /// Adapts to the new size of the data area.
    pub fn follow_data(&self, data: Blocks) -> Result<()> {
        let _one = self.tuning.begin_change();
        let mut settings = self.tuning.settings();
        settings.follow_data(data);
        self.apply_settings(settings)
    }

    fn apply_settings(&self, settings: Settings) -> Result<()> {
        let refused = |error: oncefs_dedup::RangeError| Error::Invalid(error.to_string());
        settings.rule.check().map_err(refused)?;
        settings.rank_rule.check().map_err(refused)?;
        self.inline.set_rule(settings.rule).map_err(refused)?;
        self.worker.follow(&settings).map_err(refused)?;
        self.hint_levels.wake_to_merge(self.hints.set_memory_bytes_max(settings.hint_bytes, &self.stats.counters));
        self.tuning.follow(&settings);
        if self.backlog.set_bytes_max(settings.skipped_bytes) {
            // No block was noted until now.
            self.worklist.begin_full_pass();
        }
        let allows_more =
            settings.skipped_bytes > 0 && self.tuning.with(|now| self.file_policies.allows_more(now, &settings));
        self.tuning.replace(settings, |now, settings| {
            if now.fingerprints != settings.fingerprints {
                self.inline.set_fingerprints(settings.fingerprints);
            }
        });
        if allows_more {
            // Refused blocks are not in the backlog.
            self.worklist.begin_full_pass();
        }
        self.signals.wake_worker();
        Ok(())
    }

    /// See [`crate::Store::dedup`].
    pub fn dedup(&self, command: DedupCommand) {
        match command {
            DedupCommand::Now { full } => {
                if full {
                    self.worklist.begin_full_pass();
                }
                self.worker.force(true);
            }
            DedupCommand::Pause => self.worker.set_paused(true),
            DedupCommand::Resume => self.worker.set_paused(false),
        }
        self.signals.wake_worker();
    }

    /// See [`crate::Store::dedup_status`].
    pub fn dedup_status(&self) -> DedupStatus {
        let (paused, now) = self.worker.is_paused_or_forced();
        let (is_full, progress, waiting) = self
            .worker
            .with_pass(|pass| (pass.is_full(), pass.progress(self.foreground.now()), self.backlog.waiting()));
        let (schedule, inline) = self.tuning.with(|settings| (settings.schedule.to_string(), settings.inline));
        let (inline_limit, inline_share) = self.inline.limit_and_share(inline);
        let (rebuild_pages_done, rebuild_pages) = self.hints.coverage().scan_progress();
        DedupStatus {
            doing: self.worker.doing(),
            paused,
            now,
            skipped_blocks: waiting.blocks,
            skipped_files: waiting.files,
            full_pass: is_full || waiting.is_full_pass_due,
            pass_blocks_done: progress.done,
            pass_blocks: progress.all,
            eta_seconds: progress.eta().filter(|_| is_full).map(|eta| eta.as_secs()),
            rebuild_pages_done,
            rebuild_pages,
            blocks_revisited: self.stats.counters.blocks_revisited.load(Relaxed),
            blocks_remapped: self.stats.counters.blocks_remapped.load(Relaxed),
            inline_percent: inline_share * 100.0,
            inline_percent_max: inline_limit * 100.0,
            compression: match self.tuning.with(|settings| settings.compress) {
                Compress::Off => "off".to_owned(),
                Compress::Later => "by the worker".to_owned(),
                Compress::Inline => "as blocks are written, and the rest by the worker".to_owned(),
                Compress::Auto => self.inline.compression_state(),
            },
            power: supply_text(self.worker.supply()),
            schedule,
            opens_in_seconds: self.opens_in().map(|time| time.as_secs()),
            unknown: self.damage.table().unknown_blocks(),
            passed_over: self.damage.passed_over(),
            yield_time: self.foreground.yield_time(),
        }
    }
}

fn supply_text(supply: Supply) -> String {
    match supply {
        Supply::Mains => "mains".to_owned(),
        Supply::Battery { percent } => format!("battery {percent} %"),
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use std::fs;

    use super::*;
    use crate::tests::fixture::{Devices, one_level};
    use crate::volume::backend::TestHooks;
    use crate::volume::open::recover;
    use crate::{Blocks, OpenOptions};

    #[test]
    fn reads_say_nothing_of_the_device_from_the_mount_on_while_the_cpus_are_more_than_half_busy() {
        let machine = tempfile::tempdir().unwrap();
        fs::create_dir(machine.path().join("proc")).unwrap();
        let work = |busy: u64, idle: u64| {
            fs::write(machine.path().join("proc/stat"), format!("cpu  {busy} 0 0 {idle} 0\n")).unwrap();
        };
        let devices = Devices::new(Blocks(4_096), one_level());
        let options = OpenOptions { machine: machine.path().to_owned(), ..OpenOptions::new(2 << 20) };
        let volume = recover(devices.backend(), &options, devices.settings.clone(), TestHooks::default()).unwrap();
        let device_reads = volume.base.policy.device_reads();
        assert!(device_reads.is_machine_busy(), "nobody looked at the CPUs yet");
        let (mut busy, mut idle) = (0, 0);
        for (look, percent) in [100, 100, 40, 60, 100, 10].into_iter().enumerate() {
            (busy, idle) = (busy + percent, idle + 100 - percent);
            work(busy, idle);
            volume.work_loop.observe_machine(Duration::from_secs(2 * look as u64));
            let are_busy = (device_reads.is_machine_busy(), volume.work_loop.is_machine_busy());
            assert_eq!(are_busy, (percent >= 50, percent >= 50), "look {look}, {percent} %");
        }
        fs::remove_file(machine.path().join("proc/stat")).unwrap();
        volume.work_loop.observe_machine(Duration::from_secs(60));
        assert!(device_reads.is_machine_busy(), "how busy the CPUs are is unknown");
    }
}
