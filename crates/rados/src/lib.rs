//! Objects of a Ceph cluster: named bytes in a namespace of a pool, which the cluster replicates, repairs and spreads.
//!
//! librados is loaded at run time, so that programs without a cluster need neither the library nor its package. All of
//! its unsafe calls are in `librados.rs`, `cluster.rs`, `io_context.rs`, `pool.rs`, `pool_keys.rs`, `key_lists.rs`,
//! `lock_and_fence.rs`, `lockers.rs`, `standbys.rs`, `monitor_command.rs` and `completion.rs`. Callers use the traits
//! [`Objects`], [`KeyedObjects`] and [`Standbys`], which a twin in memory has too.

mod address;
mod cluster;
mod completion;
mod error;
mod io_context;
mod key_change;
mod key_lists;
mod key_text;
mod keyring;
mod keys;
mod librados;
mod lock_and_fence;
mod lockers;
#[cfg(any(test, feature = "testing"))]
mod memory;
mod monitor_command;
mod objects;
mod pool;
mod pool_keys;
mod pool_kind;
mod pool_space;
mod silence;
mod standbys;

pub use address::Access;
pub use cluster::{Cluster, host_name};
pub use error::{Error, Result};
pub use key_change::KeyChange;
pub use keys::{KeyLookUp, KeyScan, KeyedObjects, Pair, Portion, SCANNED_KEYS_MAX};
pub use lock_and_fence::Hold;
pub use lockers::LOCK_OBJECT;
#[cfg(any(test, feature = "testing"))]
pub use memory::MemoryObjects;
pub use objects::{Change, Guard, Objects, Pending, Read, WhenFull};
pub use pool::Pool;
pub use pool_kind::PoolKind;
pub use pool_space::PoolSpace;
pub use silence::Waits;
pub use standbys::Standbys;
