//! The write path, from the request to its publication. `steps` holds the order.

pub mod batch;
pub mod budget;
pub mod confirm;
pub mod decide;
pub mod extension;
pub mod hash;
pub mod inline;
pub mod partial_blocks;
pub mod pieces;
pub mod publish;
pub mod range;
pub mod range_parts;
pub mod range_room;
pub mod steps;
