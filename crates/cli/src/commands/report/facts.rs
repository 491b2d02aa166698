//! Everything that the report tells.

use super::collect::Collected;
use super::partners::Sharing;
use crate::commands::stats::fragmentation::Fragmentation;
use crate::figures::history::Timeline;
use crate::figures::snapshot::Snapshot;

/// What was found of a mounted volume.
pub struct Facts<'a> {
    /// The volume's figures.
    pub snapshot: &'a Snapshot,
    /// How they changed.
    pub timeline: Timeline,
    /// What its files hold and share.
    pub collected: Collected,
    /// The files that share most.
    pub sharing: Vec<Sharing>,
    /// The runs of all files.
    pub fragmentation: Fragmentation,
    /// When, in seconds since 1970.
    pub seconds: u64,
}
