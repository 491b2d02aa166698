//! What reaches the parts of a volume: the steps of a recording.

use std::fmt;
use std::sync::Arc;

use oncefs_engine::kv::Put;

use crate::image::{Page, Part};

/// Pages of one write from page `first` on. None: zeros.
pub type Pages = Arc<[Option<Arc<Page>>]>;

/// What changed.
#[derive(Clone)]
pub enum Effect {
    /// Pages were written (or punched: then `is_punch`).
    Write {
        /// Where.
        part: Part,
        /// The first page.
        first: u64,
        /// What.
        pages: Pages,
        /// A hole was made.
        is_punch: bool,
    },
    /// Everything written to the device before is durable.
    Flush(Part),
    /// A device was enlarged.
    Grow(Part, u64),
    /// A batch reached the sorted state.
    Batch(Arc<Vec<Put>>),
    /// All batches before are durable.
    FlushRecords,
    /// The medium lost what a page of the data area held.
    Rot(u64),
    /// Nothing reached a device: a step of the program began or ended.
    Mark(&'static str),
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Effect::Write { first, pages, .. } => write!(f, "pages {first} to {}", first + pages.len() as u64 - 1),
            Effect::Grow(_, len) => write!(f, "{len} bytes"),
            Effect::Rot(page) => write!(f, "page {page}"),
            Effect::Batch(batch) => write!(f, "{} records", batch.len()),
            Effect::Flush(_) | Effect::FlushRecords | Effect::Mark(_) => Ok(()),
        }
    }
}
