//! Mounts oncefs through the kernel: see the crate description.

mod adapter;
mod convert;
mod errno;
mod inode_counts;
mod kernel_cache;
mod session;
mod tuning;

pub use adapter::{Adapter, AdapterConfig};
pub use kernel_cache::KernelCache;
pub use session::{MOUNT_TYPE, MountSpec, Session, detach, remount, unmount};
pub use tuning::{BackingDevice, DirtyLimit, dirty_bytes_max};
