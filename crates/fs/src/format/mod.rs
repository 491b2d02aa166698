//! The records of the file system in the store: one module for each structure, with its key, encoder and decoder.

pub(crate) mod acl;
pub(crate) mod codec;
pub(crate) mod dirent;
pub(crate) mod inode;
pub(crate) mod lease;
pub(crate) mod orphan;
pub(crate) mod placement;
pub(crate) mod queue;
pub(crate) mod ranking;
pub(crate) mod records;
pub(crate) mod symlink;
pub(crate) mod xattr;

pub use records::{proves_itself, recode};
