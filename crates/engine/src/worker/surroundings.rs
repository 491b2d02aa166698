//! The machine around the worker: how busy it is, what powers it, and the pace that follows from the settings.

use std::path::{Path, PathBuf};
use std::time::Duration;

use oncefs_dedup::{EnergyRule, LoadLimit, PaceRule, Supply};

use crate::settings::values::Settings;
use crate::worker::load::{self, CpuLoad, CpuShares, DeviceLoad};

/// The machine as last looked at, and what follows from it.
pub struct Surroundings {
    pub cpu: CpuLoad,
    pub power_supply: PathBuf,
    pub device: Option<DeviceLoad>,
    pub limit: LoadLimit,
    pub looked_at: Option<Duration>,
    pub cpu_busy: f64,
    pub cpus: u32,
    /// How many of them others than this thread kept busy; those that are nice not counted.
    pub cpus_of_others: f64,
    /// CPU time of this thread.
    pub cpu_time: Duration,
    pub device_busy: f64,
    pub supply: Supply,
    /// Blocks freed when the last round of the sweep ended.
    pub swept_freed: u64,
    pub skipped_at: Duration,
    pub doing: String,
}

impl Surroundings {
    /// Nothing known yet of the machine whose `proc` and `sys` are below `root`.
    pub fn new(root: &Path, device: Option<DeviceLoad>) -> Self {
        Self {
            cpu: CpuLoad::new(root),
            power_supply: root.join("sys/class/power_supply"),
            device,
            limit: LoadLimit::default(),
            looked_at: None,
            cpu_busy: 0.0,
            cpus: 1,
            cpus_of_others: 0.0,
            cpu_time: Duration::ZERO,
            device_busy: 0.0,
            supply: Supply::Mains,
            swept_freed: 0,
            skipped_at: Duration::ZERO,
            doing: String::new(),
        }
    }

    /// Reads how busy the CPUs are, and with whose work. `passed`: time since the last look, if there was one.
    pub fn look_at_cpus(&mut self, passed: Option<Duration>) {
        let own = load::cpu_time_of_thread();
        let taken = own.saturating_sub(std::mem::replace(&mut self.cpu_time, own));
        let CpuShares { busy, nice, cpus } = self.cpu.shares().unwrap_or_default();
        (self.cpu_busy, self.cpus) = (busy, cpus.max(1));
        let of_worker = passed.map_or(0.0, |passed| taken.as_secs_f64() / passed.as_secs_f64().max(1e-9));
        self.cpus_of_others = ((busy - nice) * f64::from(cpus) - of_worker).max(0.0);
    }
}

pub fn energy_rule(settings: &Settings) -> EnergyRule {
    EnergyRule { battery_percent_min: settings.battery_percent_min as u8 }
}

/// The pace that settings ask for.
pub fn pace_rule(settings: &Settings) -> PaceRule {
    PaceRule {
        blocks_per_minute: settings.worker_blocks_per_minute,
        idle_after: settings.idle_after,
        ..PaceRule::new(settings.worker)
    }
}
