//! The files read so far that may come again: those with several names, and all files if there are several paths.
//! Memory is bounded.

use std::collections::HashMap;

use crate::files::held::Status;

/// One part in this many of an estimate's memory is for the files seen.
pub const SEEN_SHARE: u64 = 16;

/// Most bytes for a file, at the moment when the hash table doubles.
const ENTRY_BYTES: u64 = 96;

/// The files seen so far.
pub struct Seen {
    several_paths: bool,
    /// Names that are still to come, by device and inode.
    inodes: HashMap<(u64, u64), u64>,
    inodes_max: usize,
    forgotten: u64,
}

impl Seen {
    /// An empty set that takes at most `memory_bytes_max`.
    pub fn new(several_paths: bool, memory_bytes_max: u64) -> Self {
        let inodes_max = (memory_bytes_max / ENTRY_BYTES) as usize;
        Self { several_paths, inodes: HashMap::new(), inodes_max, forgotten: 0 }
    }

    /// Whether a file comes for the first time.
    pub fn is_new(&mut self, status: Status) -> bool {
        self.is_first(status.inode, status.names)
    }

    fn is_first(&mut self, inode: (u64, u64), names: u64) -> bool {
        if names < 2 && !self.several_paths {
            return true;
        }
        if let Some(left) = self.inodes.get_mut(&inode) {
            *left = left.saturating_sub(1);
            // A path below another one visits the last name again.
            if *left == 0 && !self.several_paths {
                self.inodes.remove(&inode);
            }
            return false;
        }
        if self.inodes.len() < self.inodes_max {
            self.inodes.insert(inode, names.saturating_sub(1));
        } else {
            self.forgotten += 1;
        }
        true
    }

    /// How often a file came that may come again but did not fit into memory.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firsts(seen: &mut Seen, files: &[(u64, u64)]) -> Vec<bool> {
        files.iter().map(|(inode, names)| seen.is_first((1, *inode), *names)).collect()
    }

    #[test]
    fn a_file_is_new_once_and_forgotten_after_its_last_name() {
        let mut seen = Seen::new(false, 1 << 10);
        assert_eq!(
            firsts(&mut seen, &[(1, 1), (2, 3), (2, 3), (3, 2), (2, 3), (3, 2)]),
            [true, true, false, true, false, false]
        );
        assert!(seen.inodes.is_empty() && seen.forgotten() == 0);
    }

    #[test]
    fn with_several_paths_each_file_is_remembered_for_good() {
        let mut seen = Seen::new(true, 1 << 10);
        assert_eq!(firsts(&mut seen, &[(1, 1), (1, 1), (2, 2), (2, 2), (2, 2)]), [true, false, true, false, false]);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut seen = Seen::new(true, 2 * ENTRY_BYTES);
        assert_eq!(firsts(&mut seen, &[(1, 1), (2, 1), (3, 1), (3, 1), (1, 1)]), [true, true, true, true, false]);
        assert_eq!((seen.inodes.len(), seen.forgotten()), (2, 2));
    }
}
