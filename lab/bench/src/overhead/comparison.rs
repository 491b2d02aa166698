//! Compares the same work on mounts that differ in one thing: time, and processor time.

use std::time::Instant;

use oncefs_toolbox::Table;
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::machine;
use crate::mount::Mount;
use crate::report::{as_markdown, verdict};
use crate::side::Side;
use crate::spread::Spread;

/// The mount that the others are compared with, and the same once more, which shows how far two equal mounts differ.
pub const OFF: &str = "off";
/// See [`OFF`].
pub const OFF_AGAIN: &str = "off again";
/// The mount whose cost is measured.
pub const ON: &str = "on";

/// What a second has few of.
pub const RUNS: &str = "runs";

/// Without ranks, with them, and without them again; no worker on any.
pub fn rank_mounts(profile: &str) -> [Mount; 3] {
    [(OFF, "off"), (ON, "on"), (OFF_AGAIN, "off")].map(|(name, ranks)| Mount {
        name: name.to_owned(),
        options: format!("profile={profile},worker=off,ranks={ranks}"),
    })
}

/// The result of one step on one mount in one repetition.
#[derive(Clone, Debug, Serialize)]
pub struct Reading {
    /// The step.
    pub step: String,
    /// The mount, or what the worker did.
    pub mount: String,
    /// From 0 on.
    pub repetition: usize,
    /// Work done in a second: runs of a program, or operations.
    pub per_second: f64,
    /// Processor seconds of the daemon, per unit of work.
    pub daemon_cpu: f64,
    /// Processor seconds of the whole machine, per unit of work.
    pub machine_cpu: f64,
    /// Blocks that the worker looked at meanwhile.
    pub blocks_revisited: u64,
}

/// Runs a step that returns how many units of work it did.
pub fn measured(
    side: &Side,
    (step, mount, repetition): (&str, &str, usize),
    work: impl FnOnce() -> Result<u64>,
) -> Result<Reading> {
    let daemon = side.daemon().ok_or_else(|| Failure::new("the mounted oncefs has no daemon"))?;
    let looked_at = |side: &Side| side.dedup_status()?.number_at(&["blocks_revisited"]);
    let before = looked_at(side)?;
    let (daemon_cpu, machine_cpu) = (machine::cpu_seconds_process(daemon)?, machine::cpu_seconds_machine()?);
    let began = Instant::now();
    let units = work()? as f64;
    let seconds = began.elapsed().as_secs_f64();
    Ok(Reading {
        step: step.to_owned(),
        mount: mount.to_owned(),
        repetition,
        per_second: units / seconds,
        daemon_cpu: (machine::cpu_seconds_process(daemon)? - daemon_cpu) / units,
        machine_cpu: (machine::cpu_seconds_machine()? - machine_cpu) / units,
        blocks_revisited: looked_at(side)? - before,
    })
}

/// By how many percent a value exceeds that of the mount `off` in the same repetition.
fn more(readings: &[Reading], step: &str, mount: &str, value: &dyn Fn(&Reading) -> f64) -> Option<Spread> {
    let of = |mount: &str| {
        let mount = mount.to_owned();
        readings.iter().filter(move |reading| reading.step == step && reading.mount == mount)
    };
    Spread::of(of(mount).filter_map(|reading| {
        let base = of(OFF).find(|base| base.repetition == reading.repetition)?;
        // A daemon that had nothing to do took no time that could be told.
        Some((value(reading) / value(base) - 1.0) * 100.0).filter(|percent| percent.is_finite())
    }))
}

/// Time for the same work.
fn time(reading: &Reading) -> f64 {
    1.0 / reading.per_second
}

fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    names.for_each(|name| {
        if !found.contains(&name) {
            found.push(name)
        }
    });
    found
}

/// A row for each step on each mount; `unit` is what is done per second.
pub fn table(readings: &[Reading], unit: &str) -> String {
    let speed = format!("{unit} a second");
    let headings = [
        "step",
        "mount",
        &speed,
        "time, % more",
        "daemon CPU ms each",
        "% more",
        "machine CPU ms each",
        "% more",
        "blocks looked at",
    ];
    let mut table = Table::new(&headings);
    for step in distinct(readings.iter().map(|reading| reading.step.clone())) {
        for mount in distinct(readings.iter().map(|reading| reading.mount.clone())) {
            let of = || readings.iter().filter(|reading| reading.step == step && reading.mount == mount);
            let spread = |value: &dyn Fn(&Reading) -> f64, digits: usize| {
                Spread::of(of().map(value)).map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
            };
            let percent = |value: &dyn Fn(&Reading) -> f64| match more(readings, &step, &mount, value) {
                Some(spread) if mount != OFF => format!("{spread:.1}"),
                _ => "-".to_owned(),
            };
            table.row(vec![
                step.clone(),
                mount.clone(),
                spread(&|reading| reading.per_second, if unit == RUNS { 3 } else { 0 }),
                percent(&time),
                spread(&|reading| reading.daemon_cpu * 1e3, 3),
                percent(&|reading| reading.daemon_cpu),
                spread(&|reading| reading.machine_cpu * 1e3, 3),
                percent(&|reading| reading.machine_cpu),
                spread(&|reading| reading.blocks_revisited as f64, 0),
            ]);
        }
    }
    as_markdown(table)
}

/// Whether the time of each step on each of the mounts is within the aim, in percent; equal mounts say what noise is.
pub fn verdicts(readings: &[Reading], aim_percent: f64) -> String {
    let mut lines = Vec::new();
    for step in distinct(readings.iter().map(|reading| reading.step.clone())) {
        for mount in distinct(readings.iter().map(|reading| reading.mount.clone())) {
            let Some(longer) = more(readings, &step, &mount, &time).filter(|_| mount != OFF) else { continue };
            if mount == OFF_AGAIN {
                lines.push(format!("{step}: two equal mounts are apart by {:.2} %", longer.median));
                continue;
            }
            let name = format!("{step}, {mount} against {OFF}: longer by");
            lines.push(verdict(&name, longer.median, longer.median < aim_percent, &format!("below {aim_percent} %")));
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(mount: &str, repetition: usize, per_second: f64) -> Reading {
        Reading {
            step: "grep".to_owned(),
            mount: mount.to_owned(),
            repetition,
            per_second,
            daemon_cpu: 0.002,
            machine_cpu: 0.004,
            blocks_revisited: 7,
        }
    }

    #[test]
    fn time_is_set_against_the_mount_that_is_off_in_the_same_repetition() {
        let readings = [reading(OFF, 0, 2.0), reading(ON, 0, 1.0), reading(ON, 1, 4.0), reading(OFF, 1, 5.0)];
        let longer = more(&readings, "grep", ON, &time).unwrap();
        assert!((longer.min - 25.0).abs() < 1e-9 && (longer.max - 100.0).abs() < 1e-9, "{longer:?}");
        let text = verdicts(&readings, 2.0);
        assert_eq!(text, "- grep, on against off: longer by: 62.50 % (aim: below 2 %): MISSED");
    }

    #[test]
    fn each_step_has_its_row_on_each_mount() {
        let text = table(&[reading(OFF, 0, 2.0), reading(ON, 0, 1.0)], RUNS);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().any(|line| line.contains(" on |") && line.contains("100.0 (")), "{text}");
    }
}
