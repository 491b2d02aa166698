//! Free space: how blocks are allocated, and how freed ones return.

pub mod allocator;
pub mod ballast;
pub mod bitmap;
pub mod data_area;
pub mod free_space;
pub mod host;
pub mod location;
pub mod pins;
