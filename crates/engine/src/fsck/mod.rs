//! The audit of a volume that nobody uses, and what it mends.

pub mod audit;
pub mod check;
pub mod fix;
pub mod sort;
