//! What a volume of 100 TB costs, computed from what was measured for a block, a name and a byte of the log.

use oncefs_toolbox::Table;

use super::reading::Readings;
use super::speed::ONCEFS;
use crate::aligned::BLOCK_BYTES;

/// Size of the volume, all of it stored.
const BYTES: f64 = 100e12;
/// Files of this size fill it, which is what a name costs least for.
const FILE_BYTES: f64 = 1e6;
/// An object of records is split when it has so many keys.
const KEYS_MAX: f64 = 100_000.0;
/// Bytes of the log of a large volume, unless `mkfs --log-size` says otherwise.
const LOG_BYTES: f64 = 67_108_864.0;
const GIB: f64 = 1_073_741_824.0;

/// The table, as far as the readings reach.
pub fn table(readings: &Readings) -> String {
    let measured = |what: &str| readings.spread(what, ONCEFS).map(|spread| spread.median);
    let (blocks, files) = (BYTES / BLOCK_BYTES as f64, BYTES / FILE_BYTES);
    let mut table = Table::new(&["of a volume of 100 TB", "is", "from"]);
    let mut row = |what: &str, value: Option<String>, from: String| {
        table.row(vec![what.to_owned(), value.unwrap_or_else(|| "not measured yet".to_owned()), from]);
    };
    let number = |what: &str, digits: usize| measured(what).map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let gib = |what: &str, count: f64| measured(what).map(|value| format!("{:.0} GiB", value * count / GIB));
    row(
        "memory of the head for all hints",
        gib("hint-bytes-per-block", blocks),
        format!("{} bytes for a stored block", number("hint-bytes-per-block", 1)),
    );
    row(
        "block table in objects, and in memory if all of it is cached",
        gib("table-bytes-per-block", blocks),
        format!("{} bytes for a stored block", number("table-bytes-per-block", 1)),
    );
    let omap = measured("omap-per-name").zip(measured("omap-per-block-of-large"));
    row(
        "keys and values (omap) of 100 million files of 1 MB",
        omap.map(|(name, block)| format!("{:.0} GiB", (files * name + blocks * block) / GIB)),
        format!(
            "{} bytes for a file of one block, {} for a block of a large file",
            number("omap-per-name", 0),
            number("omap-per-block-of-large", 2)
        ),
    );
    row(
        "objects with records",
        measured("keys-per-name")
            .map(|keys| format!("{:.0} to {:.0}", keys * files / KEYS_MAX, 2.0 * keys * files / KEYS_MAX)),
        format!("{} keys for a file; an object has half of {KEYS_MAX:.0} to all of them", number("keys-per-name", 1)),
    );
    row(
        "traffic of the log while it is filled, without fsync",
        measured("log-for-block").map(|bytes| format!("{:.1} TB", bytes * blocks / 1e12)),
        format!("{} bytes for a block of a large file", number("log-for-block", 0)),
    );
    row(
        "the same with fdatasync after each 4 KiB",
        measured("log-for-synced-block").map(|bytes| format!("{:.0} TB", bytes * blocks / 1e12)),
        format!("{} bytes for a block", number("log-for-synced-block", 0)),
    );
    row("longest recovery, of a log that is full", recovery(readings), recovery_terms(readings));
    table.to_string()
}

/// Replaying is proportional to the log, whose size does not follow the volume's.
fn recovery(readings: &Readings) -> Option<String> {
    let measured = |what: &str| readings.spread(what, ONCEFS).map(|spread| spread.median);
    let (clean, crashed) = (measured("mount-clean")?, measured("mount-crashed")?);
    let replayed = measured("log-replayed")?;
    // A crashed mount fences the head before it, too, once.
    let seconds = clean + (crashed - clean).max(0.0) * (LOG_BYTES / replayed).max(1.0);
    Some(format!("at most {seconds:.0} s"))
}

fn recovery_terms(readings: &Readings) -> String {
    let number = |what: &str, unit: f64, digits: usize| {
        readings.spread(what, ONCEFS).map_or("-".to_owned(), |spread| format!("{:.digits$}", spread.median / unit))
    };
    format!(
        "{} s with {} MB in the log, {} s with none; a log of {:.0} MB",
        number("mount-crashed", 1.0, 2),
        number("log-replayed", 1e6, 1),
        number("mount-clean", 1.0, 2),
        LOG_BYTES / 1e6
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_follow_from_what_was_measured_and_are_left_open_without_it() {
        let mut readings = Readings::default();
        assert!(table(&readings).contains("not measured yet"));
        for (what, value) in [
            ("table-bytes-per-block", 32.0),
            ("mount-clean", 1.0),
            ("mount-crashed", 2.0),
            ("log-replayed", 8e6),
            ("keys-per-name", 3.0),
        ] {
            readings.add(what, ONCEFS, 0, value);
        }
        let table = table(&readings);
        assert!(table.contains("728 GiB") && table.contains("at most 9 s"), "{table}");
        assert!(table.contains("2.00 s with 8.0 MB in the log, 1.00 s with none; a log of 67 MB"), "{table}");
        assert!(table.contains("3000 to 6000"), "{table}");
    }
}
