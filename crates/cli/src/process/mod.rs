//! The settings of an oncefs process: limits, signals, descriptors, memory, and fewer privileges.

pub mod confinement;
pub mod descriptors;
pub mod holders;
pub mod memory;
pub mod places;
pub mod privileges;
pub mod programs;
pub mod setup;
pub mod signals;
