//! What the sources of a checkout are like as a whole: who imports whom, how large parts are, what is asserted.
//!
//! `tidy` holds the sources to limits by it, and `scripts/structure` prints it, for older revisions as well. It reads
//! text and needs nothing but the standard library, so that the script can compile it alone.

#![allow(dead_code, reason = "the tests and the script use some of it each")]

pub mod circles;
pub mod code;
pub mod counts;
pub mod crate_sources;
pub mod imports;
pub mod module_tree;

#[cfg(test)]
mod tests;
