//! Names of disks and of their snapshots.

use std::fmt;
use std::str::FromStr;

use crate::file_name;

/// Longest name, in bytes: a disk's name also becomes a part of longer ones.
const NAME_BYTES_MAX: usize = 64;

/// Ends the names of files that are to become disks.
const UNFINISHED: &str = ".new";

/// Between the names of a disk and of its snapshot.
const AT: char = '@';

/// The name of a disk: letters, digits, `.`, `_` and `-`, not first a `.` or `-`. Or that of a snapshot: the name of its
/// disk, `@`, and a name of the same form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DiskName(String);

impl DiskName {
    /// As text, which is also the name of its file.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl DiskName {
    /// The name of a snapshot of this disk.
    pub fn snapshot(&self, name: &DiskName) -> Self {
        assert!(!self.is_snapshot() && !name.is_snapshot(), "a snapshot {name} of {self}");
        Self(format!("{self}{AT}{name}"))
    }

    /// Whether it names a snapshot.
    pub fn is_snapshot(&self) -> bool {
        self.0.contains(AT)
    }

    /// Whether it names a snapshot of this disk.
    pub fn is_snapshot_of(&self, disk: &DiskName) -> bool {
        self.0.strip_prefix(disk.as_str()).is_some_and(|rest| rest.starts_with(AT))
    }

    /// A name for the file of this disk until it is complete. No disk has it. `number` tells attempts apart.
    pub fn unfinished(&self, number: u64) -> String {
        format!(".{self}.{number}{UNFINISHED}")
    }

    /// Whether an attempt to make this disk left a file of this name.
    pub fn left(&self, file: &str) -> bool {
        let number = file.strip_prefix('.').and_then(|rest| rest.strip_prefix(self.as_str())?.strip_prefix('.'));
        number.and_then(|rest| rest.strip_suffix(UNFINISHED)).is_some_and(|number| number.parse::<u64>().is_ok())
    }
}

/// The name of a disk, or of a snapshot of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskOrSnapshot(pub DiskName);

impl FromStr for DiskOrSnapshot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(AT) {
            None => text.parse().map(Self),
            Some((disk, snapshot)) => Ok(Self(disk.parse::<DiskName>()?.snapshot(&snapshot.parse()?))),
        }
    }
}

impl fmt::Display for DiskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for DiskName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        file_name::check(text, "disk", NAME_BYTES_MAX, "._-")?;
        Ok(Self(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_file_name_and_no_way_out_of_the_folder() {
        for good in ["home", "vm-7.ext4", "_x", "9", &"a".repeat(NAME_BYTES_MAX)] {
            assert_eq!(good.parse::<DiskName>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "..", "../etc", "a/b", "-rf", ".hidden", "with space", "\u{e9}", "a\nb", &"a".repeat(65)] {
            assert!(bad.parse::<DiskName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_snapshot_is_named_after_its_disk_and_no_disk_is_named_like_one() {
        let parse = |text: &str| text.parse::<DiskOrSnapshot>().map(|name| name.0);
        let [disk, snapshot] = [parse("home").unwrap(), parse("home@monday").unwrap()];
        assert_eq!(disk.snapshot(&parse("monday").unwrap()), snapshot);
        assert!(snapshot.is_snapshot_of(&disk) && !snapshot.is_snapshot_of(&parse("hom").unwrap()));
        assert!(!disk.is_snapshot() && !disk.is_snapshot_of(&disk));
        for bad in ["@", "a@", "@a", "a@b@c", "a@.b", "a@../b", "a@b/c"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!("home@monday".parse::<DiskName>().is_err());
        assert!(disk.left(&disk.unfinished(7)) && !disk.left(&snapshot.unfinished(7)) && !snapshot.left("home@monday"));
    }
}
