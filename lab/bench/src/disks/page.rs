//! The page: verdicts, times, and what the second copy of a tree costs.

use oncefs_toolbox::Table;

use super::steps::{PAIRS, STEPS};
use crate::measure::Row;
use crate::report::as_markdown;
use crate::spread::Spread;

/// The sides, in the order of the columns.
pub const SIDES: [&str; 5] = ["ext4", "disk", "xfs", "disk-xfs", "oncefs"];

/// All tables as Markdown, with what they mean.
pub fn tables(rows: &[Row]) -> String {
    format!(
        "## Verdicts\n\n{LEGEND}\n\n{}\n\n## Times\n\nSeconds, medians.\n\n{}\n\n## A second copy of small files\n\n\
         {LEGEND_COPY}\n\n{}\n",
        verdicts(rows),
        times(rows),
        second_copy(rows)
    )
}

const LEGEND: &str = "Figures are ratios to the same file system on a plain loop device, 1.0 being as fast, except \
where the line names another measure: median (least-greatest), each ratio within a repetition. Files in the mount are \
held against ext4, and not judged: they are there to choose between both ways. The median decides.";

const LEGEND_COPY: &str = "MB, medians. Written is what reached the device until the copy was durable. The data area \
holds what the file system on the disk wrote: its inodes, directories and journal too.";

fn verdicts(rows: &[Row]) -> String {
    let [ext4, xfs, files] = &PAIRS;
    let mut table = Table::new(&["", "bound", ext4.title, "verdict", xfs.title, "verdict", files.title]);
    for step in &STEPS {
        let cell = |spread: Option<Spread>| spread.map_or("-".to_owned(), |spread| format!("{spread:.2}"));
        let [ext4, xfs, files] = [ext4, xfs, files].map(|pair| step.spread(rows, pair));
        table.row(vec![
            step.what.to_owned(),
            step.bound.describe(),
            cell(ext4),
            step.bound.verdict(ext4),
            cell(xfs),
            step.bound.verdict(xfs),
            cell(files),
        ]);
    }
    table.to_string()
}

fn median(rows: &[Row], workload: &str, side: &str, figure: impl Fn(&Row) -> Option<f64>) -> Option<f64> {
    let of = rows.iter().filter(|row| row.workload == workload && row.side == side);
    Spread::of(of.filter_map(figure)).map(|spread| spread.median)
}

fn cell(figure: Option<f64>, digits: usize) -> String {
    figure.map_or("-".to_owned(), |figure| format!("{figure:.digits$}"))
}

fn times(rows: &[Row]) -> String {
    let mut workloads: Vec<&str> = STEPS.iter().map(|step| step.workload).collect();
    workloads.dedup();
    let mut head = vec![""];
    head.extend(SIDES);
    let mut table = Table::new(&head);
    for workload in workloads {
        let mut cells = vec![workload.to_owned()];
        cells.extend(SIDES.map(|side| cell(median(rows, workload, side, |row| Some(row.seconds)), 2)));
        table.row(cells);
    }
    table.to_string()
}

fn second_copy(rows: &[Row]) -> String {
    const COPY: &str = "tree-copy-again";
    let mut table = Table::new(&["", "files", "written", "data area grew"]);
    for side in SIDES {
        let megabytes = |figure: fn(&Row) -> Option<u64>| {
            cell(median(rows, COPY, side, |row| figure(row).map(|bytes| bytes as f64 / 1e6)), 1)
        };
        table.row(vec![
            side.to_owned(),
            megabytes(|row| Some(row.bytes)),
            megabytes(|row| Some(row.device.written)),
            megabytes(|row| row.stored_growth),
        ]);
    }
    as_markdown(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::testing::row;

    #[test]
    fn a_line_has_a_verdict_for_each_disk_and_none_for_files() {
        let rows = ["ext4", "disk", "xfs", "disk-xfs", "oncefs"]
            .map(|side| row("tree-copy", side, 0, if side == "disk" { 1.0 } else { 0.7 }));
        let page = tables(&rows);
        let line = page.lines().find(|line| line.starts_with("| copy small files")).unwrap();
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let expected = ["at least 0.75", "0.70 (0.70-0.70)", "**falls short**", "1.00 (1.00-1.00)", "holds"];
        assert_eq!(cells[2..7], expected);
        assert_eq!(cells[7], "1.00 (1.00-1.00)");
        assert!(page.contains("not measured yet"));
    }
}
