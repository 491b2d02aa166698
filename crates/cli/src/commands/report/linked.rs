//! Files with several names, so that each is counted once.

use std::collections::HashMap;

/// Most files remembered at a time.
const KNOWN_MAX: usize = 1 << 20;

/// Files that came by one name and have further names.
#[derive(Debug, Default)]
pub struct Linked {
    /// Names still to come, by inode number.
    left: HashMap<u64, u64>,
    /// Whether there were too many, so that some files count more than once.
    pub is_full: bool,
}

impl Linked {
    /// Whether this is the first name of a file with `names` names.
    pub fn is_first(&mut self, inode: u64, names: u64) -> bool {
        if names < 2 {
            return true;
        }
        if let Some(left) = self.left.get_mut(&inode) {
            *left -= 1;
            if *left == 0 {
                self.left.remove(&inode);
            }
            return false;
        }
        if self.left.len() < KNOWN_MAX {
            self.left.insert(inode, names - 1);
        } else {
            self.is_full = true;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_counts_at_its_first_name_and_is_forgotten_after_its_last() {
        let mut linked = Linked::default();
        let first: Vec<bool> = [(1, 1), (2, 3), (2, 3), (3, 2), (2, 3), (3, 2)]
            .into_iter()
            .map(|(inode, names)| linked.is_first(inode, names))
            .collect();
        assert_eq!(first, [true, true, false, true, false, false]);
        assert!(linked.left.is_empty() && !linked.is_full);
    }
}
