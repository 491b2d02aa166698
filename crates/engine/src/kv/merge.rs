//! Gives the files that RocksDB merges their copies before the merge counts.
//!
//! A checkpoint trims the log only after all live files have their copies. If merged files got theirs only when they are
//! live, the checkpoint, and each fsync that waits for room in the log, would wait for gigabytes after a large merge. So
//! the copying is a part of the merge: RocksDB's own thread does it, after it has written and synced the last file and
//! before it names any of them in its manifest.
//!
//! RocksDB's C interface tells of no merge except through a compaction filter. It makes one when a merge begins, and
//! drops it at that point of the merge, with none of its locks held (`CompactionJob::ProcessKeyValueCompaction`). The
//! filter keeps every record.
//!
//! A crash before the merge counts leaves the old files with their copies and their list. RocksDB deletes the files that
//! its manifest does not name, and the next list removes the copies. A crash after it and before the next list leaves
//! the old list, which leads to all records, and merged files that are copied again.

use std::ffi::CStr;
use std::sync::Arc;

use rocksdb::Options;
use rocksdb::compaction_filter::{CompactionFilter, Decision};
use rocksdb::compaction_filter_factory::{CompactionFilterContext, CompactionFilterFactory};

use super::files;
use super::paths::Place;
use super::unlisted_copies::Ahead;

const NAME: &CStr = c"oncefs-copies-of-merges";

/// Makes each merge of a store with these options copy its files before it counts.
pub fn copy_before_it_counts(options: &mut Options, place: &Place, ahead: &Arc<Ahead>) {
    options.set_compaction_filter_factory(Merges { place: place.clone(), ahead: ahead.clone() });
    // With a filter, RocksDB would rewrite every file after 30 days, for filters that remove old records.
    options.set_periodic_compaction_seconds(0);
}

struct Merges {
    place: Place,
    ahead: Arc<Ahead>,
}

impl CompactionFilterFactory for Merges {
    type Filter = Merge;

    fn create(&mut self, _: CompactionFilterContext) -> Merge {
        // RocksDB numbers its files upwards, so the merge's own come after all that are there.
        let last = files::tables_in(&self.place.records).last().map_or(0, |(number, _)| *number);
        Merge { from: last + 1, ahead: self.ahead.clone() }
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

/// A merge under way.
struct Merge {
    /// The lowest number that its files may have.
    from: u64,
    ahead: Arc<Ahead>,
}

impl CompactionFilter for Merge {
    fn filter(&mut self, _: u32, _: &[u8], _: &[u8]) -> Decision {
        Decision::Keep
    }

    fn name(&self) -> &CStr {
        NAME
    }
}

impl Drop for Merge {
    fn drop(&mut self) {
        self.ahead.copy_from(self.from);
    }
}

#[cfg(test)]
mod tests;
