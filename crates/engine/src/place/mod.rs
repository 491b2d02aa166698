//! Places for blocks: allocation, writing to the data area, and giving space back to the host.

pub mod free_blocks;
mod punch;
pub mod write_out;
