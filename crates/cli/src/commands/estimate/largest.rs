//! The files with most duplicates.

use std::path::{Path, PathBuf};

use oncefs_engine::BLOCK_BYTES;
use serde::Serialize;

use crate::names::Name;

/// The number of files shown.
const FILES: usize = 5;

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LargestFile {
    /// The path at which it was found.
    pub path: Name,
    /// Bytes of its duplicates.
    pub duplicate_bytes: u64,
}

/// The files with most duplicates so far, in descending order. Equal files stay in the order found.
#[derive(Default)]
pub struct Largest(Vec<(u64, PathBuf)>);

impl Largest {
    /// Adds a file with its number of duplicates.
    pub fn add(&mut self, duplicates: u64, place: &dyn Fn() -> PathBuf) {
        let at = self.0.partition_point(|(more, _)| *more >= duplicates);
        if duplicates > 0 && at < FILES {
            self.0.insert(at, (duplicates, place()));
            self.0.truncate(FILES);
        }
    }

    /// All of them.
    pub fn files(self) -> Vec<LargestFile> {
        let file = |(duplicates, path): (u64, PathBuf)| LargestFile {
            path: Name::from(path.as_path() as &Path),
            duplicate_bytes: duplicates * BLOCK_BYTES as u64,
        };
        self.0.into_iter().map(file).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_with_most_stay_and_of_equals_the_first() {
        let mut largest = Largest::default();
        for (n, duplicates) in [3, 0, 9, 3, 1, 4, 1, 7, 3].into_iter().enumerate() {
            largest.add(duplicates, &|| format!("/{n}").into());
        }
        let files = largest.files();
        let found: Vec<(u64, &str)> =
            files.iter().map(|file| (file.duplicate_bytes / 4096, file.path.as_ref().to_str().unwrap())).collect();
        assert_eq!(found, [(9, "/2"), (7, "/7"), (4, "/5"), (3, "/0"), (3, "/3")]);
    }
}
