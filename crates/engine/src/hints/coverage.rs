//! The known coverage of the hint store, and the progress of the scan that completes it.

use std::sync::atomic::Ordering::Relaxed;

use crate::stats::counters::Count;
use crate::sync::AtomicBool;

/// The known coverage of both levels together.
pub struct Coverage {
    /// Whether both levels together name every live block of the sample, as far as is known.
    is_complete: AtomicBool,
    /// Whether hints may have left memory since a scan named every live block there.
    left_memory: AtomicBool,
    /// Whether hints were lost, so that the block table must be scanned.
    scan_is_wanted: AtomicBool,
    /// Pages of the block table that the last scan has read.
    pages_done: Count,
    /// Pages that the running scan will read. 0: no scan is running.
    pages: Count,
}

impl Coverage {
    /// The coverage before any scan.
    pub fn new() -> Self {
        Self {
            is_complete: AtomicBool::new(false),
            left_memory: AtomicBool::new(true),
            scan_is_wanted: AtomicBool::new(false),
            pages_done: Count::new(0),
            pages: Count::new(0),
        }
    }

    /// Begins a scan of this many pages. It restores hints that left memory before. Hints that leave from here on are
    /// noted.
    pub fn begin_scan(&self, pages: u64) {
        assert!(pages > 0, "a block table of {pages} pages cannot be scanned");
        self.pages.store(pages, Relaxed);
        self.scan_is_wanted.store(false, Relaxed);
        self.left_memory.store(false, Relaxed);
        self.is_complete.store(true, Relaxed);
    }

    /// The scan has read the pages below this one.
    pub fn note_scanned(&self, page: u64) {
        self.pages_done.store(page, Relaxed);
    }

    /// Ends the scan, complete or not.
    pub fn end_scan(&self, is_whole: bool) {
        self.pages.store(0, Relaxed);
        if !is_whole {
            self.is_complete.store(false, Relaxed);
        }
    }

    /// Pages read by the running scan, and all that it reads. 0 of 0: no scan is running.
    pub fn scan_progress(&self) -> (u64, u64) {
        match self.pages.load(Relaxed) {
            0 => (0, 0),
            pages => (self.pages_done.load(Relaxed).min(pages), pages),
        }
    }

    /// Both levels name every live block of the sample.
    pub fn note_complete(&self) {
        self.is_complete.store(true, Relaxed);
    }

    /// The disk level can no longer be used.
    pub fn note_incomplete(&self) {
        self.is_complete.store(false, Relaxed);
    }

    /// Hints leave the memory level.
    pub fn note_left_memory(&self) {
        self.left_memory.store(true, Relaxed);
    }

    /// Learns that hints were lost, so that the block table must be scanned.
    pub fn want_scan(&self) {
        self.is_complete.store(false, Relaxed);
        self.scan_is_wanted.store(true, Relaxed);
    }

    /// Whether both levels together name every live block of the sample, as far as is known.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Relaxed)
    }

    /// Whether the memory level alone does. Never during a scan.
    pub fn is_all_in_memory(&self) -> bool {
        self.is_complete() && !self.left_memory.load(Relaxed) && self.pages.load(Relaxed) == 0
    }

    /// Whether the block table must be scanned.
    pub fn is_scan_wanted(&self) -> bool {
        self.scan_is_wanted.load(Relaxed)
    }

    /// Pages that scans have read since the last call.
    #[cfg(all(test, not(feature = "schedules")))]
    pub fn take_pages_scanned(&self) -> u64 {
        self.pages_done.swap(0, Relaxed)
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_memory_from_the_end_of_a_scan_until_a_hint_leaves() {
        let coverage = Coverage::new();
        assert!(!coverage.is_complete() && !coverage.is_all_in_memory(), "nothing was scanned");
        coverage.want_scan();
        assert!(coverage.is_scan_wanted());
        coverage.begin_scan(10);
        assert!(coverage.is_complete() && !coverage.is_all_in_memory() && !coverage.is_scan_wanted());
        coverage.note_scanned(4);
        assert_eq!(coverage.scan_progress(), (4, 10));
        coverage.end_scan(true);
        assert_eq!(coverage.scan_progress(), (0, 0));
        assert!(coverage.is_all_in_memory());
        coverage.note_left_memory();
        assert!(coverage.is_complete() && !coverage.is_all_in_memory());
    }

    #[test]
    fn a_scan_that_did_not_reach_the_end_leaves_the_levels_incomplete() {
        let coverage = Coverage::new();
        coverage.begin_scan(10);
        coverage.end_scan(false);
        assert!(!coverage.is_complete() && !coverage.is_scan_wanted());
    }
}
