//! The engine's interface: an open volume, its maps, its records, its commits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use oncefs_dedup::Compress;

#[cfg(doc)]
use crate::Error;
use crate::background::committer::barrier;
use crate::background::threads::Threads;
use crate::format::superblock::Superblock;
use crate::sync::{AtomicBool, LockRank, Mutex};
use crate::volume::assembly::Volume;
use crate::volume::backend::{Hold, TestHooks};
use crate::volume::files as volume;
use crate::volume::memory_budget::Budget;
use crate::volume::open::{recover, settings_of};
use crate::volume::superblock_file;
use crate::volume::unfinished::Unfinished;
use crate::write::publish::OnPublish;
use crate::{
    BLOCK_BYTES, Blocks, Change, FilePolicy, Lbn, MapId, OpenOptions, Profile, ReadBuf, Report, Result, Totals,
    VolumeSpec, WriteMode,
};

mod clones;
mod cluster;
pub mod history;
mod identity;
mod policies;
mod ranges;
#[cfg(any(test, feature = "testing"))]
mod testing;
mod upkeep;

/// An open volume. Shared by all threads.
///
/// # Locks
///
/// Lock order for callers: a map's lock (taken inside `write`, `truncate`, `clone_blocks`, `detach` and similar
/// functions), then whatever the closure `with` locks, then the engine's own locks. So a caller may hold its inode
/// locks while calling `get`, `scan` and `publish`, but not while calling a function that takes a map.
///
/// # Records with a change
///
/// `with(mapped_delta, &mut change)` runs once, under the map's lock, when the operation can no longer fail for a
/// reason of its own. It gets the number of blocks (data or reserved) by which the map grew or shrank, and adds the
/// caller's records (size, times). Its result ([`OnPublish`]) is kept until everything is published, and then told.
/// Map change and records land in one commit group.
///
/// # Bounds
///
/// Offsets and lengths are in bytes unless their type is [`crate::Lbn`] or [`Blocks`]. A map has up to 2^52 blocks: the
/// end of a range, rounded up to whole blocks, must fit into a `u64`, or the function panics.
///
/// # Errors
///
/// Three causes are common to most functions. [`Error::Io`]: a device or the record store failed; if the host reports
/// a full file system or quota, this is [`Error::NoSpace`]. [`Error::Corrupt`]: bytes on disk contradict their
/// checksum, their bounds or each other. [`Error::ReadOnly`], where the volume changes: it was opened read-only, or an
/// earlier failure made it read-only until it is opened again ([`Store::failure`] tells why).
pub struct Store {
    pub(crate) volume: Arc<Volume>,
    volume_id: [u8; 16],
    secret: [u8; 32],
    path: PathBuf,
    threads: Mutex<Option<Threads>>,
    is_closed: AtomicBool,
    /// Whether the superblock refuses versions of oncefs that do not know lazy clones.
    allows_clones: Mutex<bool>,
    /// Facts that `tune` cannot change, for reports.
    facts: BTreeMap<String, String>,
    /// The volume's lock and parts. Dropped last, because until then `volume` has the record store open, which only one
    /// opener may have.
    hold: Option<Box<dyn Hold>>,
}

impl Store {
    /// Makes an empty volume in the directory `volume`, which must be missing, empty, or left by an unfinished attempt.
    ///
    /// `random` supplies the volume's identity (16 bytes) and its secret key (32 bytes). The rest is spare. It must be
    /// unpredictable, because the key protects against chosen collisions of tags. On success the volume is durable.
    ///
    /// # Errors
    ///
    /// - [`Error::InTheWay`]: `volume` contains something else, or another process is making it, or the device shows a
    ///   file system, a partition table or another known signature.
    /// - [`Error::Held`]: the device is mounted, or another program holds it.
    /// - [`Error::Exposed`]: the empty directory belongs to another user.
    /// - [`Error::Invalid`]: a size in `spec` is missing or out of its bounds, or the data device is not a block
    ///   device, is too small or has too long a path.
    /// - [`Error::NoSpace`], [`Error::Io`]: the host file system or the device failed. The files created so far stay,
    ///   cannot be opened, and are removed by the next attempt.
    /// - [`Error::Corrupt`]: the record store that was just made cannot be read back.
    pub fn format(volume: &Path, spec: &VolumeSpec, random: [u8; 64]) -> Result<()> {
        Self::begin_format(volume, spec, random, false)?.finish()
    }

    /// Opens a volume, recovers its last commit and starts the background threads (none if `options.read_only`).
    ///
    /// # Errors
    ///
    /// - [`Error::NotAVolume`]: `volume` has no superblock.
    /// - [`Error::Unfinished`]: its creation did not finish.
    /// - [`Error::NewerFormat`]: a newer oncefs wrote it.
    /// - [`Error::Exposed`]: users other than root can change it.
    /// - [`Error::InUse`]: another process has it open.
    /// - [`Error::Held`]: another program holds its device, or a file that links lead to.
    /// - [`Error::Invalid`]: a setting in `options` is unknown or out of its range; or the blocks are on another device
    ///   than the one given to mkfs, and `options` do not name it (read-only, it is accepted).
    /// - [`Error::Corrupt`]: a part is missing, damaged, too short or belongs to another volume.
    /// - [`Error::HostFull`]: the host file system is full, and the volume's ballast did not help.
    /// - [`Error::Io`], [`Error::NoSpace`]: a device, the record store or the host file system failed.
    pub fn open(volume: &Path, options: &OpenOptions) -> Result<Arc<Store>> {
        Self::open_with(volume, superblock_file::read(volume)?, options, !options.read_only)
    }

    /// Opens a volume for repair, without background threads: a caller that publishes has to call [`Store::settle`]
    /// from time to time.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_for_fsck(volume: &Path, options: &OpenOptions) -> Result<Arc<Store>> {
        Self::open_with(volume, superblock_file::read(volume)?, options, false)
    }

    /// Opens a volume that is still being made, to add its mandatory content.
    ///
    /// # Errors
    ///
    /// As [`Store::open`].
    pub fn open_unfinished(unfinished: &Unfinished, options: &OpenOptions) -> Result<Arc<Store>> {
        let volume = unfinished.volume();
        Self::open_with(volume, superblock_file::read_unfinished(volume)?, options, !options.read_only)
    }

    fn open_with(volume: &Path, superblock: Superblock, options: &OpenOptions, background: bool) -> Result<Arc<Store>> {
        let settings = settings_of(options, superblock.profile, superblock.copies)?;
        let kv_bytes_max = Budget::of(options.memory_bytes_max, &settings).records;
        let compresses = settings.compress != Compress::Off && background;
        let (superblock, mut backend) =
            volume::open(volume, superblock, settings.copies, kv_bytes_max, compresses, options)?;
        let hold = backend.hold.take();
        let path = volume.to_owned();
        let volume = Arc::new(recover(backend, options, settings, TestHooks::default())?);
        volume.base.space.look_up_host();
        if !options.read_only {
            volume.base.space.ballast().look();
        }
        let threads = if background { Some(Threads::start(&volume)?) } else { None };
        Ok(Arc::new(Self {
            volume,
            volume_id: superblock.volume_id,
            secret: superblock.secret,
            path,
            threads: Mutex::new(LockRank::Thread, threads),
            is_closed: AtomicBool::new(false),
            allows_clones: Mutex::new(LockRank::Tuning, superblock.has_clones),
            facts: facts(options, superblock.profile),
            hold,
        }))
    }

    /// Ends the background threads, commits and checkpoints. Does nothing on a volume that is driven by hand or was
    /// opened read-only. Others can open the volume once the last reference to this is gone. After an error, changes may
    /// be under way: the lock in the cluster of a volume in objects stays then, and its next head fences this process.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`]: the volume failed earlier; what was published since its last commit is lost.
    /// - [`Error::Io`], [`Error::NoSpace`], [`Error::Corrupt`]: the last commit or checkpoint failed.
    pub fn close(&self) -> Result<()> {
        self.end_and_checkpoint().inspect_err(|_| {
            if let Some(hold) = &self.hold {
                hold.leave();
            }
        })
    }

    fn end_and_checkpoint(&self) -> Result<()> {
        let Some(threads) = self.threads.lock().take() else {
            // Opened for repair, unless it was closed before or has no files on the host.
            let was_closed = self.is_closed.swap(true, Ordering::AcqRel) || self.hold.is_none();
            let is_settled = was_closed || self.volume.base.health.is_read_only();
            return if is_settled { Ok(()) } else { self.volume.commits.checkpoint_what_is_whole() };
        };
        self.is_closed.store(true, Ordering::Release);
        // The worker and the reclaimer may publish until they have ended.
        self.volume.base.signals.stop();
        threads.join();
        drop(self.volume.base.worker.defrag_turn());
        if self.volume.base.health.usable().is_ok() {
            self.volume.scrubber.save_scrub()?;
        }
        let committed = self.volume.commits.checkpoint();
        if committed.is_ok() {
            self.volume.leave_cleanly();
            self.forget_fragments();
        }
        committed
    }

    /// Lets earlier versions open the volume again if nothing in it is compressed any more. What fails here is tried
    /// again when the volume is closed the next time.
    fn forget_fragments(&self) {
        let forgotten = self.volume.can_forget_fragments().and_then(|can| match can && self.hold.is_some() {
            true => volume::remove_fragments(&self.path),
            false => Ok(()),
        });
        forgotten.unwrap_or_else(|error| log::warn!("cannot go back to the format without compression: {error}"));
    }

    /// The newest published value of a record, committed or not, if the record exists.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Corrupt`]: the record store cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.volume.metadata.get_for_program(key)
    }

    /// The records with `from <= key < to`, in key order, at most `limit`.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] or [`Error::Corrupt`]: the record store cannot be read.
    pub fn scan(&self, from: &[u8], to: &[u8], limit: usize) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.volume.metadata.scan_for_program(from, to, limit)
    }

    /// Publishes records: visible at once, durable with the current commit group. It never waits, because the caller
    /// may hold locks. The caller holds the room that [`Store::room_for_records`] returned.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`]: the volume takes no changes.
    /// - [`Error::Io`], [`Error::Corrupt`]: the block table cannot be read. Nothing is published.
    pub fn publish(&self, change: Change) -> Result<()> {
        self.volume.base.foreground.serve(|| self.volume.publisher.publish(change))
    }

    /// A new, empty map. It takes no space until it is written; its id is never handed out again.
    pub fn new_map(&self) -> MapId {
        let map = self.volume.base.maps.take_id();
        self.volume.base.policy.note_published_policy(map, FilePolicy::default());
        map
    }

    /// As [`Store::new_map`], for a map that gets content soon. Memory keeps that its first leaf is empty, so the first
    /// change looks nothing up.
    pub fn new_map_to_fill(&self) -> MapId {
        let map = self.new_map();
        self.volume.metadata.note_new_map(map);
        map
    }

    /// Writes `data` at byte `at`. Blocks of zeros become holes, duplicates become references.
    ///
    /// `data` must not be empty. Partially covered blocks are completed with the stored bytes.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`]: the volume takes no changes.
    /// - [`Error::MapDetached`]: the map was detached.
    /// - [`Error::NoSpace`]: too few blocks are left in the data area, or too few bytes on the host file system.
    /// - [`Error::Corrupt`]: a map record, a page of the block table, or a partially covered block is damaged.
    /// - [`Error::Io`]: a device or the record store failed.
    ///
    /// On an error nothing of the write is visible, unless [`OnPublish::published`] was called: then the write is
    /// visible, but the volume failed and is read-only.
    pub fn write<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        data: &[u8],
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.write_request(map, at, data, WriteMode::Unawaited, with)
    }

    /// Like [`Store::write`], for a request that a program waits for (O_DIRECT, O_SYNC): each block is fingerprinted at
    /// once, and no stored block is read for a comparison that the worker can make later.
    ///
    /// # Errors
    ///
    /// As [`Store::write`].
    pub fn write_awaited<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        data: &[u8],
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.write_request(map, at, data, WriteMode::Awaited, with)
    }

    fn write_request<G: OnPublish>(
        &self,
        map: MapId,
        at: u64,
        data: &[u8],
        write_mode: WriteMode,
        with: impl FnOnce(i64, &mut Change) -> G,
    ) -> Result<()> {
        self.serve_change(|volume| volume.writer.write_request(map, at, data, write_mode, with))
    }

    /// Reads `len` bytes at byte `at`. Holes, reserved space and everything beyond the last block read as zeros.
    ///
    /// # Errors
    ///
    /// - [`Error::MapDetached`]: the map was detached.
    /// - [`Error::Corrupt`]: a map record is damaged, or a block does not match its tag and has no replica. Tags are
    ///   checked if the setting `verify` covers reads.
    /// - [`Error::Io`]: a device or the record store failed.
    pub fn read(&self, map: MapId, at: u64, len: usize) -> Result<ReadBuf> {
        self.volume.base.foreground.serve(|| self.volume.reader.read(map, at, len))
    }

    /// Reads whole blocks into `bytes`, whose length gives their number, aligned as in
    /// [`holds_blocks`](crate::holds_blocks).
    ///
    /// # Errors
    ///
    /// As [`Store::read`].
    pub fn read_blocks(&self, map: MapId, first: Lbn, bytes: &mut [u8]) -> Result<()> {
        self.volume.base.foreground.serve(|| self.volume.reader.read_blocks(map, first, bytes))
    }

    /// Learns how the map is read, from bytes read by a user who may also write them: a map that is read at random has
    /// no budget. Reads that are not noted here have no effect on it.
    pub fn note_read(&self, map: MapId, at: u64, len: u64) {
        let blocks = at / BLOCK_BYTES as u64..(at + len).div_ceil(BLOCK_BYTES as u64);
        self.volume.file_policies.note_read(map, Lbn(blocks.start), blocks.end - blocks.start);
    }

    /// The shortest run, in blocks, that is shared in this map: set for it, or derived from its reads and the device.
    /// 1 to 256.
    pub fn run_blocks_min(&self, map: MapId) -> u32 {
        self.volume.file_policies.run_blocks_min(map)
    }

    /// Detaches a map (unlink, truncate to zero). Returns at once; the blocks are freed in the background, also after a
    /// crash. Later calls with this id fail with [`Error::MapDetached`].
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`]: the volume takes no changes.
    /// - [`Error::MapDetached`]: the map was detached before.
    /// - [`Error::Io`], [`Error::Corrupt`]: the block table or the record store cannot be read.
    pub fn detach<G: OnPublish>(&self, map: MapId, with: impl FnOnce(&mut Change) -> G) -> Result<()> {
        self.serve_change(|volume| volume.range_changes.detach(map, with))
    }

    /// Calls `done` once everything published before this call is durable: on this thread, which commits, or on the
    /// committer's, if other callers wait for a commit too. On a volume opened read-only, calls it at once.
    ///
    /// # Errors
    ///
    /// `done` gets the error of the commit (see [`Store::commit`]), or [`Error::ReadOnly`] if the volume was closed.
    pub fn barrier(&self, done: Box<dyn FnOnce(Result<()>) + Send>) {
        if self.volume.base.health.is_read_only() {
            return done(Ok(()));
        }
        barrier(&self.volume, done);
    }

    /// Waits until everything published before this call is durable.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`]: the volume takes no changes.
    /// - [`Error::Io`], [`Error::NoSpace`], [`Error::Corrupt`], [`Error::Invalid`] (the group is larger than the log):
    ///   the commit failed. What was published may or may not be durable, and the volume is read-only until it is
    ///   opened again.
    pub fn commit(&self) -> Result<()> {
        self.volume.commits.commit()
    }

    /// Serves a request that changes a map. It waits for room before it takes any lock.
    fn serve_change<T>(&self, change: impl FnOnce(&Volume) -> T) -> T {
        self.volume.base.foreground.serve(|| {
            self.volume.change_room.wait_for_room();
            change(&self.volume)
        })
    }

    /// The volume's space, in blocks, as of the last publication.
    pub fn totals(&self) -> Totals {
        self.volume.free_blocks.totals()
    }

    /// Unique blocks that can still be written: bounded by the data area, by promises to fallocate, and by the host.
    pub fn available(&self) -> Blocks {
        self.volume.free_blocks.available()
    }

    /// The size of the volume as far as the host has room for it: the used blocks, and those that can still be written.
    pub fn capacity(&self) -> Blocks {
        self.volume.free_blocks.capacity()
    }

    /// Whether the host has so little left that nothing should be created that takes more room there than it frees.
    pub fn is_host_full(&self) -> bool {
        self.volume.base.space.ballast().is_needed()
    }

    /// Answers a question about the volume. What it looks up does not count as a program's request, so whoever asks
    /// often does not keep background work from running.
    pub fn aside<T>(&self, answer: impl FnOnce() -> T) -> T {
        self.volume.base.foreground.aside(answer)
    }

    /// How long ago the last request of a program ended, or the volume was opened.
    pub fn idle_time(&self) -> Duration {
        let foreground = &self.volume.base.foreground;
        foreground.now().saturating_sub(foreground.last().unwrap_or_default())
    }

    /// Enlarges the data area to `data_bytes`, rounded down to whole blocks. Durable on return.
    ///
    /// # Errors
    ///
    /// - [`Error::ReadOnly`]: the volume takes no changes.
    /// - [`Error::Invalid`]: `data_bytes` is less than the present size, or more than 2^39 blocks (2 PiB).
    /// - [`Error::Io`], [`Error::NoSpace`]: a device cannot be enlarged, or the commit failed.
    /// - [`Error::Corrupt`]: the block table cannot be read.
    pub fn grow(&self, data_bytes: u64) -> Result<()> {
        self.volume.grow(data_bytes)
    }

    /// Whether files are ranked by their use.
    pub fn ranks_files(&self) -> bool {
        self.volume.base.tuning.ranks_files()
    }

    /// How far the clock for ranks is ahead of the machine's, in seconds.
    pub fn rank_clock_offset_seconds(&self) -> i64 {
        self.volume.base.tuning.rank_clock_offset_seconds()
    }

    /// Why the volume became read-only. `None` if it did not.
    pub fn failure(&self) -> Option<String> {
        self.volume.base.health.failure()
    }

    /// Counters, histograms, caches, space and settings.
    pub fn report(&self) -> Report {
        let mut report = self.volume.report();
        report.settings = self.facts.clone();
        report.settings.extend(self.settings());
        report.cluster = self.hold.as_ref().and_then(|hold| hold.cluster());
        report.space.insert("metadata_bytes".to_owned(), volume::metadata_bytes(&self.path));
        report
    }

    /// For a writer that got [`Error::NoSpace`]: makes freed blocks reusable, which takes a commit or a checkpoint.
    /// Returns whether trying again makes sense: there is more space than before, or more is coming.
    ///
    /// # Errors
    ///
    /// As [`Store::commit`].
    pub fn make_room(&self) -> Result<bool> {
        self.volume.make_room()
    }

    /// Whether a writer that got [`Error::NoSpace`] may find room within half a minute although none was made: the
    /// cluster's figures are older than what was written, and later ones may show some.
    pub fn awaits_figures(&self) -> bool {
        self.volume.base.space.awaits_figures()
    }
}

fn facts(options: &OpenOptions, own: Profile) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("profile".to_owned(), options.profile.unwrap_or(own).name().to_owned()),
        ("memory_bytes_max".to_owned(), options.memory_bytes_max.to_string()),
        ("read_only".to_owned(), options.read_only.to_string()),
    ])
}
