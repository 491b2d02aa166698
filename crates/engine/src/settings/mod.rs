//! The settings of a mount, and the profiles' values.

pub(crate) mod copies;
pub(crate) mod profile;
pub(crate) mod sharing;
pub(crate) mod values;

pub use values::{check, current_name, descriptions, is_setting};
