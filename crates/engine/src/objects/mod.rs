//! Devices in objects of a cluster.

pub mod announcer;
pub mod device;
pub mod epoch;
pub mod head;
pub mod held_lease;
pub mod in_flight;
pub mod lease;
pub mod pool_room;
pub mod pool_room_watch;
pub mod pool_rooms;
mod taken_bytes;
