//! What a process of ours asks of the kernel for itself: limits, signals, descriptors, memory, and fewer rights.

pub mod confinement;
pub mod privileges;
pub mod setup;
