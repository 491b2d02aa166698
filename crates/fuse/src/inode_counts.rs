//! Counts, by inode number, of the references that the kernel holds.
//!
//! One counts how often the kernel was told about an inode, minus how often it has forgotten it. While that count is
//! positive, the kernel may use the inode, with or without a name. Another counts opens for writing. While that count
//! is positive, the kernel may have dirty pages.
//!
//! No setting bounds these counts, because the kernel decides how many inodes it holds: after a search through ten
//! million files it may hold all of them. So neighbours share an entry, with a byte for each.

use std::collections::HashMap;

use oncefs_fs::Ino;
use parking_lot::{Mutex, MutexGuard};

/// Shards, so that threads seldom contend; a power of two.
const SHARDS: usize = 64;
/// Inodes that share an entry. Inodes that were created one after the other are mostly held together.
const NEIGHBOURS: usize = 8;
/// The byte of an inode whose count is this large or larger: `large` has it.
const LARGE: u8 = u8::MAX;
/// A table of this many entries or fewer never shrinks.
const KEPT_ENTRIES: usize = 256;
/// A larger one shrinks when only one entry in this many is used.
const USED_SHARE_MIN: usize = 8;

/// The counts of some inodes.
#[derive(Default)]
struct Shard {
    /// By the inode's number without its last digit, to the base of [`NEIGHBOURS`]. At least one count is positive.
    small: HashMap<u64, [u8; NEIGHBOURS]>,
    large: HashMap<Ino, u64>,
}

/// The entry of an inode, and its place in it.
fn place(ino: Ino) -> (u64, usize) {
    (ino.0 / NEIGHBOURS as u64, ino.0 as usize % NEIGHBOURS)
}

impl Shard {
    fn get(&self, ino: Ino) -> u64 {
        let (entry, at) = place(ino);
        match self.small.get(&entry).map_or(0, |counts| counts[at]) {
            LARGE => self.large.get(&ino).copied().unwrap_or(u64::from(LARGE)),
            small => u64::from(small),
        }
    }

    fn set(&mut self, ino: Ino, count: u64) {
        let (entry, at) = place(ino);
        let small = u8::try_from(count).unwrap_or(LARGE);
        let counts = self.small.entry(entry).or_default();
        let before = std::mem::replace(&mut counts[at], small);
        let is_empty = *counts == [0; NEIGHBOURS];
        if small == LARGE {
            self.large.insert(ino, count);
        } else if before == LARGE {
            self.large.remove(&ino);
        }
        if is_empty {
            self.small.remove(&entry);
            self.shrink();
        }
    }

    /// Gives back memory that a much larger table needed.
    fn shrink(&mut self) {
        let (used, room) = (self.small.len(), self.small.capacity());
        if room > KEPT_ENTRIES && used < room / USED_SHARE_MIN {
            self.small.shrink_to(2 * used);
        }
    }

    /// Bytes of both tables, which have one byte of their own for each place. They keep one place in eight free.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        let places = |room: usize| room * 8 / 7 + 1;
        places(self.small.capacity()) * (size_of::<(u64, [u8; NEIGHBOURS])>() + 1)
            + places(self.large.capacity()) * (size_of::<(Ino, u64)>() + 1)
    }
}

/// The number of references that the kernel holds on each inode. Most inodes have none.
pub(crate) struct InodeCounts {
    shards: Vec<Mutex<Shard>>,
}

impl InodeCounts {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    fn shard(&self, ino: Ino) -> MutexGuard<'_, Shard> {
        self.shards[place(ino).0 as usize % SHARDS].lock()
    }

    /// Adds one.
    pub(crate) fn add(&self, ino: Ino) {
        let mut shard = self.shard(ino);
        let count = shard.get(ino);
        shard.set(ino, count + 1);
    }

    /// Subtracts `count`. True: none is left.
    pub(crate) fn subtract(&self, ino: Ino, count: u64) -> bool {
        let mut shard = self.shard(ino);
        let held = shard.get(ino);
        let left = held.saturating_sub(count);
        if held > 0 {
            shard.set(ino, left);
        }
        left == 0
    }

    /// The inodes that the kernel holds any of, in ascending order from `from` on.
    pub(crate) fn from(&self, from: Ino) -> Vec<Ino> {
        let mut found = Vec::new();
        for shard in &self.shards {
            for (entry, counts) in &shard.lock().small {
                let held = (0..NEIGHBOURS).filter(|at| counts[*at] > 0);
                let held = held.map(|at| Ino(entry * NEIGHBOURS as u64 + at as u64));
                found.extend(held.filter(|ino| *ino >= from));
            }
        }
        found.sort_unstable();
        found
    }

    /// Whether the kernel holds any.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.shard(ino).get(ino) > 0
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().bytes()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inode_is_held_until_everything_is_subtracted() {
        let counts = InodeCounts::new();
        counts.add(Ino(5));
        counts.add(Ino(5));
        counts.add(Ino(6));
        assert!(!counts.subtract(Ino(5), 1));
        assert!(counts.has(Ino(5)));
        assert!(counts.subtract(Ino(5), 1));
        assert!(!counts.has(Ino(5)));
        assert!(counts.has(Ino(6)));
        assert_eq!(counts.from(Ino(6)), [Ino(6)]);
    }

    #[test]
    fn subtracting_too_much_is_harmless() {
        let counts = InodeCounts::new();
        counts.add(Ino(5));
        assert!(counts.subtract(Ino(5), 7));
        assert!(counts.subtract(Ino(6), 1));
        assert_eq!(counts.from(Ino(0)), []);
    }

    #[test]
    fn a_count_that_exceeds_a_byte_is_exact_in_both_directions() {
        let counts = InodeCounts::new();
        counts.add(Ino(8));
        (0..1_000).for_each(|_| counts.add(Ino(9)));
        assert!(!counts.subtract(Ino(9), 1_000 - u64::from(LARGE)));
        assert!(!counts.subtract(Ino(9), 1));
        assert!(!counts.subtract(Ino(9), u64::from(LARGE) - 2));
        counts.add(Ino(9));
        assert!(counts.subtract(Ino(9), 2));
        assert_eq!(counts.from(Ino(0)), [Ino(8)]);
        assert!(counts.shards.iter().all(|shard| shard.lock().large.is_empty()));
    }

    /// A table with an entry of 17 bytes for each inode would take 19 to 39 bytes.
    #[test]
    fn files_that_the_kernel_holds_take_few_bytes_each_and_none_once_they_are_forgotten() {
        const FILES: u64 = 200_000;
        let counts = InodeCounts::new();
        let files = (1 << 20)..(1 << 20) + FILES;
        files.clone().for_each(|number| counts.add(Ino(number)));
        let bytes = counts.bytes() as f64 / FILES as f64;
        println!("{bytes:.1} bytes a file");
        assert!(bytes <= 5.0, "{bytes} bytes a file");
        files.for_each(|number| assert!(counts.subtract(Ino(number), 1)));
        assert!(counts.bytes() <= SHARDS * 2 * KEPT_ENTRIES * 17, "{} bytes are kept", counts.bytes());
    }

    #[test]
    fn files_far_from_each_other_take_no_more_than_an_entry_each() {
        const FILES: u64 = 50_000;
        let counts = InodeCounts::new();
        (0..FILES).for_each(|number| counts.add(Ino(number * 1_009)));
        assert!(counts.bytes() as u64 <= 40 * FILES, "{} bytes", counts.bytes());
    }
}
