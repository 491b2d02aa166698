//! Ranks: which files get one next, and what a rank requires.

pub mod queues;
pub mod ranker;

#[cfg(test)]
mod tests;
