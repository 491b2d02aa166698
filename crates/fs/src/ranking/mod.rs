//! Ranking: the queues of files, and the turns that give files their ranks.

pub mod follow_use;
pub mod places;
pub mod queues;
pub mod ranker;
pub mod state;

#[cfg(test)]
mod tests;
