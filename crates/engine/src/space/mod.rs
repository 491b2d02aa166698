//! Free space: how blocks are allocated, and how freed ones return.

pub mod allocator;
pub mod bitmap;
pub mod data_area;
pub mod free_blocks;
pub mod free_space;
pub mod location;
pub mod pins;
pub mod punch;
pub mod write_out;
