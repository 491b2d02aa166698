//! Mounts oncefs through the kernel's FUSE: requests, replies and errno, the session, and kernel settings for a mount.

mod adapter;
mod caller;
mod convert;
mod errno;
mod init;
mod inode_counts;
mod kernel_cache;
mod privileges;
mod reply;
mod room_maker;
mod session;
mod tuning;

pub use adapter::{Adapter, AdapterConfig};
pub use kernel_cache::KernelCache;
pub use session::{MOUNT_TYPE, MountSpec, Session, SessionSpec, attach, open_device, remount, unmount};
pub use tuning::{BackingDevice, DirtyLimit, dirty_bytes_max};
