//! The findings of a check, and their exit code.

use oncefs_engine::{BadBlock, Blocks};

use crate::failure::exit;
use crate::names::printable;
use crate::size::Size;

/// Problems shown one by one; more are only counted.
const PROBLEMS_SHOWN_MAX: usize = 100;

/// The counts of a check, the faults, and the repairs.
#[derive(Debug, Default)]
pub struct Findings {
    pub mended: Vec<String>,
    pub fixed_count: u64,
    pub left: Vec<String>,
    pub left_count: u64,
    /// Files that lost something, or may have.
    pub files: Vec<String>,
    pub stored: Blocks,
    pub mapped: Blocks,
    /// A message about an incomplete last group of the log.
    pub left_out: Option<String>,
    /// Whether salvage found places that it could not read.
    pub has_lost_records: bool,
    /// Bad blocks that lost nothing: another block replaces them, or no file refers to them.
    pub replaced_count: u64,
}

impl Findings {
    /// Adds blocks that were found damaged before. Blocks with lost content are errors left.
    pub fn add_bad(&mut self, bad: &[BadBlock]) {
        for BadBlock { pbn, replacement, references } in bad {
            match (replacement, references) {
                (None, 1..) => {
                    let line = format!("block {pbn} is known to be damaged, and its content is lost [rule 5]");
                    self.add_left(vec![line], 1);
                }
                _ => self.replaced_count += 1,
            }
        }
    }

    pub fn add_fixed(&mut self, described: Vec<String>, count: u64) {
        self.fixed_count += count;
        let room = PROBLEMS_SHOWN_MAX.saturating_sub(self.mended.len());
        self.mended.extend(described.into_iter().take(room));
    }

    pub fn add_left(&mut self, described: Vec<String>, count: u64) {
        self.left_count += count;
        let room = PROBLEMS_SHOWN_MAX.saturating_sub(self.left.len());
        self.left.extend(described.into_iter().take(room));
    }

    pub fn print(&self) {
        for (what, described, count) in
            [("repaired: ", &self.mended, self.fixed_count), ("", &self.left, self.left_count)]
        {
            described.iter().for_each(|line| say!("{what}{}", printable(line)));
            let more = count - described.len() as u64;
            if more > 0 {
                say!("{what}... and {more} more");
            }
        }
        self.files.iter().for_each(|line| say!("{}", printable(line)));
        self.left_out.iter().for_each(|line| say!("{}", printable(line)));
    }

    pub fn summary(&self) -> String {
        let mended = match self.fixed_count {
            0 => String::new(),
            count => format!("{} repaired, ", errors(count)),
        };
        if self.left_count > 0 {
            return format!("{mended}{} left (oncefs fsck --help says what helps)", errors(self.left_count));
        }
        let bad = match self.replaced_count {
            0 => String::new(),
            1 => ", 1 damaged block is kept apart and nothing of it is lost".to_owned(),
            count => format!(", {count} damaged blocks are kept apart and nothing of them is lost"),
        };
        // It is unknown whether the omitted group had been acknowledged.
        let state = match (self.has_lost_records, self.left_out.is_some()) {
            (true, _) => "consistent without the records that were lost",
            (false, true) => "consistent without the end of its log",
            (false, false) => "clean",
        };
        format!("{mended}{state}, {} stored for {} in files{bad}", Size(self.stored.bytes()), Size(self.mapped.bytes()))
    }

    pub fn exit_code(&self) -> u8 {
        let mended = if self.fixed_count > 0 { exit::FSCK_ERRORS_REPAIRED } else { 0 };
        let left = if self.left_count > 0 { exit::FSCK_ERRORS_LEFT } else { 0 };
        mended | left
    }
}

fn errors(count: u64) -> String {
    if count == 1 { "1 error".to_owned() } else { format!("{count} errors") }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::Pbn;

    use super::*;

    fn findings(mended: u64, left: u64) -> Findings {
        let mut findings = Findings::default();
        (0..mended).for_each(|n| findings.add_fixed(vec![format!("problem {n}")], 1));
        (0..left).for_each(|n| findings.add_left(vec![format!("problem {n}")], 1));
        findings
    }

    #[test]
    fn the_exit_code_has_fsck_8s_bits() {
        let code = |mended, left| findings(mended, left).exit_code();
        assert_eq!((code(0, 0), code(3, 0), code(0, 2), code(1, 1)), (0, 1, 4, 5));
    }

    #[test]
    fn of_many_problems_the_first_hundred_are_kept_and_all_are_counted() {
        let findings = findings(0, 250);
        assert_eq!((findings.left.len(), findings.left_count), (PROBLEMS_SHOWN_MAX, 250));
    }

    #[test]
    fn a_block_that_is_known_to_be_bad_is_an_error_if_its_content_is_lost() {
        let block = |replacement, references| BadBlock { pbn: Pbn(7), replacement, references };
        let code = |bad| {
            let mut findings = Findings::default();
            findings.add_bad(&[bad]);
            (findings.exit_code(), findings.summary().contains("1 damaged block is kept apart"))
        };
        assert_eq!(code(block(None, 1)), (4, false));
        assert_eq!(code(block(Some(Pbn(9)), 3)), (0, true), "another block replaces it");
        assert_eq!(code(block(None, 0)), (0, true), "no file refers to it");
    }

    #[test]
    fn the_summary_says_what_is_stored_or_how_to_go_on() {
        let clean = Findings { stored: Blocks(256), mapped: Blocks(512), ..Findings::default() };
        assert_eq!(clean.summary(), "clean, 1.00 MiB stored for 2.00 MiB in files");
        let left_out = Some("group 7 was left out".to_owned());
        let cut_short = Findings { left_out, ..Findings::default() };
        assert!(!cut_short.summary().contains("clean"), "{}", cut_short.summary());
        assert!(findings(1, 2).summary().starts_with("1 error repaired, 2 errors left"));
    }
}
