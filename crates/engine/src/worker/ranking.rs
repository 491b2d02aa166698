//! What the engine does for whoever ranks files: the worker calls him when it has nothing else to do, and his
//! publications do not count as requests of programs. What a rank means is in `treatment`.

use oncefs_dedup::RankRule;

use crate::core::Core;
use crate::worker::rank_turn::RankTurn;
use crate::{Change, Result, Store};

impl Store {
    /// Has the worker call `turn` whenever nothing is left to look at and it may run, again and again while something is
    /// due. The first such call stays.
    pub fn rank_by(&self, turn: RankTurn) {
        // A second one would have to say what it wants of the first.
        let _ = self.core.worker.rank_turn.set(turn);
    }

    /// Whether files are ranked by their use.
    pub fn ranks_files(&self) -> bool {
        self.core.tuning.ranks_files()
    }

    /// How far the clock of ranks is ahead of the machine's.
    pub fn rank_clock_offset_seconds(&self) -> i64 {
        self.core.tuning.rank_clock_offset_seconds()
    }

    /// By which rule files are ranked.
    pub fn rank_rule(&self) -> RankRule {
        self.core.tuning.with(|settings| settings.rank_rule)
    }

    /// As [`Store::publish`], for a few records of work that nobody waits for: it is no request of a program.
    pub fn publish_in_background(&self, change: Change) -> Result<()> {
        self.core.publish(change)
    }
}

impl Core {
    /// One turn of whoever ranks files. None: nothing is due, or nobody does. Nothing is due on a host that is almost
    /// full: his records are some for each file of the volume, and one for which there is no room ends the mount.
    pub fn rank(&self) -> Result<Option<u64>> {
        let may_work = !self.signals.is_stopped() && !self.space.is_host_short();
        let Some(turn) = self.worker.rank_turn.get().filter(|_| may_work) else { return Ok(None) };
        self.health.usable()?;
        self.wait_for_background_room();
        turn()
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use crate::Blocks;
    use crate::space::free_space::HOST_MARGIN_BYTES;
    use crate::tests::fixture::{Devices, one_level};

    #[test]
    fn nothing_is_ranked_while_the_host_is_almost_full() {
        let core = Devices::new(Blocks(700), one_level()).open();
        assert_eq!(core.rank().unwrap(), None, "nobody ranks");
        assert!(core.worker.rank_turn.set(Box::new(|| Ok(Some(3)))).is_ok());
        for (host_bytes, blocks) in [(u64::MAX, Some(3)), (2 * HOST_MARGIN_BYTES - 1, None), (1 << 40, Some(3))] {
            core.space.set_host_bytes(host_bytes);
            assert_eq!(core.rank().unwrap(), blocks, "{host_bytes} bytes left");
        }
    }
}
