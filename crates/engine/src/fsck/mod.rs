//! The audit of a volume that is not in use, and the repair of the faults found.

pub mod audit;
pub mod check;
pub mod fix;
pub mod lost_content;
pub mod parts;
pub mod sort;
