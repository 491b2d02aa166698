//! SmartDedup's figure 9: what deduplication saves and gains over ext4 with DEDISbench's load, beside the paper's.

use oncefs_toolbox::Table;

use crate::measure::Row;
use crate::report::as_markdown;
use crate::spread::Spread;
use crate::threaded::Twin;

const EXT4: &str = "ext4";

/// The paper's figures, in percent: "up to" these, for the image with more duplicates.
const PAPER: [&str; 4] = ["45.0", "41.6", "+54.4", "+33.6"];

/// Every other side against ext4; empty without DEDISbench's load or without ext4.
pub fn table(rows: &[Row]) -> String {
    let headings = ["", "exact %", "space saved %", "writes saved %", "write speed %", "read speed %"];
    let mut table = Table::new(&headings);
    let mut is_empty = true;
    for twin in Twin::ALL {
        for side in sides(rows, &twin.write_name()) {
            table.row(cells(rows, twin, side));
            is_empty = false;
        }
    }
    if is_empty {
        return String::new();
    }
    let paper = ["the paper, 46.1 % (up to)", "46.1"].into_iter().chain(PAPER);
    table.row(paper.map(str::to_owned).collect());
    format!(
        "\nDEDISbench's form against ext4, space and writes net of all metadata; exact: distinct contents only\n{}",
        as_markdown(table)
    )
}

fn sides<'a>(rows: &'a [Row], workload: &str) -> Vec<&'a str> {
    let mut sides: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.workload == workload && row.side != EXT4) {
        let has_twin = twin_row(rows, row).is_some();
        if has_twin && !sides.contains(&row.side.as_str()) {
            sides.push(&row.side);
        }
    }
    sides
}

/// The same step on ext4 in the same repetition.
fn twin_row<'a>(rows: &'a [Row], row: &Row) -> Option<&'a Row> {
    rows.iter().find(|twin| twin.side == EXT4 && twin.workload == row.workload && twin.repetition == row.repetition)
}

fn cells(rows: &[Row], twin: Twin, side: &str) -> Vec<String> {
    let spread = |workload: &str, value: &dyn Fn(&Row, &Row) -> Option<f64>| {
        let mine = rows.iter().filter(|row| row.workload == workload && row.side == side);
        Spread::of(mine.filter_map(|row| value(row, twin_row(rows, row)?)))
    };
    let saved = |mine: u64, ext4: u64| (1.0 - mine as f64 / ext4 as f64) * 100.0;
    let space = |mine: &Row, ext4: &Row| Some(saved(mine.space.as_ref()?.used_bytes, ext4.space.as_ref()?.used_bytes));
    let exact = |mine: &Row, _: &Row| mine.space.as_ref().map(|space| saved(space.distinct_bytes, space.blocks_bytes));
    let writes = |mine: &Row, ext4: &Row| Some(saved(mine.device_written_settled?, ext4.device_written_settled?));
    let faster = |mine: &Row, ext4: &Row| Some((ext4.seconds / mine.seconds - 1.0) * 100.0);
    let shown = |spread: Option<Spread>| spread.map_or("-".to_owned(), |spread| format!("{spread:.1}"));
    let signed = |spread: Option<Spread>| match spread {
        Some(Spread { median, min, max }) => format!("{median:+.1} ({min:+.1} to {max:+.1})"),
        None => "-".to_owned(),
    };
    vec![
        format!("{side}, {:.1} % duplicates", twin.duplicate_permille() as f64 / 10.0),
        spread(&twin.write_name(), &exact).map_or("-".to_owned(), |spread| format!("{:.1}", spread.median)),
        shown(spread(&twin.write_name(), &space)),
        shown(spread(&twin.write_name(), &writes)),
        signed(spread(&twin.write_name(), &faster)),
        signed(spread(&twin.read_name(), &faster)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loop_device::DeviceBytes;
    use crate::measure::Space;

    fn row(workload: String, side: &str, seconds: f64, taken: u64) -> Row {
        Row {
            workload,
            side: side.into(),
            repetition: 0,
            seconds,
            bytes: 4096,
            unique_bytes: 4096,
            stored_bytes: None,
            mb_per_s: 1.0,
            latency: None,
            device: DeviceBytes::default(),
            device_written_settled: Some(taken),
            data_area_written: None,
            cpu_machine_s: 0.0,
            cpu_daemon_s: None,
            daemon_peak_bytes: None,
            space: Some(Space { used_bytes: taken / 2, blocks_bytes: 4096, distinct_bytes: 1024 }),
            piece_cost: None,
            limit_share: None,
        }
    }

    fn rows() -> Vec<Row> {
        let (write, read) = (Twin::Many.write_name(), Twin::Many.read_name());
        vec![
            row(write.clone(), EXT4, 3.0, 1000),
            row(write, "oncefs", 2.0, 600),
            row(read.clone(), EXT4, 1.0, 0),
            row(read, "oncefs", 2.0, 0),
        ]
    }

    #[test]
    fn savings_and_speeds_are_against_ext4_and_the_paper_stands_beside() {
        let text = table(&rows());
        let mine = text.lines().find(|line| line.starts_with("| oncefs, 46.1 % duplicates")).unwrap();
        for part in ["75.0 |", "40.0 (40.0-40.0)", "+50.0 (+50.0 to +50.0)", "-50.0 (-50.0 to -50.0)"] {
            assert!(mine.contains(part), "no {part} in {mine}");
        }
        assert!(text.contains("+54.4"), "{text}");
    }

    #[test]
    fn without_ext4_or_without_the_workload_there_is_no_table() {
        let alone: Vec<Row> = rows().into_iter().filter(|row| row.side != EXT4).collect();
        assert_eq!(table(&alone), "");
        assert_eq!(table(&[row("sequential-write-0".into(), "oncefs", 1.0, 1)]), "");
    }
}
