//! Bad blocks: found, isolated and repaired while the volume is in use.

pub mod affected_files;
pub mod lost_places;
pub mod repair;
pub mod replicas;
pub mod scrub;
