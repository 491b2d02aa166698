//! The engine's part in ranking files: the worker calls the ranker when it has no other work, and the ranker's calls do
//! not count as requests of programs. The effective policy of a file follows from its rank.

use oncefs_dedup::RankRule;

use crate::core::Core;
use crate::{Change, RankTurn, Result, Store};

impl Store {
    /// Makes the worker call `turn` while it has no other work and may run, repeatedly while anything is due. The first
    /// `turn` stays; later ones are ignored.
    pub fn rank_by(&self, turn: RankTurn) {
        self.core.worker.rank_by(turn);
    }

    /// The rule by which files are ranked.
    pub fn rank_rule(&self) -> RankRule {
        self.core.tuning.with(|settings| settings.rank_rule)
    }

    /// Like [`Store::publish`], for a few records of background work: it does not count as a request of a program, and
    /// does not wait for room.
    ///
    /// # Errors
    ///
    /// As [`Store::publish`].
    pub fn publish_in_background(&self, change: Change) -> Result<()> {
        self.core.publish(change)
    }
}

impl Core {
    /// One turn of the ranker. None: nothing is due, or there is no ranker. Nothing is due on a host that is almost
    /// full: the ranker writes records for each file of the volume, and a record without room ends the mount.
    pub fn rank(&self) -> Result<Option<u64>> {
        let may_work = !self.signals.is_stopped() && !self.space.is_host_short();
        let Some(turn) = self.worker.rank_turn().filter(|_| may_work) else { return Ok(None) };
        self.health.usable()?;
        self.wait_for_background_room();
        self.foreground.aside(turn)
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
        assert!(core.worker.rank_by(Box::new(|| Ok(Some(3)))));
        for (host_bytes, blocks) in [(u64::MAX, Some(3)), (2 * HOST_MARGIN_BYTES - 1, None), (1 << 40, Some(3))] {
            core.space.set_host_bytes(host_bytes);
            assert_eq!(core.rank().unwrap(), blocks, "{host_bytes} bytes left");
        }
    }
}
