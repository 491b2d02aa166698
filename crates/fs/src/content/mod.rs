//! The contents of files: reading, writing, truncating, copying, and how they lie in the data area.

pub mod copy;
pub mod damaged_files;
pub mod data;
pub mod explain;
