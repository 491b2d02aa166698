//! Mounts oncefs through the kernel's FUSE: requests, replies and errno, the session, and kernel settings for a mount.

mod adapter;
mod caller;
mod convert;
mod durable;
mod errno;
mod file_flags;
mod init;
mod inode_counts;
mod kernel_cache;
mod mount_flags;
mod patience;
mod privileges;
mod reply;
mod request_memory;
mod room_maker;
mod room_watch;
mod session;
mod shutdown;
mod synchronous;
mod tuning;

pub use adapter::{Adapter, AdapterConfig};
pub use kernel_cache::KernelCache;
pub use mount_flags::MountFlags;
pub use oncefs_transport::{
    AbortSwitch, KnobLock, MountId, MountSpec, Mounted, Plan, Settings, Transport, attach, detach_own, open_device,
    open_own, remount, unmount, unmount_own,
};
pub use patience::Patience;
pub use request_memory::most_bytes;
pub use room_watch::{RoomGauge, RoomLeft, RoomWatch, Watched};
pub use session::{HeldMount, MOUNT_TYPE, Session, SessionSpec};
pub use shutdown::{Gate, MayAnswer, ShutDown, ShutdownMode};
pub use synchronous::set_synchronous;
pub use tuning::{BackingDevice, dirty_bytes_max};
