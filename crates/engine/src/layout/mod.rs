//! How files lie in the data area: shown, explained and laid out anew.

pub mod defrag;
pub mod explain;
pub mod explanation;
pub mod fragmentation;
pub mod portion_size;
pub mod referrers;
