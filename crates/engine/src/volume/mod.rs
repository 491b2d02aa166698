//! A volume's files on the host: created, opened, recovered, and owned by one mount.

pub mod ballast;
pub mod cut_log;
pub mod data_device;
pub mod files;
pub mod grow;
pub mod health;
pub mod history;
pub mod hold;
pub mod host;
pub mod medium;
pub mod memory_budget;
pub mod open;
pub mod ownership;
pub mod recover;
pub mod superblock_file;
pub mod unfinished;
