//! Everything that the report shows.

use super::collect::Collected;
use super::partners::Sharing;
use crate::commands::stats::fragmentation::Fragmentation;
use crate::figures::history::Timeline;
use crate::figures::of_mount::Snapshot;

/// The facts about a mounted volume.
pub struct Facts<'a> {
    /// The volume's figures.
    pub snapshot: &'a Snapshot,
    /// The figures over time.
    pub timeline: Timeline,
    /// The data that its files hold and share.
    pub collected: Collected,
    /// The files that share most.
    pub sharing: Vec<Sharing>,
    /// The runs of all files.
    pub fragmentation: Fragmentation,
    /// The time of the report, in seconds since 1970.
    pub seconds: u64,
}
