//! Rings: FUSE over io_uring. The kernel keeps a queue of requests for each CPU that the machine may have. Threads give
//! it entries, buffers for one request each. A reply and the wait for the next request are one system call.
//!
//! All rings exist before the reply to INIT: once the kernel knows of them, it holds requests back until every queue
//! has an entry.

pub(crate) mod buffers;
mod command;
mod entry;
pub(crate) mod plan;
pub(crate) mod serve;
pub(crate) mod slot;
pub(crate) mod spares;
