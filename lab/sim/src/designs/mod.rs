//! The designs that are compared: oncefs, and baselines from the literature.

mod caftl;
mod design;
mod dmdedup;
mod full;
mod inline;
mod lru;
mod none;
mod oncefs;

pub use caftl::{Caftl, CaftlOptions};
pub use design::{Design, Outcome};
pub use dmdedup::{DmdedupTree, dmdedup_in_memory};
pub use full::Full;
pub use inline::Inline;
pub use lru::{FINGERPRINT_BYTES, LruIndex};
pub use none::NoIndex;
pub(crate) use oncefs::REFS_FREE_MIN;
pub use oncefs::{Oncefs, OncefsOptions, Threshold, with_skipped_buffer};
