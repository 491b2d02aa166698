//! Estimates the saving of a volume for files that are not on one, with the product's own decisions.
//!
//! Owns the model of a volume ([`Estimator`]) and its result ([`Estimate`]). The caller chooses and reads the files,
//! and passes their blocks with tags, file by file. Two blocks with the same tag count as equal. Tags have 64 bits and
//! a key, so in 100 TiB some 16 of 27 billion blocks wrongly count as equal. `docs/estimate.md` says which results are
//! exact, and how large the error of the others is.

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
