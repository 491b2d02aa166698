//! Names of snapshots, and the series that a schedule makes of them.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::file_name;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 128;

/// The name of a snapshot: letters, digits, `.`, `_`, `-`, `:`, `+` and `@`, not first a `.` or `-`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotName(String);

impl SnapshotName {
    /// As a path of one name.
    pub fn as_path(&self) -> &Path {
        Path::new(&self.0)
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The common beginning of the names of a series: everything before the first digit.
pub fn series_of(name: &str) -> &str {
    &name[..name.find(|letter: char| letter.is_ascii_digit()).unwrap_or(name.len())]
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for SnapshotName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        file_name::check(text, "snapshot", NAME_BYTES_MAX, "._-:+@")?;
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_name_and_no_way_out_of_the_folder() {
        for good in ["before-upgrade", "2026-11-26T11:12:10+00:00", "_x", "a@b", &"a".repeat(NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<SnapshotName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "a/b", "-rf", ".hidden", "with space", "\u{e9}", "a\nb", &"a".repeat(129)] {
            assert!(bad.parse::<SnapshotName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_series_ends_before_the_first_digit() {
        assert_eq!(series_of("daily-2026-11-26"), "daily-");
        assert_eq!(series_of("2026-11-26"), "");
        assert_eq!(series_of("by-hand"), "by-hand");
    }
}
