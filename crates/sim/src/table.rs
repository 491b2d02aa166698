//! Tables as text: aligned, and Markdown at the same time.

use std::fmt;

/// Rows of cells below a head. The first column is aligned left, all others right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|&cell| cell.to_owned()).collect(), rows: Vec::new() }
    }

    /// Adds a row, of as many cells as the head has.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "cells of a row: {cells:?}");
        self.rows.push(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| rows().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        for (at, row) in rows().enumerate() {
            write!(f, "|")?;
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                if column == 0 { write!(f, " {cell:<width$} |")? } else { write!(f, " {cell:>width$} |")? }
            }
            writeln!(f)?;
            if at == 0 {
                let rule = |(column, width): (usize, &usize)| {
                    if column == 0 {
                        format!("{}|", "-".repeat(width + 2))
                    } else {
                        format!("{}:|", "-".repeat(width + 1))
                    }
                };
                writeln!(f, "|{}", widths.iter().enumerate().map(rule).collect::<String>())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_markdown() {
        let mut table = Table::new(&["design", "%"]);
        table.row(vec!["a".to_owned(), "12.5".to_owned()]);
        assert_eq!(table.to_string(), "| design |    % |\n|--------|-----:|\n| a      | 12.5 |\n");
    }
}
