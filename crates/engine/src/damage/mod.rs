//! Bad blocks: found, isolated and repaired while the volume is in use.

pub mod affected_files;
pub mod bad_blocks;
pub mod notices;
pub mod repair;
pub mod replicas;
pub mod reports;
pub mod scrub;
pub mod scrub_progress;
pub mod table_damage;
