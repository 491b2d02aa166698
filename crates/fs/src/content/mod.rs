//! The contents of files: reading, writing, allocating, truncating, copying and cloning them, and their layout.

pub mod allocate;
pub mod clone;
pub mod copy;
pub mod damaged_files;
pub mod layout;
pub mod read;
pub mod truncate;
pub mod write;
