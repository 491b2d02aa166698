//! Which blocks may hold a content: the two levels of the hint store and the scan that fills them.

pub mod coverage;
pub mod disk_level;
pub mod file;
pub mod levels;
pub mod scan;
pub mod store;
