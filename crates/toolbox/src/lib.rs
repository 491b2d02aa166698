//! What every crate would otherwise write for itself: sizes, seeded choices, and tables as text.
//!
//! Stands below all other crates of the workspace and knows none of them.

pub mod random;
pub mod sizes;
pub mod table;

pub use random::Random;
pub use sizes::Size;
pub use table::{Column, Table};
