//! Plants known bugs in a copy of the sources. A bug names its place by a function and by lines that stand there once,
//! so it still applies when code around it moves or changes.
//!
//! `plant.rs` reads and applies a file of a bug, `edit.rs` replaces lines, `items.rs` finds functions, `blank.rs` tells
//! code from comments and literals.

mod blank;
mod edit;
mod items;
mod plant;

pub use edit::Edit;
pub use plant::Plant;
