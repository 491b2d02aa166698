//! What the sources of a checkout are like as a whole: who imports whom, and how large parts are.

pub mod base_parts;
pub mod circles;
pub mod code;
pub mod counts;
pub mod crate_sources;
pub mod imports;
pub mod module_tree;

#[cfg(test)]
mod tests;
