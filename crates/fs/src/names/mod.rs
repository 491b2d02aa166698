//! Names: lookup, listing, creation, removal and renaming.

pub mod create;
pub mod directory;
pub mod name_change;
pub mod name_table;
pub mod placement;
pub mod remove;
pub mod rename;
pub mod siphash;
pub mod used_places;
