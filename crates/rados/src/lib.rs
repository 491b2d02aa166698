//! Objects of a Ceph cluster: named bytes in a namespace of a pool, which the cluster replicates, repairs and spreads.
//!
//! librados is loaded at run time, so that programs without a cluster need neither the library nor its package. All of
//! its unsafe calls are in `library.rs`, `cluster.rs`, `context.rs`, `pool.rs`, `pool_keys.rs`,
//! `key_lists.rs`, `hold.rs` and `completion.rs`. Callers use the traits [`Objects`] and [`KeyedObjects`], which a twin in memory has too.

mod access;
mod cluster;
mod completion;
mod context;
mod error;
mod hold;
mod key_change;
mod key_lists;
mod key_text;
mod keyring;
mod keys;
mod library;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod objects;
mod pool;
mod pool_keys;
mod silence;

pub use access::Access;
pub use cluster::Cluster;
pub use error::{Error, Result};
pub use hold::{Hold, LOCK_OBJECT};
pub use key_change::KeyChange;
pub use keys::{KeyLookUp, KeyScan, KeyedObjects, Pair, Portion, SCANNED_KEYS_MAX};
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryObjects;
pub use objects::{Change, Guard, Objects, Pending, Read, WhenFull};
pub use pool::Pool;
