//! The ranker's turn: the function that the worker calls to have files ranked by their use.

use crate::Result;

/// Ranks some files, or defragments a part of one. Gives how many blocks were written for that; None: nothing is due.
/// Called without any lock.
pub type RankTurn = Box<dyn Fn() -> Result<Option<u64>> + Send + Sync>;
