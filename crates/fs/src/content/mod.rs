//! The contents of files: reading, writing, truncating, copying, and how they lie in the data area.

pub mod allocate;
pub mod copy;
pub mod damaged_files;
pub mod edit;
pub mod layout;
pub mod map;
pub mod read;
pub mod truncate;
pub mod write;
