//! The known damage of an open volume: bad blocks, damaged pages of the block table, and the scrub's progress.

pub mod bad_blocks;
pub mod found_places;
pub mod notices;
pub mod scrub_progress;
pub mod table_damage;
