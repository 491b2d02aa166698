//! The mount table, mount options, and the process that mounts for the daemon.

pub mod cluster_name;
pub mod fstab;
pub mod guard;
pub mod hidden;
pub mod key_file;
pub mod mount_table;
pub mod mounter;
pub mod namespaces;
pub mod options;
