//! Names: looking them up, listing, adding, removing and renaming them.

pub mod create;
pub mod directory;
pub mod name_change;
pub mod remove;
pub mod rename;
pub mod seed;
