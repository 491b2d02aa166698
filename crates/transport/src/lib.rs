//! FUSE between the kernel and a daemon, without any file system: the protocol as types, a session, and two ways for
//! the messages, rings (FUSE over io_uring) and classic reads and writes of `/dev/fuse`.
//!
//! A message from the kernel is bytes until [`Request::decode`] has accepted it. A [`Service`] gets only requests, each
//! with a [`Reply`] that may be given later and from any thread.

mod abort;
mod classic;
mod cpus;
mod device;
mod errno;
mod interrupts;
mod knob;
mod mount;
mod mount_id;
mod notifier;
pub mod protocol;
mod reply;
mod rings;
mod server;
mod service;
mod session;
mod waiting;
mod way;
mod workers;

pub use abort::AbortSwitch;
pub use device::open_device;
pub use errno::Errno;
pub use knob::{KnobLock, Knobs, PAGE_LIMIT};
pub use mount::{MountSpec, Mounted, attach, detach_own, open_own, remount, unmount, unmount_own};
pub use mount_id::MountId;
pub use notifier::Notifier;
pub use protocol::negotiation::Negotiation;
pub use protocol::request::{Protocol, Request};
pub use protocol::{flags, operation::Operation};
pub use reply::Reply;
pub use rings::buffers::ENTRY_OVERHEAD_BYTES;
pub use rings::plan::Plan;
pub use service::Service;
pub use session::{Session, Settings};
pub use waiting::{may_be_late, may_wait};
pub use way::{Transport, Way};
