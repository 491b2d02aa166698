//! The blocks that in-line deduplication left to the worker: in memory, and in a file across mounts.

pub mod file;
pub mod list;
