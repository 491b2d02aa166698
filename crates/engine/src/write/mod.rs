//! The write path, from the request to its publication. `steps` holds the order.

pub mod admission;
pub mod backlog_notes;
pub mod batch;
pub mod confirm;
pub mod confirm_remaps;
pub mod decide;
pub mod extension;
pub mod free_detached_maps;
pub mod in_line_compression;
pub mod lazy_clone;
pub mod map_edit;
pub mod packed;
pub mod partial_blocks;
pub mod pieces;
pub mod place;
pub mod place_fragments;
pub mod publish;
pub mod publish_batch;
pub mod range;
pub mod range_parts;
pub mod range_room;
pub mod remap;
pub mod share_open;
pub mod spend_budget;
pub mod steps;
pub mod visit;
