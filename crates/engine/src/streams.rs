//! Runs that go on from one request of a file to the next (iDedup, section 3.4: a run is the file's, not the request's).
//!
//! The last blocks of a request may belong to a run that is too short so far. They are stored like small writes, in
//! memory, and what may hold them is remembered here. If the file's next request makes the run long enough, they become
//! references before they ever reach the device; if they were written out meanwhile, with a commit or for want of room,
//! they stay as they are, unless the worker finds that their run is long enough. Data that rides in the log is in
//! memory until it is placed, and open as long.
//!
//! Nothing here is durable: what is forgotten costs a duplicate.

use std::sync::atomic::Ordering::Relaxed;

use crate::core::Core;
use crate::revisit::{Remap, Visit};
use crate::{Error, Lbn, MapId, Pbn, Result, Tag};

/// Files that are remembered, at most: those written last.
const STREAMS_MAX: usize = 64;
/// Blocks that one file leaves open, at most: one request of 1 MiB.
pub const OPEN_BLOCKS_MAX: usize = 256;

/// A block whose run may go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBlock {
    /// Its place in the file.
    pub lbn: Lbn,
    /// Where it is stored for now.
    pub pbn: Pbn,
    /// Of its content.
    pub tag: Tag,
    /// What may hold its content, ascending.
    pub holders: Vec<Pbn>,
}

/// Where a file's last request ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The block behind it.
    pub next: Lbn,
    /// Its last blocks but for zeros, as far as their run may go on, ascending.
    pub open: Vec<OpenBlock>,
    /// The block that holds its last one, if that is shared.
    pub shared_end: Option<Pbn>,
}

impl Stream {
    /// Whether there is anything to go on with.
    fn is_worth_keeping(&self) -> bool {
        !self.open.is_empty() || self.shared_end.is_some()
    }
}

/// The streams of all files.
///
/// Invariants, asserted by [`Streams::check`]: (1) at most [`STREAMS_MAX`], one per file; (2) none has more than
/// [`OPEN_BLOCKS_MAX`] open blocks, and they lie before its end in ascending order.
#[derive(Debug, Default)]
pub struct Streams(Vec<(MapId, Stream)>);

impl Streams {
    /// Takes a file's stream out if it ends where a request begins. One that ends elsewhere is over.
    pub fn take(&mut self, map: MapId, at: Lbn) -> Stream {
        let found = self.0.iter().position(|(other, _)| *other == map).map(|index| self.0.remove(index).1);
        found.filter(|stream| stream.next == at).unwrap_or_default()
    }

    /// Remembers where a file's request ended. The file that was written least lately is forgotten for it, and given.
    pub fn put(&mut self, map: MapId, stream: Stream) -> Option<(MapId, Stream)> {
        self.0.retain(|(other, _)| *other != map);
        if !stream.is_worth_keeping() {
            return None;
        }
        let forgotten = (self.0.len() == STREAMS_MAX).then(|| self.0.remove(0));
        self.0.push((map, stream));
        self.check();
        forgotten
    }

    fn check(&self) {
        assert!(self.0.len() <= STREAMS_MAX, "invariant 1: {} streams", self.0.len());
        if let Some((map, stream)) = self.0.last() {
            let is_ascending = stream.open.is_sorted_by(|a, b| a.lbn < b.lbn);
            let is_before = stream.open.last().is_none_or(|last| last.lbn < stream.next);
            assert!(stream.open.len() <= OPEN_BLOCKS_MAX, "invariant 2: {} blocks of {map:?}", stream.open.len());
            assert!(is_ascending && is_before, "invariant 2: {map:?} {stream:?}");
        }
    }
}

impl Core {
    /// What a file's last request left open, if this one goes on from there. Blocks that are not in memory any more
    /// are decided, and so are those before them: as the file does go on, the worker looks how far their run goes.
    pub fn take_stream(&self, map: MapId, at: Lbn) -> Stream {
        let mut stream = self.streams.lock().take(map, at);
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
        let forgotten = self.streams.lock().put(map, stream);
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
        self.counters.blocks_shared.fetch_add(shared, Relaxed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(next: u64, open: u64) -> Stream {
        let block = |n| OpenBlock { lbn: Lbn(next - open + n), pbn: Pbn(100 + n), tag: Tag(n), holders: vec![Pbn(n)] };
        Stream { next: Lbn(next), open: (0..open).map(block).collect(), shared_end: None }
    }

    #[test]
    fn a_stream_goes_on_only_where_it_ended() {
        let mut streams = Streams::default();
        streams.put(MapId(1), stream(8, 2));
        streams.put(MapId(2), stream(9, 1));
        assert_eq!(streams.take(MapId(1), Lbn(8)), stream(8, 2));
        assert_eq!(streams.take(MapId(1), Lbn(8)), Stream::default(), "it was taken");
        assert_eq!(streams.take(MapId(2), Lbn(8)), Stream::default(), "it ends elsewhere");
        assert_eq!(streams.take(MapId(2), Lbn(9)), Stream::default(), "so it is over");
    }

    #[test]
    fn the_files_written_last_are_remembered() {
        let mut streams = Streams::default();
        for map in 0..STREAMS_MAX as u64 + 1 {
            streams.put(MapId(map), stream(8, 1));
        }
        assert_eq!(streams.take(MapId(0), Lbn(8)), Stream::default());
        assert_eq!(streams.take(MapId(1), Lbn(8)), stream(8, 1));
        streams.put(MapId(2), Stream::default());
        assert_eq!(streams.take(MapId(2), Lbn(8)), Stream::default(), "nothing is worth nothing");
    }
}
