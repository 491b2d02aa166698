//! What every crate would otherwise write for itself: sizes, seeded choices, tables as text, and for tests how much they
//! do, how they wait and what memory a piece of work takes.
//!
//! Stands below all other crates of the workspace and knows none of them.

pub mod counts;
pub mod memory;
pub mod random;
pub mod sizes;
pub mod table;
pub mod waiting;

pub use random::Random;
pub use sizes::Size;
pub use table::{Column, Table};
