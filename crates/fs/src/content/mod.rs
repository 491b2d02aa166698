//! The contents of files: reading, writing, allocating, truncating and copying them, and their layout.

pub mod allocate;
pub mod copy;
pub mod damaged_files;
pub mod layout;
pub mod read;
pub mod truncate;
pub mod write;
