//! How each file is deduplicated, and the measurements that decide it.

pub mod account_from_map;
pub mod accounts;
pub mod device_reads;
pub mod effective;
pub mod inline;
pub mod policies;
pub mod read_around;
pub mod read_pattern;
pub mod recent_maps;
pub mod share_limit;
