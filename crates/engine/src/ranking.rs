//! What the engine does for whoever ranks files: the worker calls him when it has nothing else to do, and his
//! publications do not count as requests of programs. What a rank means is in `treatment`.

use oncefs_dedup::RankRule;

use crate::core::Core;
use crate::{Change, Result, Store};

/// Ranks some files, or lays out a part of one. Gives how many blocks were written for that; None: nothing is due.
/// Called without any lock.
pub type RankTurn = Box<dyn Fn() -> Result<Option<u64>> + Send + Sync>;

impl Store {
    /// Has the worker call `turn` whenever nothing is left to look at and it may run, again and again while something is
    /// due. The first such call stays.
    pub fn rank_by(&self, turn: RankTurn) {
        // A second one would have to say what it wants of the first.
        let _ = self.core.rank_turn.set(turn);
    }

    /// By which rule files are ranked.
    pub fn rank_rule(&self) -> RankRule {
        self.core.settings.lock().rank_rule
    }

    /// As [`Store::publish`], for a few records of work that nobody waits for: it is no request of a program.
    pub fn publish_in_background(&self, change: Change) -> Result<()> {
        self.core.publish(change)
    }
}

impl Core {
    /// One turn of whoever ranks files. None: nothing is due, or nobody does.
    pub fn rank(&self) -> Result<Option<u64>> {
        let Some(turn) = self.rank_turn.get().filter(|_| !self.signals.is_stopped()) else { return Ok(None) };
        self.usable()?;
        self.wait_for_background_room();
        turn()
    }
}
