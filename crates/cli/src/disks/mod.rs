//! Disks in a volume: files below `.oncefs/disks` that a block device shows, for another file system on top.
//!
//! A file system on a disk answers small operations in the kernel, and the volume stores each of its blocks once. The
//! commands set up the devices; the confined daemon never does.

mod bounded_loop;
pub mod dead;
mod file_system_size;
mod folder;
mod front;
mod grace_periods;
mod kinds;
mod loop_devices;
mod name;
pub mod of_mount;
pub mod standstill;
pub mod ublk;

pub use file_system_size::{Content, content};
pub use folder::{Disk, Folder};
pub use front::{Access, lock};
pub use kinds::{Kind, devices_of, front_of, may_end, mounted_at, shown_disk, shows};
pub use name::{DiskName, DiskOrSnapshot};

/// Bytes in a sector of a disk: a block of the volume, so that no write of a sector has to read first.
pub const SECTOR_BYTES: u64 = 4096;
