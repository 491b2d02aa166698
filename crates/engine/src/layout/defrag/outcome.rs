//! What a defrag is asked for, and what became of the file.

use serde::{Deserialize, Serialize};

use crate::{Blocks, Lbn};

/// What is to be laid out again, and at what price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefragOptions {
    /// Where in the file to begin: at its start, or where the last call left off.
    pub from: Lbn,
    /// Runs of at least so many blocks stay where they are, shared or not; more than 1024 count as that. None: the
    /// shortest run that is shared as the file is written.
    pub run_blocks_min: Option<u32>,
    /// Blocks that may be newly taken because others keep the shared ones.
    pub space: Blocks,
    /// About how much of the file is planned, and done, with one call. None: 1 GiB.
    pub window: Option<Blocks>,
    /// Changes nothing and says what would be.
    pub dry_run: bool,
    /// The worker lays it out: it ends at a portion's end when a program calls for the machine, and `next` says where to
    /// go on.
    pub gives_way: bool,
}

/// Extents that could be fewer and are not, by why.
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
    /// Adds what another part of the file has left.
    pub fn add(&mut self, other: &Self) {
        self.space_limit += other.space_limit;
        self.no_free_run += other.no_free_run;
        self.changed += other.changed;
        self.damaged += other.damaged;
    }
}

/// What became of a file, or of a part of it. An extent is a stretch of the file that lies in one piece in the data
/// area; holes do not end it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DefragOutcome {
    /// Extents before.
    pub extents_before: u64,
    /// Extents afterwards, as found; with `dry_run`, as planned.
    pub extents_after: u64,
    /// Blocks written anew.
    pub blocks_moved: u64,
    /// Of them, those that others keep: what it cost.
    pub blocks_unshared: u64,
    /// What was not done.
    pub left: ExtentsLeft,
    /// The lbn where to go on; None: the file ends.
    pub next: Option<u64>,
}

impl DefragOutcome {
    /// Takes in what became of the next part of the same file, or of another file.
    pub fn add(&mut self, other: &Self) {
        self.extents_before += other.extents_before;
        self.extents_after += other.extents_after;
        self.blocks_moved += other.blocks_moved;
        self.blocks_unshared += other.blocks_unshared;
        self.left.add(&other.left);
        self.next = other.next;
    }
}
