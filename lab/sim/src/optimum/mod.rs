//! What could be saved at best within the budgets of files: a slow reference.

mod choice;
mod files;

pub use files::most_saved;
pub(crate) use files::{Limits, saved_within};
