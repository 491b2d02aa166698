//! The out-of-line worker's turns: what is done in which order, when it may run, and what is known of it.
//! How fast and when is decided in `dedup` (`Pace`, `Admission`); here the machine is read and the work is done.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use oncefs_dedup::{Conditions, Progress, Supply, Turn};

use crate::core::Core;
use crate::settings::values::{Inline, Settings};
use crate::worker::load;
use crate::worker::local_time;
use crate::worker::revisit::BATCH_BLOCKS_MAX;
use crate::worker::status::{DedupCommand, DedupStatus};
use crate::worker::surroundings::{energy_rule, pace_rule};
use crate::write::inline::fingerprinting;
use crate::{Blocks, Error, Result};

/// How often the machine's load and supply are read.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// With more than one block in so many hints freed since the last round, the disk level is swept at once.
const STALE_SHARE_MAX: u64 = 8;
/// Pages swept in one turn then.
const SWEEP_PAGES: usize = 16;
/// The longest sleep between turns.
const SLEEP_MAX: Duration = Duration::from_millis(500);
/// After a failure the worker tries again so much later.
const SLEEP_AFTER_FAILURE: Duration = Duration::from_secs(5);

impl Core {
    /// Whether the next written request is looked up and fingerprinted.
    pub fn admit(&self) -> bool {
        let inline = self.tuning.settings.lock().inline;
        match inline {
            Inline::Off => false,
            Inline::All => true,
            Inline::Adaptive => self.inline.admission.lock().admit(self.foreground.now()),
        }
    }

    /// One turn of the worker. Gives how long it may sleep before the next.
    pub fn work(&self) -> Duration {
        self.merge_evicted();
        self.look_around();
        self.checkpoint_skipped_when_due();
        if let Err(error) = self.repair_noticed() {
            log::warn!("what is damaged was not looked at: {error}");
        }
        self.tell_paces(false);
        let until_scrub = self.scrub_turn(&self.conditions());
        if until_scrub.is_zero() {
            self.tell_paces(true);
        }
        let conditions = Conditions { opens_in: self.opens_in(), ..self.conditions() };
        let turn = self.worker.pace.lock().next(&conditions);
        let until_dedup = match turn {
            Turn::Wait { time, why } => {
                self.worker.surroundings.lock().doing = why.to_string();
                time.min(SLEEP_MAX)
            }
            Turn::Run { blocks_max } => self.work_on(blocks_max.min(BATCH_BLOCKS_MAX)),
        };
        until_dedup.min(until_scrub)
    }

    /// Tells both paces what programs asked for since the last time, beside work or not.
    fn tell_paces(&self, beside_work: bool) {
        let (requests, time) = self.foreground.take();
        self.worker.pace.lock().foreground(requests, time, beside_work);
        self.tell_scrub(requests, time, beside_work);
    }

    fn work_on(&self, blocks_max: u64) -> Duration {
        if self.hints.scan_is_wanted.load(Relaxed) {
            self.worker.surroundings.lock().doing = "filling the hint store from the block table".to_owned();
            return self.scan_again();
        }
        self.giving_way(|| self.look_at_some(blocks_max))
    }

    /// Work of the worker. Where that runs only while the volume is idle, it ends early for a request that comes, and
    /// how long that had to bear with it is noted.
    fn giving_way<T>(&self, work: impl FnOnce() -> T) -> T {
        if self.worker.pace.lock().gives_way() {
            self.foreground.watch();
        }
        let result = work();
        if let Some(time) = self.foreground.unwatch() {
            self.worker.yield_time.record(time);
        }
        result
    }

    fn look_at_some(&self, blocks_max: u64) -> Duration {
        self.worker.surroundings.lock().doing = "working".to_owned();
        let began = self.foreground.now();
        let worked = self.revisit(blocks_max).and_then(|looked_at| match looked_at {
            None => self.rank(),
            some => Ok(some),
        });
        match worked {
            Ok(Some(blocks)) => {
                let took = self.foreground.now() - began;
                let conditions = self.conditions();
                self.worker.pace.lock().ran(blocks, took, &conditions);
                self.tell_paces(true);
                Duration::ZERO
            }
            Ok(None) => self.rest(),
            Err(Error::ReadOnly(_)) => SLEEP_AFTER_FAILURE,
            Err(error) => {
                log::warn!("blocks were not deduplicated out of line: {error}");
                SLEEP_AFTER_FAILURE
            }
        }
    }

    fn scan_again(&self) -> Duration {
        match self.scan_table() {
            Ok(()) => Duration::ZERO,
            Err(error) => {
                log::warn!("the block table was not read to its end, some duplicates will be missed: {error}");
                SLEEP_AFTER_FAILURE
            }
        }
    }

    /// Nothing is left to look at.
    fn rest(&self) -> Duration {
        self.retry_disk_level();
        if self.hints.scan_is_wanted.load(Relaxed) || self.sweep_if_due() {
            return Duration::ZERO;
        }
        self.worker.surroundings.lock().doing = "waiting for work".to_owned();
        self.worker.pace.lock().force(false);
        SLEEP_MAX
    }

    /// Sweeps the disk level while blocks were freed since the last round: slowly, one page a turn, unless many
    /// were. True: many were, and the round goes on at once.
    fn sweep_if_due(&self) -> bool {
        let freed = self.stats.counters.blocks_freed.load(Relaxed);
        let since = freed - self.worker.surroundings.lock().swept_freed;
        let are_many = since > self.disk_level_size().1 / STALE_SHARE_MAX;
        if since == 0 {
            return false;
        }
        let mut pages = (0..if are_many { SWEEP_PAGES } else { 1 }).take_while(|_| !self.foreground.calls());
        let goes_on = pages.all(|_| self.sweep_some());
        if !goes_on {
            self.worker.surroundings.lock().swept_freed = freed;
        }
        are_many && goes_on
    }

    /// How long it is until the worker's hours begin. None: they are on.
    fn opens_in(&self) -> Option<Duration> {
        self.tuning.settings.lock().schedule.opens_in(local_time::week_minute())
    }

    /// What work in the background depends on, whichever it is.
    fn conditions(&self) -> Conditions {
        let energy_rule = energy_rule(&self.tuning.settings.lock());
        let surroundings = self.worker.surroundings.lock();
        Conditions {
            now: self.foreground.now(),
            last_foreground: self.foreground.last(),
            cpu_busy: surroundings.cpu_busy,
            cpus: surroundings.cpus,
            cpus_of_others: surroundings.cpus_of_others,
            device_busy: surroundings.device_busy,
            energy_share: energy_rule.share(surroundings.supply),
            opens_in: None,
        }
    }

    /// Reads load and supply, at most once a second, and sets the bound of in-line work by them.
    fn look_around(&self) {
        let now = self.foreground.now();
        let settings = self.tuning.settings.lock().clone();
        let mut surroundings = self.worker.surroundings.lock();
        if surroundings.looked_at.is_some_and(|last| now - last < LOOK_EVERY) {
            return;
        }
        let passed = surroundings.looked_at.replace(now).map(|last| now - last);
        surroundings.supply = load::supply(&surroundings.power_supply);
        surroundings.look_at_cpus(passed);
        surroundings.device_busy = surroundings.device.as_mut().and_then(|device| device.busy(now)).unwrap_or(0.0);
        let cpu_share = settings.cpu_percent_max as f64 / 100.0;
        let load = match settings.cpu_percent_max {
            100 => 1.0,
            _ => {
                let is_over = surroundings.cpu_busy > cpu_share;
                surroundings.limit.observe(if is_over { 1.0 } else { 0.0 })
            }
        };
        let limit = load.min(energy_rule(&settings).share(surroundings.supply));
        drop(surroundings);
        self.inline.admission.lock().set_limit(limit);
    }

    fn checkpoint_skipped_when_due(&self) {
        let every = self.tuning.settings.lock().skipped_checkpoint;
        let now = self.foreground.now();
        {
            let mut surroundings = self.worker.surroundings.lock();
            if now - surroundings.skipped_at < every {
                return;
            }
            surroundings.skipped_at = now;
        }
        if self.backlog.skipped.lock().bytes_max() > 0 {
            self.checkpoint_skipped(0);
        }
    }

    /// See [`crate::Store::tune`].
    pub fn tune(&self, changes: &[(String, String)]) -> Result<()> {
        let _one = self.tuning.one_at_a_time.lock();
        let mut settings = self.tuning.settings.lock().clone();
        changes.iter().try_for_each(|(name, value)| settings.set(name, value, true))?;
        self.apply_settings(settings)
    }

    /// The data area has so many blocks now.
    pub fn follow_data(&self, data: Blocks) -> Result<()> {
        let _one = self.tuning.one_at_a_time.lock();
        let mut settings = self.tuning.settings.lock().clone();
        settings.follow_data(data);
        self.apply_settings(settings)
    }

    fn apply_settings(&self, settings: Settings) -> Result<()> {
        let refused = |error: oncefs_dedup::RangeError| Error::Invalid(error.to_string());
        settings.rule.check().map_err(refused)?;
        settings.rank_rule.check().map_err(refused)?;
        self.inline.admission.lock().set_rule(settings.rule).map_err(refused)?;
        self.worker.pace.lock().set_rule(pace_rule(&settings)).map_err(refused)?;
        let evicted = {
            let mut hints = self.hints.memory.lock();
            if hints.bytes_max() != settings.hint_bytes {
                hints.set_bytes_max(settings.hint_bytes);
            }
            hints.take_evicted()
        };
        self.demote_later(&evicted);
        self.tuning.verifies_reads.store(settings.verify.covers_reads(), Relaxed);
        self.tuning.verifies_shares.store(settings.verify.covers_shares(), Relaxed);
        self.tuning.rank_settings.follow(&settings);
        let was_off = {
            let mut skipped = self.backlog.skipped.lock();
            let was_off = skipped.bytes_max() == 0 && settings.skipped_bytes > 0;
            skipped.set_bytes_max(settings.skipped_bytes);
            was_off
        };
        if was_off {
            // Until now nothing was noted.
            self.begin_full_pass();
        }
        let allows_more = settings.skipped_bytes > 0 && self.allows_more(&self.tuning.settings.lock(), &settings);
        let mut now = self.tuning.settings.lock();
        if now.fingerprints != settings.fingerprints {
            *self.inline.fingerprinting.lock() = fingerprinting(settings.fingerprints);
        }
        *now = settings;
        drop(now);
        if allows_more {
            // What was refused is known to nobody.
            self.begin_full_pass();
        }
        self.signals.wake_worker();
        Ok(())
    }

    /// See [`crate::Store::dedup`].
    pub fn dedup(&self, command: DedupCommand) {
        match command {
            DedupCommand::Now { full } => {
                if full {
                    self.begin_full_pass();
                }
                self.worker.pace.lock().force(true);
            }
            DedupCommand::Pause => self.worker.pace.lock().set_paused(true),
            DedupCommand::Resume => self.worker.pace.lock().set_paused(false),
        }
        self.signals.wake_worker();
    }

    /// See [`crate::Store::dedup_status`].
    pub fn dedup_status(&self) -> DedupStatus {
        let (paused, now) = {
            let pace = self.worker.pace.lock();
            (pace.is_paused(), pace.is_forced())
        };
        let mut status = {
            let surroundings = self.worker.surroundings.lock();
            DedupStatus {
                doing: surroundings.doing.clone(),
                power: supply_text(surroundings.supply),
                ..DedupStatus::default()
            }
        };
        {
            let pass = self.worker.pass.lock();
            let skipped = self.backlog.skipped.lock();
            status.skipped_blocks = skipped.blocks();
            status.skipped_files = skipped.owners();
            status.full_pass = pass.is_full() || skipped.is_full_pass_due();
            (status.pass_blocks_done, status.pass_blocks) = (pass.done, pass.blocks);
            let spent = pass.began.map_or(Duration::ZERO, |began| self.foreground.now().saturating_sub(began));
            let progress = Progress { done: pass.done, all: pass.blocks, spent };
            status.eta_seconds = progress.eta().filter(|_| pass.is_full()).map(|eta| eta.as_secs());
        }
        let inline = self.tuning.settings.lock().inline;
        let admission = self.inline.admission.lock();
        status.inline_percent_max = admission.limit() * 100.0;
        status.inline_percent = match inline {
            Inline::Off => 0.0,
            Inline::All => 100.0,
            Inline::Adaptive => admission.share() * 100.0,
        };
        (status.paused, status.now) = (paused, now);
        (status.rebuild_pages_done, status.rebuild_pages) = self.scan_progress();
        status.schedule = self.tuning.settings.lock().schedule.to_string();
        status.opens_in_seconds = self.opens_in().map(|time| time.as_secs());
        status.yield_time = self.worker.yield_time.snapshot();
        status.blocks_revisited = self.stats.counters.blocks_revisited.load(Relaxed);
        status.blocks_remapped = self.stats.counters.blocks_remapped.load(Relaxed);
        status
    }
}

fn supply_text(supply: Supply) -> String {
    match supply {
        Supply::Mains => "mains".to_owned(),
        Supply::Battery { percent } => format!("battery {percent} %"),
    }
}
