//! The request of a defrag, and its result for the file.

use serde::{Deserialize, Serialize};

use crate::{Blocks, Lbn};

/// The part of a file to defragment, and the allowed cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragOptions {
    /// Where to begin in the file: at its start, or where the last call stopped.
    pub from: Lbn,
    /// Runs of at least this many blocks stay where they are, shared or not. Values above 1024 count as 1024. None: the
    /// shortest run that is shared as the file is written.
    pub run_blocks_min: Option<u32>,
    /// New blocks that may be taken because other references keep the shared ones.
    pub space: Blocks,
    /// About how much of the file one call plans and moves. None: 1 GiB.
    pub window: Option<Blocks>,
    /// Changes nothing and returns the result that a real run would have.
    pub dry_run: bool,
    /// The worker defragments the file: it stops after a portion when a program makes requests, and `next` says where
    /// to continue.
    pub gives_way: bool,
}

/// Extents that could be fewer but are not, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentsLeft {
    /// They are shared, and more space would have to be allowed.
    pub space_limit: u64,
    /// The volume is too full, or has no free run that is long enough.
    pub no_free_run: u64,
    /// They were written meanwhile.
    pub changed: u64,
    /// A block of them is damaged or cannot be read.
    pub damaged: u64,
}

impl ExtentsLeft {
    /// Adds the extents left in another part of the file.
    pub fn add(&mut self, other: &Self) {
        self.space_limit += other.space_limit;
        self.no_free_run += other.no_free_run;
        self.changed += other.changed;
        self.damaged += other.damaged;
    }
}

/// The result for a file, or for a part of it. An extent is a range of the file that lies in one piece in the data
/// area. Holes do not end it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragOutcome {
    /// Extents before.
    pub extents_before: u64,
    /// Extents afterwards, as found; with `dry_run`, as planned.
    pub extents_after: u64,
    /// Blocks that were rewritten.
    pub blocks_moved: u64,
    /// Blocks among these that other references keep: the cost.
    pub blocks_unshared: u64,
    /// Extents that were left, by reason.
    pub left: ExtentsLeft,
    /// The lbn at which to continue. None: the file ends.
    pub next: Option<u64>,
}

impl DefragOutcome {
    /// Adds the result for the next part of the same file, or for another file.
    pub fn add(&mut self, other: &Self) {
        self.extents_before += other.extents_before;
        self.extents_after += other.extents_after;
        self.blocks_moved += other.blocks_moved;
        self.blocks_unshared += other.blocks_unshared;
        self.left.add(&other.left);
        self.next = other.next;
    }
}
