//! Objects of a Ceph cluster: named bytes in a namespace of a pool, which the cluster replicates, repairs and spreads.
//!
//! librados is loaded at run time, so that programs without a cluster need neither the library nor its package. All of
//! its unsafe calls are in `library.rs`, `cluster.rs`, `context.rs`, `pool.rs`, `hold.rs` and `completion.rs`. Callers
//! use the trait [`Objects`], which a twin in memory has too.

mod access;
mod cluster;
mod completion;
mod context;
mod error;
mod hold;
mod keyring;
mod library;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod objects;
mod pool;
mod silence;

pub use access::Access;
pub use cluster::Cluster;
pub use error::{Error, Result};
pub use hold::{Hold, LOCK_OBJECT};
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryObjects;
pub use objects::{Change, Guard, Objects, Pending, Read, WhenFull};
pub use pool::Pool;
