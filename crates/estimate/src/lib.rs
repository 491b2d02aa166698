//! What a volume would save on files that are not on one, by the product's own decisions.
//!
//! Owns the model of a volume ([`Estimator`]) and what comes of it ([`Estimate`]). Blocks come with their tags, file by
//! file; which files, and how they are read, others know. Two blocks with the same tag count as equal: tags have 64 bits
//! and a key, so in 100 TiB some 16 of 27 billion blocks are taken for equal that are not. `docs/estimate.md` says what is
//! exact, and how large the error is elsewhere.

mod compression;
mod contents;
mod estimate;
mod estimator;
mod file_shares;
mod hint_memory;
mod model;
mod run_lengths;

pub use estimate::{Compressed, Duplicates, Estimate, FilesShare, Found, HintMemory, ProfileSaving, Read, RunClass};
pub use estimator::{Estimator, Options};
pub use model::Rule;
