//! The tables of writes with scattered duplicates, and whether the aims are reached.

use oncefs_toolbox::Table;

use super::write_reading::{DESKTOP, EDGE, EXT4, Memory, OFF, Reading, Setting};
use crate::report::{as_markdown, verdict};
use crate::scenario::Source;
use crate::spread::Spread;
use crate::throttle::SLOW_DISK;

/// Throughput to ext4's that is aimed at, by the percentage of duplicates.
const RATIOS_MIN: [(usize, f64); 4] = [(0, 1.0), (25, 1.05), (50, 1.15), (75, 1.3)];
/// Device writes to what an exact dedup stores, where there are duplicates.
const WRITTEN_MAX: f64 = 1.03;
/// Throughput on the slow device to what it allows.
const OF_LIMIT_MIN: f64 = 0.98;
/// Throughput without duplicates to that with dedup off.
const OF_OFF_MIN: f64 = 0.98;

impl Reading {
    /// Device writes, to what an exact dedup stores.
    fn written_to_exact(&self) -> f64 {
        let written = self.row.device_written_settled.unwrap_or(self.row.device.written);
        written as f64 / self.exact_bytes.max(1) as f64
    }

    /// Throughput, to what the slow device allows if so many bytes are stored.
    fn of_limit(&self, stored_bytes: u64) -> f64 {
        let limit = SLOW_DISK.write_bytes as f64 * self.row.bytes as f64 / stored_bytes.max(1) as f64;
        self.row.mb_per_s * 1e6 / limit
    }
}

/// The readings of one side with one setting.
fn of<'a>(readings: &'a [Reading], setting: Setting, side: &'a str) -> impl Iterator<Item = &'a Reading> + Clone {
    readings.iter().filter(move |reading| reading.setting == setting && reading.row.side == side)
}

/// Throughput to another side's in the same repetition.
fn ratio(readings: &[Reading], setting: Setting, side: &str, baseline: &str) -> Option<Spread> {
    Spread::of(of(readings, setting, side).filter_map(|reading| {
        let base = of(readings, setting, baseline).find(|base| base.row.repetition == reading.row.repetition)?;
        Some(reading.row.mb_per_s / base.row.mb_per_s)
    }))
}

fn settings(readings: &[Reading]) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    for reading in readings {
        if !settings.contains(&reading.setting) {
            settings.push(reading.setting);
        }
    }
    settings
}

/// A row for each setting and side.
pub(super) fn table(throttled: bool, readings: &[Reading]) -> String {
    let headings = [
        "memory",
        "sources",
        "duplicates %",
        "side",
        "MB/s",
        "to ext4",
        "device writes to exact",
        "of the limit",
        "of the best within the budget",
        "a piece costs",
    ];
    let mut table = Table::new(&headings);
    for setting in settings(readings) {
        for side in [EXT4, OFF, DESKTOP, EDGE] {
            if of(readings, setting, side).next().is_some() {
                table.row(cells(throttled, readings, setting, side));
            }
        }
    }
    as_markdown(table)
}

fn cells(throttled: bool, readings: &[Reading], setting: Setting, side: &str) -> Vec<String> {
    let shares = side == DESKTOP || side == EDGE;
    let spread = |is_told: bool, digits: usize, value: &dyn Fn(&Reading) -> f64| {
        let spread = Spread::of(of(readings, setting, side).map(value)).filter(|_| is_told);
        spread.map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
    };
    vec![
        match setting.memory {
            Memory::Within => "within",
            Memory::Beyond => "beyond",
        }
        .to_owned(),
        match setting.source {
            Source::SameFile => "same file",
            Source::OtherFile => "other file",
        }
        .to_owned(),
        setting.duplicate_percent.to_string(),
        side.to_owned(),
        spread(true, 1, &|reading| reading.row.mb_per_s),
        ratio(readings, setting, side, EXT4).map_or("-".to_owned(), |ratio| format!("{ratio:.2}")),
        spread(shares, 3, &Reading::written_to_exact),
        spread(throttled && shares, 3, &|reading| reading.of_limit(reading.exact_bytes)),
        spread(throttled && side == DESKTOP, 3, &|reading| reading.of_limit(reading.best_bytes)),
        if side == DESKTOP { piece_cost(readings, setting) } else { "-".to_owned() },
    ]
}

fn piece_cost(readings: &[Reading], setting: Setting) -> String {
    let costs = of(readings, setting, DESKTOP).filter_map(|reading| reading.row.piece_cost);
    let is_measured = costs.clone().all(|cost| cost.is_measured);
    let spread = Spread::of(costs.map(|cost| cost.blocks));
    let how = if is_measured { "" } else { ", assumed" };
    spread.map_or("-".to_owned(), |spread| format!("{spread:.2}{how}"))
}

/// A line for each aim: the worst setting of each share of duplicates.
pub(super) fn verdicts(throttled: bool, readings: &[Reading]) -> String {
    let lines = if throttled { throttled_verdicts(readings) } else { full_speed_verdicts(readings) };
    lines.join("\n")
}

fn full_speed_verdicts(readings: &[Reading]) -> Vec<String> {
    let mut lines = Vec::new();
    for side in [DESKTOP, EDGE] {
        for (percent, least) in RATIOS_MIN {
            let ratios = of_percent(readings, percent).filter_map(|setting| ratio(readings, setting, side, EXT4));
            if let Some(worst) = ratios.map(|spread| 100.0 * spread.median).reduce(f64::min) {
                let aim = format!("at least {:.0} %", 100.0 * least);
                let name = format!("{side}, {percent} % duplicates: throughput to ext4, at worst");
                lines.push(verdict(&name, worst, worst >= 100.0 * least, &aim));
            }
        }
        let with_duplicates = settings(readings).into_iter().filter(|setting| setting.duplicate_percent >= 25);
        let written = with_duplicates.filter_map(|setting| median(readings, setting, side, &Reading::written_to_exact));
        if let Some(worst) = written.map(|written| 100.0 * written).reduce(f64::max) {
            let aim = format!("at most {:.0} %", 100.0 * WRITTEN_MAX);
            let name = format!("{side}, 25 % duplicates and more: device writes to exact, at worst");
            lines.push(verdict(&name, worst, worst <= 100.0 * WRITTEN_MAX, &aim));
        }
    }
    let ratios = of_percent(readings, 0).filter_map(|setting| ratio(readings, setting, DESKTOP, OFF));
    if let Some(worst) = ratios.map(|spread| 100.0 * spread.median).reduce(f64::min) {
        let aim = format!("at least {:.0} %", 100.0 * OF_OFF_MIN);
        let name = format!("{DESKTOP}, no duplicates: throughput to dedup off, at worst");
        lines.push(verdict(&name, worst, worst >= 100.0 * OF_OFF_MIN, &aim));
    }
    lines
}

fn throttled_verdicts(readings: &[Reading]) -> Vec<String> {
    let limit: &dyn Fn(&Reading) -> f64 = &|reading| reading.of_limit(reading.exact_bytes);
    let best: &dyn Fn(&Reading) -> f64 = &|reading| reading.of_limit(reading.best_bytes);
    let mut lines = Vec::new();
    for (side, name, value) in [(EDGE, "of the limit", limit), (DESKTOP, "of the best within the budget", best)] {
        let medians = settings(readings).into_iter().filter_map(|setting| median(readings, setting, side, value));
        if let Some(worst) = medians.map(|share| 100.0 * share).reduce(f64::min) {
            let aim = format!("at least {:.0} %", 100.0 * OF_LIMIT_MIN);
            let name = format!("{side}: throughput {name}, at worst");
            lines.push(verdict(&name, worst, worst >= 100.0 * OF_LIMIT_MIN, &aim));
        }
    }
    lines
}

fn of_percent(readings: &[Reading], percent: usize) -> impl Iterator<Item = Setting> {
    settings(readings).into_iter().filter(move |setting| setting.duplicate_percent == percent)
}

fn median(readings: &[Reading], setting: Setting, side: &str, value: &dyn Fn(&Reading) -> f64) -> Option<f64> {
    Spread::of(of(readings, setting, side).map(value)).map(|spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loop_device::DeviceBytes;
    use crate::measure::Row;
    use crate::side::PieceCost;

    const MIB: u64 = 1 << 20;

    /// 100 MiB, of which 75 are new, at so many MB/s; the device got so many MiB.
    fn reading(side: &str, repetition: usize, mb_per_s: f64, written_mib: u64, duplicate_percent: usize) -> Reading {
        let row = Row {
            workload: "scattered-write".to_owned(),
            side: side.to_owned(),
            repetition,
            seconds: 1.0,
            bytes: 100 * MIB,
            unique_bytes: 75 * MIB,
            stored_bytes: None,
            mb_per_s,
            latency: None,
            device: DeviceBytes { read: 0, written: 0 },
            device_written_settled: Some(written_mib * MIB),
            data_area_written: None,
            cpu_machine_s: 0.0,
            cpu_daemon_s: None,
            daemon_peak_bytes: None,
            space: None,
            stored_growth: None,
            piece_cost: Some(PieceCost { blocks: 5.8, is_measured: false }),
            limit_share: None,
        };
        let setting = Setting { memory: Memory::Within, source: Source::OtherFile, duplicate_percent };
        Reading { setting, row, exact_bytes: 75 * MIB, best_bytes: 80 * MIB }
    }

    #[test]
    fn each_side_has_a_row_with_its_ratio_to_ext4_in_the_same_repetition() {
        let readings = [
            reading(EXT4, 0, 100.0, 100, 25),
            reading(DESKTOP, 0, 110.0, 75, 25),
            reading(DESKTOP, 1, 100.0, 75, 25),
            reading(EXT4, 1, 80.0, 100, 25),
        ];
        let text = table(false, &readings);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.contains("1.18 (1.10-1.25)") && text.contains("1.000 (1.000-1.000)"), "{text}");
        assert!(!text.contains("of the limit") && text.contains("5.80 (5.80-5.80), assumed"), "{text}");
        let lines = verdicts(false, &readings);
        assert!(lines.contains("ext4, at worst: 117.50 % (aim: at least 105 %): met"), "{lines}");
        assert!(lines.contains("exact, at worst: 100.00 % (aim: at most 103 %): met"), "{lines}");
    }

    #[test]
    fn what_a_slow_device_allows_depends_on_what_has_to_be_stored() {
        let readings = [reading(DESKTOP, 0, 49.5, 80, 25), reading(EDGE, 0, 48.0, 75, 25)];
        let lines = verdicts(true, &readings);
        assert!(lines.contains("desktop: throughput of the best within the budget, at worst: 99.00 %"), "{lines}");
        assert!(lines.contains("edge: throughput of the limit, at worst: 90.00 % (aim: at least 98 %): MISSED"));
    }

    #[test]
    fn without_duplicates_the_default_is_held_against_dedup_off() {
        let readings = [reading(DESKTOP, 0, 97.0, 75, 0), reading(OFF, 0, 100.0, 75, 0)];
        let lines = verdicts(false, &readings);
        assert!(lines.contains("to dedup off, at worst: 97.00 % (aim: at least 98 %): MISSED"), "{lines}");
    }
}
