//! Output that every case shares: text tables, verdicts on aims, and readings as JSON.

use std::fs::File;
use std::path::Path;

use oncefs_toolbox::Table;
use serde::Serialize;

use crate::failure::{During, Result};

/// Writes raw readings as JSON.
pub fn write_json(path: &Path, readings: &impl Serialize) -> Result<()> {
    let file = File::create(path).during(|| format!("cannot create {}", path.display()))?;
    serde_json::to_writer_pretty(file, readings).during(|| format!("cannot write {}", path.display()))
}

/// Whether an aim is reached, as a line of a list.
pub fn verdict(name: &str, value: f64, is_met: bool, aim: &str) -> String {
    let word = if is_met { "met" } else { "MISSED" };
    format!("- {name}: {value:.2} % (aim: {aim}): {word}")
}

/// A table as Markdown, so that it can be kept as it is, without the columns in which nothing was measured.
pub fn as_markdown(table: Table) -> String {
    table.without_columns_of("-").to_string()
}
