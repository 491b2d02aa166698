//! The engine's part in ranking files: the worker calls the ranker when it has no other work, and the ranker's calls do
//! not count as requests of programs. The effective policy of a file follows from its rank.

use crate::Result;
use crate::base::part;
use crate::commit::change_room::ChangeRoom;

part! {
    /// Gives the ranker its turns.
    pub struct FileRanker {
        base: foreground, signals, space, worker;
        change_room: ChangeRoom
    }
}

impl FileRanker {
    /// One turn of the ranker. None: nothing is due, or there is no ranker. Nothing is due on a host that is almost
    /// full: the ranker writes records for each file of the volume, and a record without room ends the mount.
    pub fn rank(&self) -> Result<Option<u64>> {
        let may_work = !self.signals.is_stopped() && !self.space.is_host_short();
        let Some(turn) = self.worker.rank_turn().filter(|_| may_work) else { return Ok(None) };
        self.change_room.usable()?;
        self.change_room.wait_for_background_room();
        self.foreground.aside(turn)
    }
}

#[cfg(test)]
#[cfg(not(feature = "schedules"))]
mod tests {
    use crate::Blocks;
    use crate::space::host::HOST_MARGIN_BYTES;
    use crate::tests::fixture::{Devices, one_level};

    #[test]
    fn nothing_is_ranked_while_the_host_is_almost_full() {
        let volume = Devices::new(Blocks(700), one_level()).open();
        assert_eq!(volume.file_ranker.rank().unwrap(), None, "nobody ranks");
        assert!(volume.base.worker.rank_by(Box::new(|| Ok(Some(3)))));
        for (host_bytes, blocks) in [(u64::MAX, Some(3)), (2 * HOST_MARGIN_BYTES - 1, None), (1 << 40, Some(3))] {
            volume.base.space.set_host_bytes(host_bytes);
            assert_eq!(volume.file_ranker.rank().unwrap(), blocks, "{host_bytes} bytes left");
        }
    }
}
