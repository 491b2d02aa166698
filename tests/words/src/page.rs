//! What a page in Markdown says: words in backticks, links, sections and tables.

use crate::checkout::text;

/// What stands in backticks.
pub fn quoted(line: &str) -> Vec<&str> {
    line.split('`').skip(1).step_by(2).collect()
}

/// Where the links of a page lead, as they are written.
pub fn links(page: &str) -> Vec<&str> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

/// The cells of a line of a table.
pub fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
    inner.split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// A part of a page, from a heading to the next one of any level.
pub struct Section {
    /// The page and the heading.
    pub name: String,
    /// All its lines, the heading left out.
    pub lines: Vec<String>,
}

impl Section {
    /// The section of a page with this heading.
    ///
    /// # Panics
    /// If there is none.
    pub fn of(page: &str, heading: &str) -> Self {
        let text = text(page);
        let is_heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').trim() == heading;
        let mut lines = text.lines().skip_while(|line| !is_heading(line));
        lines.next().unwrap_or_else(|| panic!("{page} has no section {heading:?}"));
        let lines = lines.take_while(|line| !line.starts_with('#')).map(str::to_owned).collect();
        Self { name: format!("{page}, {heading}"), lines }
    }

    /// The cells of each row of its table, head and rule left out.
    pub fn rows(&self) -> Vec<Vec<String>> {
        self.lines.iter().filter(|line| line.starts_with('|')).skip(2).map(|line| cells(line)).collect()
    }
}
