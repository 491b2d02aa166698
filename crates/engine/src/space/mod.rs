//! Free space: who gets which blocks, and how freed ones come back.

pub mod allocator;
pub mod bitmap;
pub mod claim;
pub mod data_area;
pub mod free_space;
pub mod punch;
pub mod reclaim;
