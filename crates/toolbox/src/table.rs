//! Tables as text: Markdown with aligned source for reports, and plain columns for a terminal.

use std::fmt;

use comfy_table::presets::{ASCII_MARKDOWN, NOTHING};
use comfy_table::{CellAlignment, ColumnConstraint, Row, Width};

/// Spaces between plain columns.
const GAP: u16 = 2;

/// The alignment of a column's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    alignment: CellAlignment,
    width_min: u16,
}

impl Column {
    /// Words: aligned left, at least `width_min` characters wide.
    pub const fn left(width_min: u16) -> Self {
        Self { alignment: CellAlignment::Left, width_min }
    }

    /// Numbers: aligned right, at least `width_min` characters wide.
    pub const fn right(width_min: u16) -> Self {
        Self { alignment: CellAlignment::Right, width_min }
    }
}

/// Rows of cells, with or without a head. Displayed as Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    columns: Vec<Column>,
    head: Option<Vec<String>>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table below this head: the first column aligned left, all others right.
    pub fn new(head: &[&str]) -> Self {
        let columns = (0..head.len()).map(|at| if at == 0 { Column::left(0) } else { Column::right(0) });
        Self::of(columns).with_head(head)
    }

    /// An empty table of these columns, without a head.
    pub fn of(columns: impl IntoIterator<Item = Column>) -> Self {
        Self { columns: columns.into_iter().collect(), head: None, rows: Vec::new() }
    }

    /// The same table below this head, which has a cell for each column.
    pub fn with_head(self, head: &[&str]) -> Self {
        assert_eq!(head.len(), self.columns.len(), "cells of the head {head:?}, and columns");
        Self { head: Some(head.iter().map(|cell| (*cell).to_owned()).collect()), ..self }
    }

    /// Adds a row, which has a cell for each column.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.columns.len(), "cells of the row {cells:?}, and columns");
        self.rows.push(cells);
    }

    /// The table without the columns in which every row has this cell.
    pub fn without_columns_of(mut self, cell: &str) -> Self {
        let is_kept: Vec<bool> =
            (0..self.columns.len()).map(|column| self.rows.iter().any(|row| row[column] != cell)).collect();
        keep(&mut self.columns, &is_kept);
        self.head.iter_mut().chain(&mut self.rows).for_each(|cells| keep(cells, &is_kept));
        self
    }

    /// Plain columns, a line for each row, without trailing spaces.
    pub fn plain(&self) -> String {
        if self.head.is_none() && self.rows.is_empty() {
            return String::new();
        }
        let mut table = self.drawn();
        table.load_style(NOTHING);
        for (column, Column { width_min, .. }) in table.column_iter_mut().zip(&self.columns) {
            column.set_padding((0, GAP));
            column.set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(width_min + GAP)));
        }
        table.trim_fmt() + "\n"
    }

    /// Plain columns, and empties the table: long tables are printed in parts, with the least widths of the columns.
    pub fn take_plain(&mut self) -> String {
        let text = self.plain();
        self.head = None;
        self.rows.clear();
        text
    }

    fn drawn(&self) -> comfy_table::Table {
        let mut table = comfy_table::Table::new();
        if let Some(head) = &self.head {
            table.set_header(Row::from(head));
        }
        table.add_rows(&self.rows);
        for (column, Column { alignment, .. }) in table.column_iter_mut().zip(&self.columns) {
            column.set_cell_alignment(*alignment);
        }
        table
    }

    /// The rule below the head. A colon marks a column that is aligned right.
    fn rule(&self, drawn: &str) -> String {
        let cells = drawn.split('|').skip(1).zip(&self.columns).map(|(dashes, column)| match column.alignment {
            CellAlignment::Right => format!("{}:|", &dashes[1..]),
            _ => format!("{dashes}|"),
        });
        format!("|{}", cells.collect::<String>())
    }
}

fn keep<T>(cells: &mut Vec<T>, is_kept: &[bool]) {
    let mut kept = is_kept.iter();
    cells.retain(|_| *kept.next().expect("a cell for each column"));
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = self.drawn();
        table.load_style(ASCII_MARKDOWN);
        for (at, line) in table.lines().enumerate() {
            let is_rule = at == 1 && self.head.is_some();
            writeln!(f, "{}", if is_rule { self.rule(&line) } else { line })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells<const N: usize>(cells: [&str; N]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn a_table_is_aligned_markdown() {
        let mut table = Table::new(&["design", "%"]);
        table.row(cells(["a", "12.5"]));
        assert_eq!(table.to_string(), "| design |    % |\n|--------|-----:|\n| a      | 12.5 |\n");
    }

    #[test]
    fn columns_without_any_value_are_left_out() {
        let mut table = Table::new(&["side", "empty", "full"]);
        table.row(cells(["a", "-", "1"]));
        table.row(cells(["b", "-", "-"]));
        let text = table.without_columns_of("-").to_string();
        assert_eq!(text, "| side | full |\n|------|-----:|\n| a    |    1 |\n| b    |    - |\n");
    }

    #[test]
    fn plain_columns_are_as_wide_as_asked_for_or_needed() {
        let mut table = Table::of([Column::left(6), Column::right(4), Column::left(0)]);
        assert_eq!(table.plain(), "");
        table.row(cells(["a", "1", "first"]));
        table.row(cells(["much longer", "20", ""]));
        assert_eq!(table.plain(), "a               1  first\nmuch longer    20\n");
        assert_eq!(
            table.with_head(&["name", "n", "why"]).plain(),
            "name            n  why\na               1  first\nmuch longer    20\n"
        );
    }

    #[test]
    fn a_long_table_is_printed_in_parts() {
        let mut table = Table::of([Column::left(2), Column::right(3)]).with_head(&["a", "b"]);
        table.row(cells(["x", "1"]));
        assert_eq!(table.take_plain(), "a     b\nx     1\n");
        table.row(cells(["y", "2"]));
        assert_eq!((table.take_plain(), table.take_plain()), ("y     2\n".to_owned(), String::new()));
    }

    #[test]
    fn a_wide_character_takes_two_places_and_a_mark_none() {
        let mut table = Table::of([Column::left(0), Column::left(0)]);
        table.row(cells(["\u{4f60}", "x"]));
        table.row(cells(["e\u{301}", "x"]));
        assert_eq!(table.plain(), "\u{4f60}  x\ne\u{301}   x\n");
    }
}
