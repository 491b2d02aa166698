//! What a process of ours asks of the kernel for itself: limits, signals, descriptors, memory, and fewer rights.

pub mod confinement;
pub mod descriptors;
pub mod memory;
pub mod privileges;
pub mod setup;
pub mod signals;
