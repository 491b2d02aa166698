//! Devices in objects of a cluster.

pub mod device;
pub mod flights;
pub mod room;
