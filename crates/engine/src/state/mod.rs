//! What is published: everything that the publish lock protects, and what readers pin.

pub mod group;
pub mod map_locks;
pub mod page_loading;
pub mod pins;
pub mod published;
pub mod record_read;
pub mod records;
pub mod releases;
pub mod shards;
pub mod staging;
pub mod stored;
pub mod table;
