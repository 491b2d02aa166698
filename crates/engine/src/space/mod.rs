//! Free space: who gets which blocks, and how freed ones come back.

pub mod allocate;
pub mod allocator;
pub mod data_area;
pub mod free_space;
pub mod pieces;
pub mod punch;
pub mod reclaim;
pub mod region;
