//! The outcome of one hybrid run: readings at four moments, and the figures computed from them.

use serde::Serialize;

use crate::failure::Result;
use crate::loop_device::DeviceBytes;
use crate::side::Side;

const BLOCK: f64 = crate::aligned::BLOCK_BYTES as f64;

/// The counters of oncefs and of the device at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reading {
    /// Bytes that the device moved.
    pub device: DeviceBytes,
    /// Bytes of file data in all maps.
    pub mapped: u64,
    /// Bytes of the data area in use.
    pub used: u64,
    /// Bytes of log, block table, records, hints, skipped blocks and ballast.
    pub metadata: u64,
    /// Write requests, and how many of them were not looked up.
    pub requests: [u64; 2],
    /// Written blocks that became references at once.
    pub shared_inline: u64,
    /// Blocks that the pass looked at, and how many of them became references.
    pub revisited: [u64; 2],
    /// Bytes written for hints.
    pub hint_bytes: u64,
    /// Bytes written for the skipped buffer.
    pub skipped_bytes: u64,
    /// Bytes written to the log and to the block table, and handed to RocksDB.
    pub map_bytes: [u64; 3],
}

impl Reading {
    /// Asks a mounted side.
    pub fn take(side: &Side) -> Result<Reading> {
        let figures = side.stats()?;
        let count = |name: &str| figures.number("counters", name);
        Ok(Reading {
            mapped: figures.number("space", "held_bytes")?,
            used: figures.number("space", "stored_bytes")?,
            metadata: figures.number("space", "metadata_bytes")?,
            requests: [count("write_requests")?, count("write_requests_not_admitted")?],
            shared_inline: count("blocks_shared")?,
            revisited: [count("blocks_revisited")?, count("blocks_remapped")?],
            hint_bytes: count("disk_level_bytes_written")?,
            skipped_bytes: count("skipped_bytes_written")?,
            map_bytes: [count("log_bytes_written")?, count("table_bytes_written")?, count("record_bytes_written")?],
            device: side.device_bytes()?,
        })
    }
}

/// The result of one run.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// The mount, by its profile.
    pub profile: String,
    /// Bytes written by the program.
    pub bytes: u64,
    /// Bytes that an exact index saves of them.
    pub duplicate_bytes: u64,
    /// After mounting, after writing, after the pass.
    pub marks: [Reading; 3],
    /// The device after everything was unmounted.
    pub device_unmounted: DeviceBytes,
    /// After mounting again.
    pub remounted: Reading,
    /// Time of writing, fsync included.
    pub write_seconds: f64,
    /// Time of the pass.
    pub pass_seconds: f64,
    /// Peak resident memory of the daemon from its start to its end.
    pub peak_memory: u64,
    /// The same for the daemon that everything was read back from.
    pub peak_memory_reading: u64,
}

impl Outcome {
    /// Bytes saved, after subtracting the space of oncefs itself beyond that of an empty volume.
    pub fn net_saved(&self) -> f64 {
        let [empty, ..] = &self.marks;
        let grown = |now: u64, before: u64| now as f64 - before as f64;
        let taken = grown(self.remounted.used, empty.used) + grown(self.remounted.metadata, empty.metadata);
        self.bytes as f64 - taken
    }

    /// Names and values, in the order of the table; `exact`: the same data under a complete index.
    pub fn lines(&self, exact: Option<&Outcome>) -> Vec<Line> {
        let memory = [
            ("peak memory of the daemon (VmHWM), MB", megabytes(self.peak_memory as f64)),
            ("peak memory while reading everything back, MB", megabytes(self.peak_memory_reading as f64)),
        ];
        [self.found(exact), self.written(), self.pass(), memory.to_vec()].concat()
    }

    fn found(&self, exact: Option<&Outcome>) -> Vec<Line> {
        let [empty, written, _] = &self.marks;
        let (data, duplicates) = (self.bytes as f64, self.duplicate_bytes as f64);
        let metadata = self.remounted.metadata as f64 - empty.metadata as f64;
        let saved = self.remounted.mapped as f64 - self.remounted.used as f64 + empty.used as f64;
        let [requests, not_admitted] = written.requests;
        vec![
            ("data written, MB", megabytes(data)),
            ("writing, MB/s", megabytes(data / self.write_seconds)),
            ("requests not looked up, %", percent(not_admitted as f64, requests as f64)),
            ("duplicates found in-line, %", percent(written.shared_inline as f64 * BLOCK, duplicates)),
            ("duplicates found after the pass, %", percent(saved, duplicates)),
            ("own space beyond an empty volume's, MB", megabytes(metadata)),
            ("saved net of own space, % of the duplicates", percent(self.net_saved(), duplicates)),
            ("saved net, % of what the complete index saves net", share_of(self, exact)),
        ]
    }

    fn written(&self) -> Vec<Line> {
        let [empty, written, passed] = &self.marks;
        let data = self.bytes as f64;
        let device_written = |from: &Reading, to: DeviceBytes| to.since(from.device).written as f64;
        let all = device_written(empty, self.device_unmounted);
        let hints = (passed.hint_bytes - empty.hint_bytes) as f64;
        let skipped = (passed.skipped_bytes - empty.skipped_bytes) as f64;
        vec![
            ("device writes while writing, MB", megabytes(device_written(empty, written.device))),
            ("device writes in the pass, MB", megabytes(device_written(written, passed.device))),
            ("device writes at unmounting, MB", megabytes(device_written(passed, self.device_unmounted))),
            ("device writes saved net, % of the data", percent(data - all, data)),
            ("written for hints, % of the data", percent(hints, data)),
            ("written for skipped blocks, % of the data", percent(skipped, data)),
        ]
    }

    fn pass(&self) -> Vec<Line> {
        let [_, written, passed] = &self.marks;
        let [looked_at, remapped] = [0, 1].map(|part| passed.revisited[part] - written.revisited[part]);
        let parts = [0, 1, 2].map(|part| (passed.map_bytes[part] - written.map_bytes[part]) as f64);
        let hints = (passed.hint_bytes - written.hint_bytes) as f64;
        let each = |bytes: f64| quotient(bytes, remapped as f64);
        let device = passed.device.since(written.device);
        let until_unmounted = self.device_unmounted.since(written.device).written as f64;
        vec![
            ("seconds of the pass", format!("{:.1}", self.pass_seconds)),
            ("blocks looked at in the pass", looked_at.to_string()),
            ("blocks remapped in the pass", remapped.to_string()),
            ("device reads in the pass, MB", megabytes(device.read as f64)),
            ("log + table + records per remapped block, B", parts.map(each).join(" + ")),
            ("device writes up to unmounting but for hints per remapped block, B", each(until_unmounted - hints)),
        ]
    }
}

/// A figure's name and value.
pub type Line = (&'static str, String);

fn share_of(outcome: &Outcome, exact: Option<&Outcome>) -> String {
    exact.map_or("-".to_owned(), |exact| percent(outcome.net_saved(), exact.net_saved()))
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1}", bytes / 1e6)
}

fn percent(part: f64, whole: f64) -> String {
    quotient_of(part * 100.0, whole, 2)
}

fn quotient(sum: f64, count: f64) -> String {
    quotient_of(sum, count, 1)
}

fn quotient_of(sum: f64, count: f64, digits: usize) -> String {
    if count == 0.0 { "-".to_owned() } else { format!("{:.digits$}", sum / count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 100 blocks of which 50 are copies; 20 found in-line, 28 in the pass; 1 block of own space.
    fn outcome() -> Outcome {
        let empty = Reading { used: 4096, metadata: 1 << 20, ..Reading::default() };
        let written = Reading {
            device: DeviceBytes { read: 0, written: 81 * 4096 },
            requests: [10, 4],
            shared_inline: 20,
            map_bytes: [100, 200, 700],
            ..empty.clone()
        };
        let device = DeviceBytes { read: 4096, written: 83 * 4096 };
        let map_bytes = [100 + 28, 200, 700 + 56];
        let passed = Reading { device, revisited: [80, 28], map_bytes, hint_bytes: 4096, ..written.clone() };
        let remounted =
            Reading { mapped: 100 * 4096, used: 4096 + 52 * 4096, metadata: (1 << 20) + 4096, ..Reading::default() };
        Outcome {
            profile: "edge".into(),
            bytes: 100 * 4096,
            duplicate_bytes: 50 * 4096,
            marks: [empty, written, passed],
            device_unmounted: DeviceBytes { read: 4096, written: 85 * 4096 },
            remounted,
            write_seconds: 1.0,
            pass_seconds: 2.0,
            peak_memory: 30_000_000,
            peak_memory_reading: 20_000_000,
        }
    }

    fn value(outcome: &Outcome, exact: Option<&Outcome>, name: &str) -> String {
        let lines = outcome.lines(exact);
        lines.into_iter().find(|line| line.0.starts_with(name)).unwrap_or_else(|| panic!("no {name}")).1
    }

    #[test]
    fn found_and_saved_are_shares_of_the_duplicates() {
        let outcome = outcome();
        for (name, expected) in [
            ("requests not looked up", "40.00"),
            ("duplicates found in-line", "40.00"),
            ("duplicates found after", "96.00"),
            ("saved net of own space", "94.00"),
            ("device writes saved net", "15.00"),
            ("written for hints", "1.00"),
        ] {
            assert_eq!(value(&outcome, None, name), expected, "{name}");
        }
    }

    #[test]
    fn what_a_remapped_block_costs_is_told_without_hints_and_with_the_unmount() {
        assert_eq!(value(&outcome(), None, "log + table + records per"), "1.0 + 0.0 + 2.0");
        assert_eq!(value(&outcome(), None, "device writes up to"), format!("{:.1}", 3.0 * 4096.0 / 28.0));
        let mut none_remapped = outcome();
        none_remapped.marks[2].revisited[1] = 0;
        assert_eq!(value(&none_remapped, None, "device writes up to"), "-");
    }

    #[test]
    fn the_complete_index_pays_for_its_own_space_too() {
        let mut exact = outcome();
        exact.remounted.used = 4096 + 50 * 4096;
        let name = "saved net, % of what";
        assert_eq!(value(&outcome(), Some(&exact), name), format!("{:.2}", 47.0 / 49.0 * 100.0));
        assert_eq!(value(&outcome(), None, name), "-");
    }
}
