//! Makes room for a writer on a full volume: a commit or a checkpoint makes freed blocks reusable.

use crate::Result;
use crate::volume::assembly::Volume;

impl Volume {
    /// See [`crate::Store::make_room`].
    pub fn make_room(&self) -> Result<bool> {
        let (before, _) = self.reusable();
        if self.base.space.is_host_short() {
            while self.free_blocks.punch_some() {}
        }
        let waits_for_trim = !self.base.state.lock().wait_for_trim.is_empty();
        if waits_for_trim {
            self.commits.checkpoint()?
        } else {
            self.commits.commit()?
        }
        self.groups.release_waiting();
        self.base.space.look_up_host();
        let (now, is_coming) = self.reusable();
        Ok(now > before || is_coming || self.base.signals.is_reclaiming())
    }

    /// Free blocks that can be handed out now, and whether more will follow.
    fn reusable(&self) -> (u64, bool) {
        let state = self.base.state.lock();
        let waiting = state.waiting.iter().flat_map(|waiting| &waiting.runs);
        let pending = waiting.chain(&state.group.freed).chain(&state.wait_for_trim).map(|run| run.blocks).sum::<u64>();
        ((state.totals.data - state.totals.used).0.saturating_sub(pending), pending > 0)
    }
}
