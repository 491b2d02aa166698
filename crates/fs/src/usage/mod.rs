//! How files are used: reads and writes are noted, and published for ranking.

pub mod note_reads_and_writes;
pub mod publish_noted;
