//! Durability: the log makes groups durable, and checkpoints bring them to their place.

pub mod change_room;
pub mod checkpoint;
pub mod commit_group;
pub mod log;
pub mod log_room;
