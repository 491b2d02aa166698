//! The share of the files that holds the duplicates. Files are counted by their number of duplicates, in classes, so
//! memory does not grow with their number.

use crate::estimate::FilesShare;

/// Numbers below this have a class each. Above it each doubling has this many classes.
const STEPS: u64 = 32;
const STEPS_BITS: u32 = STEPS.ilog2();
/// The shares of duplicates to report, in percent.
const PERCENTS: [u32; 3] = [50, 90, 99];

/// Files and duplicates by the class of the file.
#[derive(Default)]
pub struct FileShares {
    files: u64,
    classes: Vec<(u64, u64)>,
}

impl FileShares {
    /// Adds a file with its number of duplicates.
    pub fn add(&mut self, duplicates: u64) {
        self.files += 1;
        if duplicates == 0 {
            return;
        }
        let class = class_of(duplicates);
        if self.classes.len() <= class {
            self.classes.resize(class + 1, (0, 0));
        }
        self.classes[class].0 += 1;
        self.classes[class].1 += duplicates;
    }

    /// Files with at least one duplicate.
    pub fn with_duplicates(&self) -> u64 {
        self.classes.iter().map(|(files, _)| files).sum()
    }

    /// The smallest numbers of files that hold most duplicates. Empty if there are no duplicates.
    pub fn shares(&self) -> Vec<FilesShare> {
        let all: u64 = self.classes.iter().map(|(_, duplicates)| duplicates).sum();
        let shares = PERCENTS.iter().map(|percent| {
            let files = self.fewest_with(all as f64 * f64::from(*percent) / 100.0);
            let files_percent = 100.0 * files as f64 / self.files.max(1) as f64;
            FilesShare { duplicates_percent: *percent, files, files_percent }
        });
        if all == 0 { Vec::new() } else { shares.collect() }
    }

    /// The smallest number of files with `wanted` duplicates. Within a class all files count as equal.
    fn fewest_with(&self, wanted: f64) -> u64 {
        let (mut taken, mut left) = (0, wanted);
        for (files, duplicates) in self.classes.iter().rev().filter(|(files, _)| *files > 0) {
            if *duplicates as f64 >= left {
                let of_class = (left * *files as f64 / *duplicates as f64).ceil() as u64;
                return taken + of_class;
            }
            taken += files;
            left -= *duplicates as f64;
        }
        taken
    }
}

fn class_of(number: u64) -> usize {
    let shift = number.ilog2().saturating_sub(STEPS_BITS);
    (u64::from(shift) * STEPS + (number >> shift)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_ascend_without_a_gap_that_matters() {
        let classes: Vec<usize> = (1..100_000).map(class_of).collect();
        assert!(classes.is_sorted() && classes[..63].iter().enumerate().all(|(at, class)| *class == at + 1));
        assert!(class_of(u64::MAX) < 2_000);
    }

    #[test]
    fn a_few_files_hold_nearly_everything() {
        let mut shares = FileShares::default();
        (0..90).for_each(|_| shares.add(0));
        (0..9).for_each(|_| shares.add(1));
        shares.add(91);
        let found: Vec<(u32, u64)> =
            shares.shares().iter().map(|share| (share.duplicates_percent, share.files)).collect();
        assert_eq!(found, [(50, 1), (90, 1), (99, 9)]);
        assert_eq!(shares.with_duplicates(), 10);
        assert_eq!(FileShares::default().shares(), []);
    }
}
