//! The data that groups of files hold and share, by a part of their names. Users choose names, so the number of groups
//! is bounded. Files of further groups are counted together.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::ops::AddAssign;

/// Most groups that are counted separately.
const GROUPS_MAX: usize = 10_000;

/// Most groups that are shown by name.
const SHOWN_MAX: usize = 50;

/// Files added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// The number of files.
    pub files: u64,
    /// Bytes of their data.
    pub held: u64,
    /// The part of it in blocks that other places refer to as well.
    pub shared: u64,
}

impl AddAssign for Sum {
    fn add_assign(&mut self, other: Self) {
        self.files += other.files;
        self.held += other.held;
        self.shared += other.shared;
    }
}

/// Sums by name. `None` stands for files without that part of a name.
#[derive(Debug, Default)]
pub struct Groups {
    sums: HashMap<Option<OsString>, Sum>,
    beyond: Sum,
}

/// The largest groups, and the rest as one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Largest {
    /// The groups that hold most, in descending order.
    pub groups: Vec<(Option<OsString>, Sum)>,
    /// All others.
    pub rest: Sum,
}

impl Groups {
    /// Adds files to a group.
    pub fn add(&mut self, name: Option<&OsStr>, sum: Sum) {
        let name = name.map(OsStr::to_owned);
        if self.sums.len() < GROUPS_MAX || self.sums.contains_key(&name) {
            *self.sums.entry(name).or_default() += sum;
        } else {
            self.beyond += sum;
        }
    }

    /// The groups in descending order. Equal groups are in the order of their names.
    pub fn largest(&self) -> Largest {
        let mut groups: Vec<(&Option<OsString>, &Sum)> = self.sums.iter().collect();
        groups.sort_unstable_by_key(|(name, sum)| (Reverse((sum.held, sum.files)), *name));
        let mut rest = self.beyond;
        groups.iter().skip(SHOWN_MAX).for_each(|(_, sum)| rest += **sum);
        let groups = groups.into_iter().take(SHOWN_MAX).map(|(name, sum)| (name.clone(), *sum)).collect();
        Largest { groups, rest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(held: u64) -> Sum {
        Sum { files: 1, held, shared: held / 2 }
    }

    #[test]
    fn the_largest_groups_come_first_and_the_rest_is_one() {
        let mut groups = Groups::default();
        for n in 0..SHOWN_MAX as u64 + 3 {
            groups.add(Some(OsStr::new(&format!("{n:03}"))), sum(100 + n));
        }
        groups.add(None, sum(900));
        groups.add(None, sum(100));
        let Largest { groups, rest } = groups.largest();
        assert_eq!((groups.len(), &groups[0]), (SHOWN_MAX, &(None, Sum { files: 2, held: 1000, shared: 500 })));
        assert_eq!(groups[1].0.as_deref(), Some(OsStr::new("052")));
        assert_eq!(rest, Sum { files: 4, held: 100 + 101 + 102 + 103, shared: 50 + 50 + 51 + 51 });
    }

    #[test]
    fn groups_beyond_the_bound_are_counted_and_not_kept() {
        let mut groups = Groups::default();
        for n in 0..GROUPS_MAX + 5 {
            groups.add(Some(OsStr::new(&n.to_string())), sum(10));
        }
        groups.add(Some(OsStr::new("0")), sum(10));
        assert_eq!((groups.sums.len(), groups.beyond.files), (GROUPS_MAX, 5));
        let largest = groups.largest();
        assert_eq!(largest.groups[0].1.held, 20, "a known group still grows");
        let files: u64 = largest.groups.iter().map(|(_, sum)| sum.files).sum();
        assert_eq!(files + largest.rest.files, GROUPS_MAX as u64 + 6, "each file counts once");
    }
}
