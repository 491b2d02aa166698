//! A run that was open at the end of a request: taken up by the file's next request, shared if that makes it long
//! enough, and left to the worker if the file does not go on.

use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::state::place::{Remap, Visit};
use crate::write::streams::{OPEN_BLOCKS_MAX, OpenBlock, Stream};
use crate::{Error, Lbn, MapId, Pbn, Result, Tag};

impl Core {
    /// What a file's last request left open, if this one goes on from there. Blocks that are not in memory any more
    /// are decided, and so are those before them: as the file does go on, the worker looks how far their run goes.
    pub fn take_stream(&self, map: MapId, at: Lbn) -> Stream {
        let mut stream = self.inline.streams.lock().take(map, at);
        let decided = stream.open.iter().rposition(|block| self.staging.get(block.pbn).is_none());
        if let Some(last) = decided {
            self.leave_to_worker(map, stream.open.drain(..=last).map(|block| block.lbn));
        }
        stream
    }

    /// Remembers a stream. What is too much for it is left to the worker, and so is what is forgotten for it.
    pub fn keep_stream(&self, map: MapId, mut stream: Stream) {
        let too_many = stream.open.len().saturating_sub(OPEN_BLOCKS_MAX);
        if too_many > 0 {
            self.leave_to_worker(map, stream.open.drain(..).map(|block| block.lbn));
        }
        let forgotten = self.inline.streams.lock().put(map, stream);
        if let Some((map, stream)) = forgotten.filter(|(_, stream)| !stream.open.is_empty()) {
            self.leave_to_worker(map, stream.open.iter().map(|block| block.lbn));
        }
    }

    /// Lets places that were open refer to the blocks that hold their content. A publication of its own, behind that of
    /// the request which made the run long enough: a crash between them leaves the copies. What cannot be shared any
    /// more stays as it is.
    pub fn share_open(&self, map: MapId, wanted: &[(OpenBlock, Pbn)]) -> Result<()> {
        let mut pbns: Vec<Pbn> = wanted.iter().flat_map(|(block, target)| [block.pbn, *target]).collect();
        pbns.sort_unstable();
        pbns.dedup();
        let entries = self.entries_at(&pbns)?;
        let live = |pbn: &Pbn, tag: Tag| entries.get(pbn).filter(|entry| entry.serves(tag)).copied();
        let remap = |(block, target): &(OpenBlock, Pbn)| {
            let entry = live(&block.pbn, block.tag)?;
            let of_target = live(target, block.tag)?;
            Some(Remap { visit: Visit { map, lbn: block.lbn, pbn: block.pbn, entry }, target: (*target, of_target) })
        };
        // A run may go on from where an open block is stored for now: that one is where it is to be.
        let moving = wanted.iter().filter(|(block, target)| block.pbn != *target);
        let confirmed = self.confirm_remaps(moving.filter_map(remap).collect());
        if confirmed.is_empty() {
            return Ok(());
        }
        let shared = match self.remap_portion(map, &confirmed) {
            // The file was deleted: its blocks are being freed as it is.
            Err(Error::MapDetached) => 0,
            shared => shared?,
        };
        self.stats.counters.blocks_shared.fetch_add(shared, Relaxed);
        Ok(())
    }
}
