//! Inodes in memory: one for each number, locked together, numbered, and deleted once nobody uses them.

pub mod cache;
pub mod numbers;
pub mod orphans;
pub mod reclaim;
pub mod staged;
