//! The audit of names at rest, and the fixes for what it finds.

pub mod audit;
pub mod fault;
pub mod fix;
pub mod fixer;
pub mod paths;

#[cfg(test)]
mod tests;
