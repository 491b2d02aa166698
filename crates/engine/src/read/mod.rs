//! The read path: map, runs, memory or device. `steps` holds the order.

mod around;
pub mod cache;
pub mod checked;
pub mod damage_reports;
pub mod device;
pub mod fragments;
pub mod host_cache;
mod lazy_memory;
pub mod parts;
pub mod replicas;
pub mod steps;
pub mod stored;
mod table_pages;
