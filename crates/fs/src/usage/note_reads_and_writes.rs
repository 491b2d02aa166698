//! The I/O monitor: notes how programs read and write files, for their ranks (the paper Selective, sections 4.1 and 4.2.1).
//!
//! Owns the noted reads until they are published, the effect of a change of content on a file's usage, and the clock of
//! ranks. `publish_noted` publishes, `ranking` gives ranks, and `dedup` has the arithmetic of usage. The engine counts
//! reads by itself, for the rule of the shortest run (`policy/read_pattern.rs`).
//!
//! A change of content is part of the inode record that is published with it anyway. Reads publish nothing by
//! themselves: they are noted in memory, at most 4 MB for all files and handles, and published in batches. The monitor
//! does nothing where files are not ranked, and on a read-only mount.
//!
//! Lock order: the locks of this folder are the innermost.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use oncefs_engine::sync::{LockRank, Mutex, MutexGuard};
use oncefs_engine::{BLOCK_BYTES, Moment, Rank, ReadPosition, Reads, Store, Usage};

use crate::{Clock, Error, Ino, Result};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Bound on the memory of the monitor.
const BYTES_MAX: usize = 4 << 20;
const _: () = assert!(NOTED_BYTES_MAX + POSITIONS_BYTES_MAX <= BYTES_MAX, "the parts exceed the whole");

/// Notes how the files of a mount are used.
pub(crate) struct Monitor {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    read_only: bool,
    noted: Noted,
    positions: Positions,
    publisher: Publisher,
}

impl Monitor {
    pub(crate) fn new(store: Arc<Store>, clock: Arc<dyn Clock>, read_only: bool) -> Self {
        let (noted, positions, publisher) = (Noted::new(), Positions::default(), Publisher::default());
        Self { store, clock, read_only, noted, positions, publisher }
    }

    /// Whether the monitor notes anything.
    fn is_on(&self) -> bool {
        !self.read_only && self.store.ranks_files()
    }

    /// The present moment of the clock of ranks: seconds since 1970 plus the setting `rank_clock_offset`, clamped to the
    /// range of [`Moment`], which ends in 2106.
    ///
    /// Ranks do not use the times that `stat` shows, because programs can set those and noatime does not update them.
    /// Only reads and writes take moments from this clock. The clock may jump either way, with the machine's clock or
    /// with the setting. A moment that is then in the future is set to now when it is next looked at (`Usage::clamp`).
    pub(crate) fn now(&self) -> Moment {
        moment(self.clock.now().seconds, self.store.rank_clock_offset_seconds())
    }

    /// The usage of a new file.
    pub(crate) fn usage_of_new(&self) -> Usage {
        if self.is_on() { Usage::created(self.now()) } else { Usage::default() }
    }

    /// Notes a change of content in the usage that is published with it.
    pub(crate) fn note_written(&self, usage: &mut Usage, is_rewrite: bool) {
        if self.is_on() {
            usage.written(self.now(), is_rewrite);
        }
    }

    /// A handle that this mount has not given out before.
    pub(super) fn new_handle(&self) -> Handle {
        self.positions.new_handle()
    }

    /// Notes that a handle read a range of bytes. The caller must publish the returned files, as in [`Monitor::note`].
    pub(crate) fn note_read(&self, handle: Handle, ino: Ino, bytes: Range<u64>) -> Option<Files> {
        if !self.is_on() || bytes.is_empty() {
            return None;
        }
        let (first, blocks) = blocks_of(bytes);
        self.note(ino, self.positions.read(handle, first, blocks))
    }

    /// Notes an access to a file, and the blocks that it read. Returns earlier notes if their memory is full because
    /// the publishing thread cannot keep up. The reader must publish them, which slows it down.
    pub(super) fn note(&self, ino: Ino, reads: Reads) -> Option<Files> {
        if !self.is_on() {
            return None;
        }
        match self.noted.add(ino, self.now(), reads) {
            Filled::Little => self.publisher.ask(Due::Soon),
            Filled::Half => self.publisher.ask(Due::Now),
            Filled::Full(files) => return Some(files),
        }
        None
    }

    /// Adds the noted reads of a file to a copy of its usage. They stay noted.
    pub(crate) fn add_noted(&self, ino: Ino, usage: &mut Usage) {
        if let Some(noted) = self.noted.get(ino) {
            noted.add_to(usage, self.now());
        }
    }

    /// Moves the noted reads of a file into its usage, which is about to be published.
    pub(crate) fn publish_along(&self, ino: Ino, usage: &mut Usage) {
        if let Some(noted) = self.noted.take(ino) {
            noted.add_to(usage, self.now());
        }
    }

    /// Takes out all noted reads to publish them, one part at each step of the iterator.
    pub(super) fn take_noted(&self) -> impl Iterator<Item = Files> {
        self.publisher.begins();
        self.noted.take_parts()
    }

    /// Starts the thread that publishes. Called once, when the file system is opened.
    pub(super) fn start_publishing(&self, publish: Publish) -> Result<()> {
        self.publisher.start(publish)
    }

    /// Ends the thread after the publication under way.
    pub(super) fn end_publishing(&self) {
        self.publisher.end();
    }
}

/// The nearest representable moment: they begin in 1970 and end in 2106.
fn moment(seconds: i64, offset_seconds: i64) -> Moment {
    let seconds = seconds.saturating_add(offset_seconds).max(0);
    Moment(u32::try_from(seconds).unwrap_or(u32::MAX))
}

/// The number of the first block that a range of bytes touches, and how many blocks it touches.
fn blocks_of(bytes: Range<u64>) -> (u64, u32) {
    debug_assert!(bytes.start < bytes.end, "the range from {} to {} is empty", bytes.start, bytes.end);
    let first = bytes.start / BLOCK;
    (first, u32::try_from(bytes.end.div_ceil(BLOCK) - first).unwrap_or(u32::MAX))
}

/// Whether writing the range `bytes` replaced content of a file of `size` bytes. The write added `mapped` blocks to the
/// file's map.
///
/// Not if it starts in the file's last block, unless that block is full: the page cache writes whole pages, so an append
/// rewrites the block in which the file ended. Nor if it only filled holes: when several threads write a file back, a
/// later part may arrive first. (Reserved blocks count as mapped, so filling them replaces zeros.)
pub(crate) fn replaces(size: u64, bytes: Range<u64>, mapped: i64) -> bool {
    debug_assert!(bytes.start <= bytes.end, "the range ends at {} before it starts at {}", bytes.end, bytes.start);
    let blocks_added = bytes.end.div_ceil(BLOCK).saturating_sub(size.div_ceil(BLOCK));
    bytes.start / BLOCK < size / BLOCK && mapped <= blocks_added.cast_signed()
}

/// One opening of a file by a program. The monitor uses it to recognize reads that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Handle(pub u64);

/// Handles that the table can distinguish.
const SLOTS: usize = 1 << 14;
const _: () = assert!(SLOTS.is_power_of_two(), "slots are found by a mask");

/// Bytes of the table.
const POSITIONS_BYTES_MAX: usize = SLOTS * size_of::<Mutex<Slot>>();

/// A handle and where it read last.
struct Slot {
    handle: Handle,
    position: ReadPosition,
}

/// Where each open handle read last.
///
/// A table of fixed size, indexed by the handle's number modulo its size. Handles are numbered in sequence, so two open
/// handles collide only if a full table of handles was given out between them. Then the one that reads takes the slot,
/// and the other starts over. So releasing a handle needs no work here.
#[derive(Default)]
struct Positions {
    /// Allocated by the first read.
    slots: OnceLock<Box<[Mutex<Slot>]>>,
    given: AtomicU64,
}

impl Positions {
    /// A handle that this mount has not given out before.
    fn new_handle(&self) -> Handle {
        Handle(self.given.fetch_add(1, Relaxed) + 1)
    }

    /// Classifies a handle's read of `blocks` blocks, the first of which is `first`.
    fn read(&self, handle: Handle, first: u64, blocks: u32) -> Reads {
        let slots =
            self.slots.get_or_init(|| (0..SLOTS).map(|_| Mutex::new(LockRank::Leaf, Slot::of(Handle(0)))).collect());
        let mut slot = slots[handle.0 as usize % SLOTS].lock();
        if slot.handle != handle {
            *slot = Slot::of(handle);
        }
        let reads = slot.position.read(first, blocks);
        debug_assert_eq!(
            u64::from(reads.sequential) + u64::from(reads.random),
            u64::from(blocks),
            "block {first}: {reads:?} of {blocks} blocks"
        );
        reads
    }
}

impl Slot {
    fn of(handle: Handle) -> Self {
        Self { handle, position: ReadPosition::default() }
    }
}

/// Parts with a lock of their own; a power of two.
const PARTS: usize = 256;
const _: () = assert!(PARTS.is_power_of_two(), "parts are found by a mask");
/// Slots of a part's hash table when it is full.
const SLOTS_PER_PART_MAX: usize = 512;
/// Files in a full part. The standard library doubles a table once seven eighths of it are taken.
const FILES_PER_PART_MAX: usize = SLOTS_PER_PART_MAX / 8 * 7;
/// Files in a part from which on it should be published.
const FILES_PER_PART_MANY: usize = FILES_PER_PART_MAX / 2;

/// Bytes of all parts when all are full. The table has one byte of its own for each slot.
const NOTED_BYTES_MAX: usize = PARTS * SLOTS_PER_PART_MAX * (size_of::<(Ino, NotedReads)>() + 1);

/// An access without a read is published only if the last known access is this much older. Files become cold after two
/// weeks, so an hour more or less does not matter.
const ACCESS_SECONDS_MIN: u32 = 60 * 60;

/// The reads noted for one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotedReads {
    reads: Reads,
    last: Moment,
}

/// Files, with the reads noted for each.
pub(crate) type Files = HashMap<Ino, NotedReads>;

/// How full a part is after a read was noted in it.
enum Filled {
    /// Less than half full.
    Little,
    /// It should be published soon.
    Half,
    /// It was full and has been emptied: the caller must publish these.
    Full(Files),
}

/// Noted reads of all files.
struct Noted {
    parts: Vec<Mutex<Files>>,
}

impl NotedReads {
    /// Adds these reads to a file's usage. False: they tell nothing worth publishing, and the usage is unchanged.
    pub(super) fn add_to(&self, usage: &mut Usage, now: Moment) -> bool {
        let is_known = self.reads == Reads::default()
            && usage.rank() != Rank::Cold
            && usage.last_access() <= now
            && self.last.seconds_since(usage.last_access()) < ACCESS_SECONDS_MIN;
        if is_known {
            return false;
        }
        usage.clamp(now);
        // The file may have been written since it was read, and the clock may have jumped back.
        usage.read(self.last.min(now).max(usage.last_access()), self.reads);
        debug_assert!(usage.last_access() <= now, "{:?} is after {now:?}", usage.last_access());
        true
    }
}

impl Noted {
    fn new() -> Self {
        Self { parts: (0..PARTS).map(|_| Mutex::default()).collect() }
    }

    fn part(&self, ino: Ino) -> MutexGuard<'_, Files> {
        self.parts[ino.0 as usize % PARTS].lock()
    }

    /// Notes an access to a file, and the blocks it read.
    fn add(&self, ino: Ino, now: Moment, reads: Reads) -> Filled {
        let mut files = self.part(ino);
        let noted = files.entry(ino).or_default();
        noted.reads.sequential = noted.reads.sequential.saturating_add(reads.sequential);
        noted.reads.random = noted.reads.random.saturating_add(reads.random);
        noted.last = now;
        debug_assert!(files.len() <= FILES_PER_PART_MAX, "{} files of {FILES_PER_PART_MAX} in a part", files.len());
        match files.len() {
            FILES_PER_PART_MAX.. => Filled::Full(mem::take(&mut *files)),
            FILES_PER_PART_MANY.. => Filled::Half,
            _ => Filled::Little,
        }
    }

    /// The reads noted for a file. They stay noted.
    fn get(&self, ino: Ino) -> Option<NotedReads> {
        self.part(ino).get(&ino).copied()
    }

    /// Takes out the reads noted for a file.
    fn take(&self, ino: Ino) -> Option<NotedReads> {
        self.part(ino).remove(&ino)
    }

    /// Takes out all noted reads, one part at each step of the iterator.
    fn take_parts(&self) -> impl Iterator<Item = Files> {
        self.parts.iter().map(|part| mem::take(&mut *part.lock()))
    }
}

/// How long a noted read waits for more reads of the same files.
const WAIT: Duration = Duration::from_secs(30);

/// Publishes the noted reads. None: the file system is gone.
pub(super) type Publish = Box<dyn Fn() -> Option<Result<()>> + Send>;

/// How soon the thread should publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Not at all.
    Never = 0,
    /// After [`WAIT`].
    Soon = 1,
    /// At once.
    Now = 2,
}

/// The thread that publishes reads noted in memory. It sleeps while there are none. Before `start` there is none, and `ask` has no effect.
#[derive(Default)]
struct Publisher {
    /// Requests to the thread; None ends it.
    to_thread: OnceLock<Sender<Option<Due>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The most urgent request since publishing last began, as a number.
    asked: AtomicU8,
}

impl Publisher {
    /// Starts the thread. Called once, when the file system is opened.
    fn start(&self, publish: Publish) -> Result<()> {
        assert!(self.to_thread.get().is_none(), "the thread that publishes reads was started twice");
        let (to_thread, asked) = channel();
        let work = move || publish_when_due(&asked, &publish);
        let thread = thread::Builder::new().name("reads".to_owned()).spawn(work);
        *self.thread.lock() =
            Some(thread.map_err(|e| Error::Engine(oncefs_engine::Error::io("cannot start the thread 'reads'", e)))?);
        // Set once, as asserted above.
        let _ = self.to_thread.set(to_thread);
        Ok(())
    }

    /// Ends the thread after the publication under way.
    fn end(&self) {
        if let Some(to_thread) = self.to_thread.get() {
            // Fails only if the thread panicked, and the panic was reported then.
            let _ = to_thread.send(None);
        }
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
    }

    /// Asks the thread to publish. Costs one load if a request as urgent is pending.
    fn ask(&self, due: Due) {
        debug_assert!(due > Due::Never, "a request that is never due");
        let number = due as u8;
        if self.asked.load(Relaxed) < number
            && self.asked.fetch_max(number, Relaxed) < number
            && let Some(to_thread) = self.to_thread.get()
        {
            let _ = to_thread.send(Some(due));
        }
    }

    /// Publishing begins: reads noted from now on need a new request.
    fn begins(&self) {
        self.asked.store(Due::Never as u8, Relaxed);
    }
}

fn publish_when_due(asked: &Receiver<Option<Due>>, publish: &Publish) {
    while let Ok(Some(due)) = asked.recv() {
        if due < Due::Now {
            match asked.recv_timeout(WAIT) {
                Ok(None) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(Some(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        match publish() {
            None => return,
            Some(Ok(())) => {}
            Some(Err(error)) => log::debug!("cannot publish how files were read: {error}"),
        }
    }
}

#[cfg(test)]
mod tests;
