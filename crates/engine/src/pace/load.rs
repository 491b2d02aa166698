//! How busy the machine is and where its energy comes from, according to the kernel.
//!
//! Owns the reading of `/proc/stat`, `/sys/dev/block` and `/sys/class/power_supply`, each below a root that tests
//! replace. Leaves the consequences to `dedup`. A file that is missing or makes no sense is not an error: the value is
//! unknown then, and a machine without a visible battery counts as on mains.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncefs_dedup::Supply;

/// The share of a machine's CPU time that is spent working.
pub struct CpuLoad {
    stat: PathBuf,
    before: Option<CpuTimes>,
}

/// CPU time of all CPUs since boot, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuTimes {
    busy: u64,
    nice: u64,
    all: u64,
    cpus: u32,
}

/// How the CPUs spent their time lately.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuShares {
    /// The share of it that was spent working, 0 to 1.
    pub busy: f64,
    /// The share of it that was spent on niced programs, which yield to all others.
    pub nice: f64,
    /// The number of CPUs.
    pub cpus: u32,
}

impl CpuLoad {
    /// The load of the machine whose `/proc` is below `root`.
    pub fn new(root: &Path) -> Self {
        Self { stat: root.join("proc/stat"), before: None }
    }

    /// The shares since the last call. None on the first call, or if no time passed.
    pub fn shares(&mut self) -> Option<CpuShares> {
        let now = fs::read_to_string(&self.stat).ok().as_deref().and_then(cpu_times);
        let before = std::mem::replace(&mut self.before, now)?;
        let now = now?;
        let all = now.all.checked_sub(before.all).filter(|&all| all > 0)?;
        // The kernel occasionally decreases the time spent waiting for I/O.
        let share = |now: u64, before: u64| now.saturating_sub(before).min(all) as f64 / all as f64;
        Some(CpuShares { busy: share(now.busy, before.busy), nice: share(now.nice, before.nice), cpus: now.cpus })
    }
}

/// The first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal. The two
/// columns of guests that follow are contained in user and nice.
fn cpu_times(stat: &str) -> Option<CpuTimes> {
    let columns = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let times: Vec<u64> = columns.split_whitespace().take(8).map_while(|time| time.parse().ok()).collect();
    let (idle, waiting) = (*times.get(3)?, times.get(4).copied().unwrap_or(0));
    let all = times.iter().try_fold(0_u64, |sum, &time| sum.checked_add(time))?;
    let is_cpu =
        |line: &&str| line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let cpus = stat.lines().filter(is_cpu).count().max(1) as u32;
    Some(CpuTimes { busy: all - idle - waiting, nice: times[1], all, cpus })
}

/// CPU time that this thread has taken.
pub fn cpu_time_of_thread() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes `time`, which stays zero if the clock does not exist.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The share of time in which a block device had requests to serve.
pub struct DeviceLoad {
    stat: PathBuf,
    before: Option<(Duration, Duration)>,
}

impl DeviceLoad {
    /// The load of the device that a file's `st_dev` names. Always unknown if that is no block device (overlay, btrfs).
    pub fn new(root: &Path, device: u64) -> Self {
        let (major, minor) = (libc::major(device), libc::minor(device));
        Self { stat: root.join(format!("sys/dev/block/{major}:{minor}/stat")), before: None }
    }

    /// The busy share since the last call, 0 to 1. `now` is the time since some start. None on the first call, or if no
    /// time passed.
    pub fn busy(&mut self, now: Duration) -> Option<f64> {
        let busy = fs::read_to_string(&self.stat).ok().as_deref().and_then(device_time);
        let latest = busy.map(|busy| (now, busy));
        let (then, before) = std::mem::replace(&mut self.before, latest)?;
        let passed = now.checked_sub(then).filter(|passed| !passed.is_zero())?;
        Some((busy?.saturating_sub(before).as_secs_f64() / passed.as_secs_f64()).min(1.0))
    }
}

/// The tenth column of a device's `stat`: milliseconds in which requests were under way. A device that serves several
/// requests at once may have spare capacity even if all of the time is used.
fn device_time(stat: &str) -> Option<Duration> {
    stat.split_whitespace().nth(9)?.parse().ok().map(Duration::from_millis)
}

/// One entry of `/sys/class/power_supply`.
struct Entry(PathBuf);

/// A battery of the machine itself.
struct Battery {
    percent: f64,
    /// Its capacity when full, in the driver's unit.
    full: Option<(Unit, f64)>,
    discharging: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    MicrowattHours,
    MicroampereHours,
}

/// Where the energy comes from, according to a directory like `/sys/class/power_supply`.
///
/// Follows systemd's rule: mains if anything but a battery is online, or if no battery is being drained. Several
/// batteries are weighted by their capacity. If that is not known of all of them in one unit, their charges are
/// averaged. Batteries of mice and keyboards do not count.
pub fn supply(power_supply: &Path) -> Supply {
    let entries = fs::read_dir(power_supply).into_iter().flatten().flatten();
    let entries: Vec<Entry> = entries.map(|entry| Entry(entry.path())).filter(Entry::is_of_the_machine).collect();
    let batteries: Vec<Battery> = entries.iter().filter_map(Entry::battery).collect();
    if entries.iter().any(Entry::is_online) || !batteries.iter().any(|battery| battery.discharging) {
        return Supply::Mains;
    }
    Supply::Battery { percent: mean_percent(&batteries).round().clamp(0.0, 100.0) as u8 }
}

/// The mean charge of one or more batteries.
fn mean_percent(batteries: &[Battery]) -> f64 {
    let unit = batteries[0].full.map(|(unit, _)| unit);
    let weight = |battery: &Battery| match battery.full {
        Some((other, full)) if Some(other) == unit => Some(full),
        _ => None,
    };
    let known: Option<Vec<f64>> = batteries.iter().map(weight).collect();
    let weights = known.unwrap_or_else(|| vec![1.0; batteries.len()]);
    let charges = batteries.iter().zip(&weights).map(|(battery, weight)| battery.percent * weight);
    charges.sum::<f64>() / weights.iter().sum::<f64>()
}

impl Entry {
    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.0.join(name)).ok().map(|text| text.trim().to_owned())
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.text(name)?.parse::<u64>().ok().map(|number| number as f64)
    }

    fn is_battery(&self) -> bool {
        self.text("type").as_deref() == Some("Battery")
    }

    fn is_of_the_machine(&self) -> bool {
        self.text("scope").as_deref() != Some("Device")
    }

    /// Whether this is a source other than a battery (mains, USB, wireless) that supplies now: 1 is a fixed voltage, 2
    /// a negotiated one.
    fn is_online(&self) -> bool {
        let is_source = self.text("type").is_some_and(|kind| kind != "Battery");
        is_source && self.number("online").is_some_and(|online| online > 0.0)
    }

    /// None: no battery, an empty bay, or a battery that does not report its charge.
    fn battery(&self) -> Option<Battery> {
        if !self.is_battery() || self.number("present") == Some(0.0) {
            return None;
        }
        let energy = self.fill("energy", Unit::MicrowattHours);
        let charge = || self.fill("charge", Unit::MicroampereHours);
        let (fill, full) = energy.or_else(charge).map_or((None, None), |(fill, full)| (fill, Some(full)));
        let percent = self.number("capacity").or(fill)?;
        // A battery without a reported status counts as discharging: that saves energy.
        let discharging = self.text("status").is_none_or(|status| status == "Discharging");
        Some(Battery { percent: percent.min(100.0), full, discharging })
    }

    /// The charge in percent, if known, and the capacity when full.
    fn fill(&self, quantity: &str, unit: Unit) -> Option<(Option<f64>, (Unit, f64))> {
        let full = self.number(&format!("{quantity}_full")).filter(|&full| full > 0.0)?;
        let now = self.number(&format!("{quantity}_now"));
        Some((now.map(|now| now / full * 100.0), (unit, full)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that stands in for the root, with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        files.iter().for_each(|(path, text)| write(root.path(), path, text));
        root
    }

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    fn supply_of(files: &[(&str, &str)]) -> Supply {
        supply(root(files).path())
    }

    fn battery(percent: u8) -> Supply {
        Supply::Battery { percent }
    }

    const DISCHARGING: [(&str, &str); 3] =
        [("BAT0/type", "Battery"), ("BAT0/status", "Discharging"), ("BAT0/capacity", "57")];

    #[test]
    fn a_machine_that_tells_of_no_battery_has_mains() {
        assert_eq!(supply(Path::new("/nonexistent")), Supply::Mains);
        assert_eq!(supply_of(&[]), Supply::Mains);
        assert_eq!(supply_of(&[("AC/type", "Mains"), ("AC/online", "0")]), Supply::Mains);
    }

    #[test]
    fn a_discharging_battery_counts_unless_another_source_is_online() {
        assert_eq!(supply_of(&DISCHARGING), battery(57));
        for (kind, online, expected) in [
            ("Mains", "0", battery(57)),
            ("Mains", "1", Supply::Mains),
            ("USB", "1", Supply::Mains),
            ("USB", "2", Supply::Mains),
            ("Wireless", "1", Supply::Mains),
            ("Mains", "nonsense", battery(57)),
        ] {
            let source = [("AC/type", kind), ("AC/online", online)];
            assert_eq!(supply_of(&[&DISCHARGING[..], &source].concat()), expected, "{kind} {online}");
        }
    }

    #[test]
    fn the_status_decides_where_no_source_is_told() {
        for (status, expected) in [
            ("Charging", Supply::Mains),
            ("Full", Supply::Mains),
            ("Not charging", Supply::Mains),
            ("Unknown", Supply::Mains),
            ("Discharging", battery(57)),
        ] {
            let files = [DISCHARGING[0], ("BAT0/status", status), DISCHARGING[2]];
            assert_eq!(supply_of(&files), expected, "{status}");
        }
        assert_eq!(supply_of(&[DISCHARGING[0], DISCHARGING[2]]), battery(57), "no status");
    }

    #[test]
    fn batteries_of_peripherals_and_empty_bays_and_nonsense_do_not_count() {
        let one_of = |file| supply_of(&[&DISCHARGING[..], &[file]].concat());
        assert_eq!(one_of(("BAT0/scope", "Device")), Supply::Mains);
        assert_eq!(one_of(("BAT0/scope", "System")), battery(57));
        assert_eq!(one_of(("BAT0/present", "0")), Supply::Mains);
        assert_eq!(one_of(("BAT0/present", "1")), battery(57));
        assert_eq!(one_of(("BAT0/capacity", "-3")), Supply::Mains);
        assert_eq!(one_of(("BAT0/type", "")), Supply::Mains);
        assert_eq!(one_of(("BAT0/capacity", "250")), battery(100));
    }

    #[test]
    fn the_charge_is_computed_where_it_is_not_told() {
        let known = |files: &[(&str, &str)]| supply_of(&[&DISCHARGING[..2], files].concat());
        assert_eq!(known(&[("BAT0/energy_now", "30"), ("BAT0/energy_full", "120")]), battery(25));
        assert_eq!(known(&[("BAT0/charge_now", "30"), ("BAT0/charge_full", "40")]), battery(75));
        assert_eq!(known(&[("BAT0/charge_now", "30"), ("BAT0/charge_full", "0")]), Supply::Mains);
    }

    #[test]
    fn several_batteries_count_by_what_they_hold_or_equally() {
        let second = [("BAT1/type", "Battery"), ("BAT1/status", "Unknown"), ("BAT1/capacity", "17")];
        let both = [DISCHARGING, second].concat();
        let with = |files: &[(&str, &str)]| supply_of(&[&both[..], files].concat());
        assert_eq!(with(&[]), battery(37), "nothing is known of their size");
        assert_eq!(with(&[("BAT0/energy_full", "30"), ("BAT1/energy_full", "10")]), battery(47));
        assert_eq!(with(&[("BAT0/energy_full", "30"), ("BAT1/charge_full", "10")]), battery(37), "two units");
        assert_eq!(with(&[("BAT1/energy_full", "10")]), battery(37), "one is not known");
    }

    #[test]
    fn the_cpus_busy_share_is_that_since_the_last_call() {
        let root = root(&[("proc/stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 1 1 1")]);
        let mut load = CpuLoad::new(root.path());
        assert_eq!(load.shares(), None);
        // 30 busy, 60 idle, 10 waiting for I/O; the guest's 5 are among user's.
        write(root.path(), "proc/stat", "cpu  110 5 110 760 110 2 1 2 55 0\ncpu0 1 1 1 1\ncpu1 1 1 1 1\nctxt 5");
        assert_eq!(load.shares(), Some(CpuShares { busy: 0.3, nice: 0.05, cpus: 2 }));
        assert_eq!(load.shares(), None, "no time passed");
        write(root.path(), "proc/stat", "cpu  210 5 110 760 110 2 1 2 55 0");
        assert_eq!(load.shares(), Some(CpuShares { busy: 1.0, nice: 0.0, cpus: 1 }));
    }

    #[test]
    fn a_stat_that_is_missing_or_makes_no_sense_tells_nothing_and_is_asked_again() {
        let root = root(&[]);
        let mut load = CpuLoad::new(root.path());
        for text in ["", "cpu", "cpu  1 2 3", "cpu  1 2 18446744073709551615 4", "cpu  a b c d", "cpu0 1 2 3 4"] {
            write(root.path(), "proc/stat", text);
            assert_eq!((load.shares(), load.shares()), (None, None), "{text}");
        }
        write(root.path(), "proc/stat", "cpu  1 0 0 1");
        assert_eq!(load.shares(), None);
        write(root.path(), "proc/stat", "cpu  2 0 0 2");
        assert_eq!(load.shares().map(|shares| shares.busy), Some(0.5));
        write(root.path(), "proc/stat", "cpu  1 0 0 1");
        assert_eq!(load.shares(), None, "times that fell back");
    }

    #[test]
    fn a_devices_busy_share_is_that_of_the_time_that_passed() {
        let stat = "sys/dev/block/8:1/stat";
        let root = root(&[(stat, "9 9 9 9 9 9 9 9 9 1000 9 9")]);
        let mut load = DeviceLoad::new(root.path(), libc::makedev(8, 1));
        let seconds = Duration::from_secs;
        assert_eq!(load.busy(seconds(10)), None);
        write(root.path(), stat, "9 9 9 9 9 9 9 9 9 2500 9 9");
        assert_eq!(load.busy(seconds(12)), Some(0.75));
        assert_eq!(load.busy(seconds(12)), None, "no time passed");
        write(root.path(), stat, "9 9 9 9 9 9 9 9 9 9999 9 9");
        assert_eq!(load.busy(seconds(13)), Some(1.0), "never above 1");
        assert_eq!(DeviceLoad::new(root.path(), libc::makedev(0, 44)).busy(seconds(1)), None);
    }
}
