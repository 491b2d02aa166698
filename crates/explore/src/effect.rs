//! The effects on the parts of a volume: the steps of a recording.

use std::fmt;
use std::sync::Arc;

use oncefs_engine::kv::Put;

use crate::image::{Page, Part};

/// Pages of one write from page `first` on. None: zeros.
pub type Pages = Arc<[Option<Arc<Page>>]>;

/// A change.
#[derive(Clone)]
pub enum Effect {
    /// Pages were written (or punched: then `is_punch`).
    Write {
        /// The part.
        part: Part,
        /// The first page.
        first: u64,
        /// The pages.
        pages: Pages,
        /// The write made a hole.
        is_punch: bool,
    },
    /// Everything written before to the device is durable.
    Flush(Part),
    /// A device was enlarged.
    Grow(Part, u64),
    /// A batch reached the sorted state.
    Batch(Arc<Vec<Put>>),
    /// All batches before are durable.
    FlushRecords,
    /// An object with records was changed, as a whole.
    Keys {
        /// The object.
        object: Arc<str>,
        /// The number of the change.
        number: u64,
        /// The effect that it had on the sorted state, on the tape.
        puts: Arc<Vec<Put>>,
    },
    /// The changes of an object up to this number are durable.
    KeysDurable(Arc<str>, u64),
    /// The medium lost the content of a page of the data area.
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
            Effect::Keys { object, puts, .. } => write!(f, "{} keys of {object}", puts.len()),
            Effect::KeysDurable(object, _) => write!(f, "{object}"),
            Effect::Flush(_) | Effect::FlushRecords | Effect::Mark(_) => Ok(()),
        }
    }
}
