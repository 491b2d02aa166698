//! Output that every case shares: text tables, verdicts on aims, and readings as JSON.

use std::fmt::Write as _;
use std::fs::File;
use std::path::Path;

use serde::Serialize;

use crate::failure::{During, Result};

/// Writes raw readings as JSON.
pub fn write_json(path: &Path, readings: &impl Serialize) -> Result<()> {
    let file = File::create(path).during(|| format!("cannot create {}", path.display()))?;
    serde_json::to_writer_pretty(file, readings).during(|| format!("cannot write {}", path.display()))
}

/// Whether an aim is reached, for a line of its own.
pub fn verdict(name: &str, value: f64, is_met: bool, aim: &str) -> String {
    let word = if is_met { "met" } else { "MISSED" };
    format!("{name}: {value:.2} % (aim: {aim}): {word}")
}

/// A text table, first column left, the others right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(headings: &[&str]) -> Table {
        Table { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    /// Adds a row.
    pub fn push(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The table as Markdown, so that it can be kept as it is; columns that are empty everywhere are left out.
    pub fn render(&self) -> String {
        let columns: Vec<usize> =
            (0..self.rows[0].len()).filter(|column| self.rows[1..].iter().any(|row| row[*column] != "-")).collect();
        let width = |column: usize| self.rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let mut text = String::new();
        for (index, row) in self.rows.iter().enumerate() {
            let cells = columns.iter().map(|column| match column {
                0 => format!(" {:<width$} |", row[0], width = width(0)),
                _ => format!(" {:>width$} |", row[*column], width = width(*column)),
            });
            writeln!(text, "|{}", cells.collect::<String>()).expect("writing to a String cannot fail");
            if index == 0 {
                let rules = columns.iter().map(|column| match column {
                    0 => format!("{}|", "-".repeat(width(0) + 2)),
                    _ => format!("{}:|", "-".repeat(width(*column) + 1)),
                });
                writeln!(text, "|{}", rules.collect::<String>()).expect("writing to a String cannot fail");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_without_any_value_are_left_out() {
        let mut table = Table::new(&["side", "empty", "full"]);
        table.push(vec!["a".into(), "-".into(), "1".into()]);
        assert_eq!(table.render(), "| side | full |\n|------|-----:|\n| a    |    1 |\n");
    }
}
