//! Devices in objects of a cluster.

pub mod device;
pub mod epoch;
pub mod flights;
pub mod head;
pub mod held_lease;
pub mod lease;
pub mod room;
