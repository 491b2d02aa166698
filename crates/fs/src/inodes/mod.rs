//! Inodes: their numbers, the cache, several locked together, and their deletion once nothing uses them.

pub mod cache;
pub mod delete_orphans;
pub mod numbers;
pub mod orphans;
pub mod staged;
