//! A table for each trace: a row a mount, held against ext4 of the same repetition.

use oncefs_toolbox::Table;

use super::measure::Reading;
use super::trace::Trace;
use crate::aligned::BLOCK_BYTES;
use crate::measure::LatencySummary;
use crate::report::as_markdown;
use crate::side::SideSpec;
use crate::spread::Spread;

/// The mount that the others are held against.
pub const BASELINE: &str = "ext4";

const MIB: f64 = (1u64 << 20) as f64;

/// All tables as Markdown, with what their columns mean.
pub fn tables(traces: &[Trace], mounts: &[SideSpec], readings: &[Reading]) -> String {
    let mut page = format!("{LEGEND}\n");
    for trace in traces {
        let of: Vec<&Reading> = readings.iter().filter(|reading| reading.trace == trace.name).collect();
        page += &format!("\n## {}\n\n{}\n\n{}\n", trace.name, describe(trace), table(mounts, &of));
    }
    page
}

const LEGEND: &str = "Medians, with the least and the greatest of the repetitions. Ratios are taken within a repetition, \
to ext4. Saved is held against what ext4 has in use, metadata included. Device is what was written to the device until \
the unmount. Afterwards every written block was read after a cold mount and compared.";

fn describe(trace: &Trace) -> String {
    let mib = |blocks: usize| (blocks * BLOCK_BYTES) as f64 / MIB;
    format!(
        "{} requests write {:.0} MiB, {:.1} % of it again; {:.0} MiB are there at the end, with {:.0} MiB of different contents.",
        trace.requests,
        mib(trace.recording.blocks() as usize),
        trace.duplicates_percent(),
        mib(trace.last.len()),
        mib(trace.live_contents()),
    )
}

fn table(mounts: &[SideSpec], of: &[&Reading]) -> String {
    let head = [
        "mount",
        "s",
        "to ext4",
        "write p50 us",
        "p95 us",
        "read p50 us",
        "p95 us",
        "saved %",
        "device MiB",
        "to ext4",
        "memory MiB",
        "daemon's CPU s",
    ];
    let mut table = Table::new(&head);
    for mount in mounts {
        let figure = |digits: usize, figure: &dyn Fn(&Reading) -> Option<f64>| {
            let of_mount = of.iter().filter(|reading| reading.mount == mount.name);
            Spread::of(of_mount.filter_map(|reading| figure(reading)))
                .map_or("-".to_owned(), |spread| format!("{spread:.digits$}"))
        };
        let to_ext4 = |reading: &Reading, value: &dyn Fn(&Reading) -> f64| {
            let is_base = |other: &&&Reading| other.mount == BASELINE && other.repetition == reading.repetition;
            of.iter().find(is_base).map(|base| value(reading) / value(base))
        };
        let time = |of: &Option<LatencySummary>, pick: fn(&LatencySummary) -> f64| of.as_ref().map(pick);
        table.row(vec![
            mount.name.clone(),
            figure(2, &|reading| Some(reading.seconds)),
            figure(2, &|reading| to_ext4(reading, &|reading| reading.seconds)),
            figure(0, &|reading| time(&reading.writes, |times| times.p50_us)),
            figure(0, &|reading| time(&reading.writes, |times| times.p95_us)),
            figure(0, &|reading| time(&reading.reads, |times| times.p50_us)),
            figure(0, &|reading| time(&reading.reads, |times| times.p95_us)),
            figure(1, &|reading| Some(100.0 * (1.0 - to_ext4(reading, &|reading| reading.used_bytes as f64)?))),
            figure(1, &|reading| Some(reading.device_bytes as f64 / MIB)),
            figure(2, &|reading| to_ext4(reading, &|reading| reading.device_bytes as f64)),
            figure(0, &|reading| reading.memory_bytes.map(|bytes| bytes as f64 / MIB)),
            figure(2, &|reading| reading.cpu_s),
        ]);
    }
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::Kind;

    #[test]
    fn ratios_are_taken_within_a_repetition() {
        let reading = |mount: &str, repetition, seconds, used_bytes| Reading {
            trace: "t".to_owned(),
            mount: mount.to_owned(),
            repetition,
            seconds,
            writes: None,
            reads: None,
            used_bytes,
            device_bytes: used_bytes * 2,
            memory_bytes: None,
            cpu_s: None,
        };
        let readings = [
            reading("ext4", 0, 1.0, 100 << 20),
            reading("oncefs, edge", 0, 2.0, 70 << 20),
            reading("oncefs, edge", 1, 2.0, 60 << 20),
            reading("ext4", 1, 4.0, 100 << 20),
        ];
        let mounts = ["ext4", "oncefs, edge"].map(|name| SideSpec {
            name: name.to_owned(),
            kind: Kind::Oncefs,
            arguments: Vec::new(),
            format_arguments: Vec::new(),
        });
        let table = table(&mounts, &readings.iter().collect::<Vec<_>>());
        let row = table.lines().find(|line| line.contains("edge")).unwrap();
        for cell in ["2.00 (2.00-2.00)", "1.25 (0.50-2.00)", "35.0 (30.0-40.0)", "0.65 (0.60-0.70)"] {
            assert!(row.contains(cell), "{cell} in {row}");
        }
        assert!(!table.contains("memory"), "columns without a figure are left out: {table}");
    }
}
