//! The way of a read: map, runs, memory or device. `steps` holds the order.

pub mod cache;
pub mod checked;
mod parts;
pub mod steps;
mod stored;
