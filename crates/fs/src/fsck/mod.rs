//! The audit of names on a volume not in use, and the fixes for its faults.

pub mod audit;
pub mod fault;
pub mod fix;
pub mod fixer;
pub mod paths;

#[cfg(test)]
mod tests;
