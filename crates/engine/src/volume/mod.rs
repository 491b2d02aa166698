//! A volume's files on the host: created, opened, recovered, and owned by one mount.

pub mod assembly;
pub mod backend;
pub mod clean_unmount;
pub mod cluster_superblock;
pub mod cut_log;
pub mod data_device;
mod device_claims;
pub mod exclusive_lock;
pub mod files;
pub mod grow;
pub mod head_watch;
pub mod held_objects;
pub mod make_room;
pub mod memory_budget;
pub mod object_parts;
pub mod open;
pub mod ownership;
pub mod recover;
pub mod report;
pub mod salvage;
pub mod seal;
#[cfg(any(test, feature = "testing"))]
pub mod steps;
pub mod superblock_file;
pub mod unfinished;
