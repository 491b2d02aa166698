//! Ranks: which files get one next, and what a rank requires.

pub mod follow_use;
pub mod places;
pub mod queues;
pub mod ranker;
pub mod state;

#[cfg(test)]
mod tests;
