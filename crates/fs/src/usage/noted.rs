//! Reads noted but not published yet, by file, in bounded memory.

use std::collections::HashMap;
use std::mem;

use oncefs_engine::sync::{Mutex, MutexGuard};
use oncefs_engine::{Moment, Rank, Reads, Usage};

use crate::Ino;

/// Parts with a lock of their own; a power of two.
const PARTS: usize = 256;
const _: () = assert!(PARTS.is_power_of_two(), "parts are found by a mask");
/// Slots of a part's hash table when it is full.
const SLOTS_PER_PART_MAX: usize = 512;
/// Files in a full part. The standard library doubles a table once seven eighths of it are taken.
const FILES_PER_PART_MAX: usize = SLOTS_PER_PART_MAX / 8 * 7;
/// Files in a part from which on it should be published.
const FILES_PER_PART_MANY: usize = FILES_PER_PART_MAX / 2;

/// Bytes of all parts when all are full. The table has one byte of its own for each slot.
pub(super) const BYTES_MAX: usize = PARTS * SLOTS_PER_PART_MAX * (size_of::<(Ino, NotedReads)>() + 1);

/// An access without a read is published only if the last known access is this much older. Files become cold after two
/// weeks, so an hour more or less does not matter.
const ACCESS_SECONDS_MIN: u32 = 60 * 60;

/// The reads noted for one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotedReads {
    reads: Reads,
    last: Moment,
}

/// Files, with the reads noted for each.
pub(super) type Files = HashMap<Ino, NotedReads>;

/// How full a part is after a read was noted in it.
pub(super) enum Filled {
    /// Less than half full.
    Little,
    /// It should be published soon.
    Half,
    /// It was full and has been emptied: the caller must publish these.
    Full(Files),
}

/// Noted reads of all files.
pub(super) struct Noted {
    parts: Vec<Mutex<Files>>,
}

impl NotedReads {
    /// Adds these reads to a file's usage. False: they tell nothing worth publishing, and the usage is unchanged.
    pub fn add_to(&self, usage: &mut Usage, now: Moment) -> bool {
        let is_known = self.reads == Reads::default()
            && usage.rank() != Rank::Cold
            && usage.last_access() <= now
            && self.last.seconds_since(usage.last_access()) < ACCESS_SECONDS_MIN;
        if is_known {
            return false;
        }
        usage.clamp(now);
        // The file may have been written since it was read, and the clock may have jumped back.
        usage.read(self.last.min(now).max(usage.last_access()), self.reads);
        debug_assert!(usage.last_access() <= now, "{:?} is after {now:?}", usage.last_access());
        true
    }
}

impl Noted {
    pub fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    fn part(&self, ino: Ino) -> MutexGuard<'_, Files> {
        self.parts[ino.0 as usize % PARTS].lock()
    }

    /// Notes an access to a file, and the blocks it read.
    pub fn add(&self, ino: Ino, now: Moment, reads: Reads) -> Filled {
        let mut files = self.part(ino);
        let noted = files.entry(ino).or_default();
        noted.reads.sequential = noted.reads.sequential.saturating_add(reads.sequential);
        noted.reads.random = noted.reads.random.saturating_add(reads.random);
        noted.last = now;
        debug_assert!(files.len() <= FILES_PER_PART_MAX, "{} files of {FILES_PER_PART_MAX} in a part", files.len());
        match files.len() {
            FILES_PER_PART_MAX.. => Filled::Full(mem::take(&mut *files)),
            FILES_PER_PART_MANY.. => Filled::Half,
            _ => Filled::Little,
        }
    }

    /// The reads noted for a file. They stay noted.
    pub fn get(&self, ino: Ino) -> Option<NotedReads> {
        self.part(ino).get(&ino).copied()
    }

    /// Takes out the reads noted for a file.
    pub fn take(&self, ino: Ino) -> Option<NotedReads> {
        self.part(ino).remove(&ino)
    }

    /// Takes out all noted reads, one part at each step of the iterator.
    pub fn take_parts(&self) -> impl Iterator<Item = Files> {
        self.parts.iter().map(|part| mem::take(&mut *part.lock()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READS: Reads = Reads { sequential: 3, random: 1 };
    const ACCESS: Reads = Reads { sequential: 0, random: 0 };

    fn noted(last: u32, reads: Reads) -> NotedReads {
        NotedReads { reads, last: Moment(last) }
    }

    #[test]
    fn a_table_takes_no_more_than_its_bound_says() {
        let mut files = Files::new();
        files.extend((0..FILES_PER_PART_MAX as u64).map(|number| (Ino(number), NotedReads::default())));
        assert_eq!(files.capacity(), FILES_PER_PART_MAX, "a table of {SLOTS_PER_PART_MAX} slots");
    }

    #[test]
    fn a_full_part_is_handed_out_whole_after_reporting_half_full() {
        let noted = Noted::new();
        let (mut half, mut full) = (0, 0);
        for number in 0..FILES_PER_PART_MAX as u64 {
            match noted.add(Ino(number * PARTS as u64), Moment(5), READS) {
                Filled::Little => assert_eq!((half, full), (0, 0)),
                Filled::Half => half += 1,
                Filled::Full(files) => full = files.len(),
            }
        }
        assert_eq!((half, full), (FILES_PER_PART_MAX - FILES_PER_PART_MANY, FILES_PER_PART_MAX));
        assert_eq!(noted.take_parts().map(|files| files.len()).sum::<usize>(), 0);
    }

    #[test]
    fn reads_of_a_file_add_up_until_they_are_taken() {
        let all = Noted::new();
        for now in [10, 20, 15] {
            all.add(Ino(7), Moment(now), READS);
        }
        let expected = noted(15, Reads { sequential: 9, random: 3 });
        assert_eq!((all.get(Ino(7)), all.take(Ino(7)), all.get(Ino(7))), (Some(expected), Some(expected), None));
    }

    #[test]
    fn a_read_noted_before_a_write_and_published_after_it_changes_no_moment() {
        let mut usage = Usage::created(Moment(10));
        usage.written(Moment(30), false);
        assert!(noted(20, READS).add_to(&mut usage, Moment(50)));
        assert_eq!((usage.last_access(), usage.last_write(), usage.reads()), (Moment(30), Moment(30), READS));
    }

    #[test]
    fn no_moment_is_in_the_future_after_the_clock_jumped_back() {
        let mut usage = Usage::created(Moment(1_000));
        assert!(noted(900, READS).add_to(&mut usage, Moment(500)));
        assert_eq!((usage.last_access(), usage.last_write()), (Moment(500), Moment(500)));
        // Also where nothing was read and the access itself is not new.
        let mut usage = Usage::created(Moment(1_000));
        assert!(noted(1_000, ACCESS).add_to(&mut usage, Moment(500)));
        assert_eq!((usage.last_access(), usage.last_write()), (Moment(500), Moment(500)));
    }

    #[test]
    fn an_access_alone_counts_once_an_hour_and_whenever_the_file_is_cold() {
        let known = Usage::created(Moment(10_000));
        let mut usage = known;
        assert!(!noted(13_599, ACCESS).add_to(&mut usage, Moment(20_000)));
        assert_eq!(usage, known);
        assert!(noted(13_600, ACCESS).add_to(&mut usage, Moment(20_000)));
        assert_eq!(usage.last_access(), Moment(13_600));
        usage.ranked(Rank::Cold);
        assert!(noted(13_601, ACCESS).add_to(&mut usage, Moment(20_000)));
        assert_eq!((usage.rank(), usage.last_access()), (Rank::New, Moment(13_601)));
    }
}
