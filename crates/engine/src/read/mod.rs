//! The way of a read: map, runs, memory or device. `steps` holds the order.

pub mod cache;
pub mod steps;
