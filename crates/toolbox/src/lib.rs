//! Code that every crate would otherwise repeat: sizes, seeded choices, tables as text, and for tests their counts,
//! their waiting and the memory that work takes.
//!
//! Depends on no other crate of the workspace.

pub mod counts;
pub mod memory;
pub mod random;
pub mod sizes;
pub mod table;
pub mod waiting;

pub use random::Random;
pub use sizes::Size;
pub use table::{Column, Table};
