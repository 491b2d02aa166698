//! The machine around the worker: its load, its power source, and the pace that follows from the settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncefs_dedup::{Conditions, EnergyRule, LoadLimit, PaceRule, Supply};

use crate::pace::load::{self, CpuLoad, CpuShares, DeviceLoad};
use crate::settings::values::Settings;

/// How often the machine's load and supply are read.
const OBSERVE_EVERY: Duration = Duration::from_secs(1);

/// The machine as last observed, and the bounds derived from it.
pub struct SystemLoad {
    cpu: CpuLoad,
    power_supply: PathBuf,
    device: Option<DeviceLoad>,
    limit: LoadLimit,
    observed_at: Option<Duration>,
    /// Share of the CPUs' time, 0 to 1. None: unknown, as it is before the second observation.
    cpu_busy: Option<f64>,
    cpus: u32,
    /// CPUs kept busy by work that is not niced, excluding this thread.
    cpus_of_others: f64,
    /// CPU time of this thread.
    cpu_time: Duration,
    /// Share of the device's time, 0 to 1.
    device_busy: f64,
    supply: Supply,
}

impl SystemLoad {
    /// No observations yet. The machine's `proc` and `sys` are below `root`.
    pub fn new(root: &Path, device: Option<DeviceLoad>) -> Self {
        Self {
            cpu: CpuLoad::new(root),
            power_supply: root.join("sys/class/power_supply"),
            device,
            limit: LoadLimit::default(),
            observed_at: None,
            cpu_busy: None,
            cpus: 1,
            cpus_of_others: 0.0,
            cpu_time: Duration::ZERO,
            device_busy: 0.0,
            supply: Supply::Mains,
        }
    }

    /// Reads load and supply, at most once a second. Returns the resulting bound of in-line work.
    pub fn observe(&mut self, now: Duration, settings: &Settings) -> Option<f64> {
        if self.observed_at.is_some_and(|last| now.saturating_sub(last) < OBSERVE_EVERY) {
            return None;
        }
        let passed = self.observed_at.replace(now).map(|last| now - last);
        self.supply = load::supply(&self.power_supply);
        self.observe_cpus(passed);
        self.device_busy = self.device.as_mut().and_then(|device| device.busy(now)).unwrap_or(0.0);
        let load = match settings.cpu_percent_max {
            100 => 1.0,
            percent => {
                let is_over = self.cpu_busy.is_some_and(|busy| busy > percent as f64 / 100.0);
                self.limit.observe(if is_over { 1.0 } else { 0.0 })
            }
        };
        let limit = load.min(energy_rule(settings).share(self.supply));
        assert!((0.0..=1.0).contains(&limit), "the bound of in-line work is {limit}");
        Some(limit)
    }

    /// The machine's part of the conditions of background work.
    pub fn conditions(&self, energy_rule: EnergyRule) -> Conditions {
        debug_assert!(self.cpus > 0, "{} CPUs", self.cpus);
        Conditions {
            now: Duration::ZERO,
            last_foreground: None,
            cpu_busy: self.cpu_busy.unwrap_or(0.0),
            cpus: self.cpus,
            cpus_of_others: self.cpus_of_others,
            device_busy: self.device_busy,
            energy_share: energy_rule.share(self.supply),
            opens_in: None,
        }
    }

    /// Share of the CPUs' time, 0 to 1, as last observed. None: unknown.
    pub fn cpu_busy(&self) -> Option<f64> {
        self.cpu_busy
    }

    /// The power supply as last observed.
    pub fn supply(&self) -> Supply {
        self.supply
    }

    /// Reads how busy the CPUs are, and with whose work. `passed`: time since the last reading, if there was one.
    fn observe_cpus(&mut self, passed: Option<Duration>) {
        let own = load::cpu_time_of_thread();
        let taken = own.saturating_sub(std::mem::replace(&mut self.cpu_time, own));
        let shares = self.cpu.shares();
        let CpuShares { busy, nice, cpus } = shares.unwrap_or_default();
        (self.cpu_busy, self.cpus) = (shares.map(|shares| shares.busy), cpus.max(1));
        let of_worker = passed.map_or(0.0, |passed| taken.as_secs_f64() / passed.as_secs_f64().max(1e-9));
        self.cpus_of_others = ((busy - nice) * f64::from(cpus) - of_worker).max(0.0);
    }
}

/// The bound of background work on battery, from the settings.
pub fn energy_rule(settings: &Settings) -> EnergyRule {
    EnergyRule { battery_percent_min: settings.battery_percent_min as u8 }
}

/// The worker's pace, from the settings.
pub fn pace_rule(settings: &Settings) -> PaceRule {
    PaceRule {
        blocks_per_minute: settings.worker_blocks_per_minute,
        idle_after: settings.idle_after,
        ..PaceRule::new(settings.worker)
    }
}
