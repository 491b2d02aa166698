//! The open file system: formatting, opening and closing it, and operations on all of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use oncefs_engine::sync::{LockRank, Mutex, RwLock};
use oncefs_engine::{Change, LogReservation, Report, Store};

use crate::format;
use crate::format::inode::InodeRecord;
use crate::format::placement::NamePlaces;
use crate::inodes::cache::{Inode, InodeCache};
use crate::inodes::numbers::{InodeNumbers, generation_of};
use crate::inodes::orphans::Orphans;
use crate::names::placement::Placement;
use crate::ranking::state::Ranker;
use crate::trees::TreeWork;
use crate::usage::note_reads_and_writes::Monitor;
use crate::{Caller, Clock, Error, FileKind, Ino, Result};

/// Whether a write on a full volume can succeed soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Space was freed, or deleted files are being freed: trying again makes sense.
    Coming,
    /// A cluster's figures say that there is none, and are older than what was written: later ones may say otherwise.
    Uncounted,
    /// Files without a name are still in use. The kernel releases them some time after unlink returned, unless a program
    /// has them open.
    Perhaps,
    /// No space will become free by itself.
    None,
}

/// When a read sets the time of last access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtimePolicy {
    /// Never.
    Never,
    /// If it is not newer than the last write or change, or a day old.
    Relative,
    /// Always.
    Strict,
}

/// Options for opening a file system.
#[derive(Clone, Debug)]
pub struct Options {
    /// Bound on the memory of the inode cache, in bytes.
    pub memory_bytes_max: u64,
    /// When a read sets the time of last access.
    pub atime: AtimePolicy,
    /// Refuses all changes; orphans stay.
    pub read_only: bool,
    /// The generation of the inodes that this mount makes: a random number. It tells them from those of an earlier mount
    /// with the same numbers, which a crash took before they were durable. `None`: that of the volume, for openings
    /// whose inodes nobody has a handle of.
    pub generation: Option<u32>,
}

/// The space that `statfs` shows, in blocks of 4 KiB. Inode numbers have no limit, so there is no count of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Size of the data area.
    pub total: u64,
    /// Blocks with new content that can still be written.
    pub available: u64,
}

/// A callback that gets an inode.
pub type Tell = Box<dyn Fn(Ino) + Send + Sync>;

/// An open file system. All methods can be called from any thread.
///
/// No method waits for a flush or a commit, except `close` and the methods that say so.
pub struct FileSystem {
    pub(crate) store: Arc<Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) inodes: InodeCache,
    pub(crate) numbers: InodeNumbers,
    pub(crate) orphans: Orphans,
    pub(crate) monitor: Monitor,
    pub(crate) ranker: Ranker,
    /// Locked while a directory moves to another parent, so that two moves cannot make a cycle. Counts these moves.
    pub(crate) rename_lock: Mutex<u64>,
    /// Where names are stored in their directories.
    pub(crate) placement: Placement,
    pub(crate) generation: u32,
    /// Copies and removals of trees that are under way.
    pub(crate) tree_work: TreeWork,
    pub(crate) closing: AtomicBool,
    /// See [`FileSystem::on_privileges_dropped`].
    pub(crate) on_privileges_dropped: OnceLock<Tell>,
    pub(crate) read_only: bool,
    atime: RwLock<AtimePolicy>,
    reclaimer: Mutex<Option<JoinHandle<()>>>,
}

impl FileSystem {
    /// Makes an empty file system in a new volume: a root directory owned by root. Durable on return.
    ///
    /// # Errors
    ///
    /// - `NoSpace`: the host's file system is full.
    /// - `ReadOnly`, `Engine`: the store failed.
    pub fn format(store: &Store, clock: &dyn Clock) -> Result<()> {
        Self::format_with(store, clock, NamePlaces::default())
    }

    /// As [`FileSystem::format`], with name places that overflow sooner. For tests.
    ///
    /// # Errors
    ///
    /// - `Invalid`: a number in `places` is out of its range.
    /// - Otherwise as [`FileSystem::format`].
    pub fn format_with(store: &Store, clock: &dyn Clock, places: NamePlaces) -> Result<()> {
        let now = clock.now();
        let caller = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };
        let root = InodeRecord {
            parent: Ino::ROOT,
            ..InodeRecord::new(FileKind::Directory, 0o755, &caller, now, generation_of(store))
        };
        let mut change = Change::new();
        change.put(format::inode::key(Ino::ROOT), root.encode(Ino::ROOT));
        change.put(format::lease::KEY.to_vec(), format::lease::encode(Ino(Ino::ROOT.0 + 1)));
        change.put(format::placement::KEY.to_vec(), format::placement::encode(places)?);
        store.publish(change)?;
        Ok(store.commit()?)
    }

    /// Opens the file system of a volume. Deletes orphans of earlier mounts in the background.
    ///
    /// # Errors
    ///
    /// - `Engine`: the volume has no file system, the root directory is damaged, or a thread cannot be started.
    /// - `Stale`: the root directory is missing.
    /// - `NoSpace`, `ReadOnly`: the first lease of inode numbers cannot be published.
    pub fn open(store: Arc<Store>, clock: Arc<dyn Clock>, options: &Options) -> Result<Arc<Self>> {
        let file_system = Self::open_without_threads(store, clock, options)?;
        if !options.read_only {
            *file_system.reclaimer.lock() = Self::start_reclaiming(&file_system)?;
            file_system.start_monitor()?;
        }
        Ok(file_system)
    }

    /// As [`FileSystem::open`], but starts no thread: orphans of earlier mounts stay until
    /// [`FileSystem::reclaim_left_behind`] is called, and noted reads until [`FileSystem::publish_reads`] is.
    ///
    /// # Errors
    ///
    /// As [`FileSystem::open`].
    pub fn open_without_threads(store: Arc<Store>, clock: Arc<dyn Clock>, options: &Options) -> Result<Arc<Self>> {
        let numbers = InodeNumbers::open(&store, options.read_only)?;
        let file_system = Arc::new(Self {
            generation: options.generation.unwrap_or_else(|| generation_of(&store)),
            placement: Placement::read(&store)?,
            inodes: InodeCache::new(options.memory_bytes_max),
            numbers,
            orphans: Orphans::default(),
            monitor: Monitor::new(store.clone(), clock.clone(), options.read_only),
            ranker: Ranker::open(&store)?,
            rename_lock: Mutex::new(LockRank::Rename, 0),
            tree_work: TreeWork::default(),
            closing: AtomicBool::new(false),
            on_privileges_dropped: OnceLock::new(),
            read_only: options.read_only,
            atime: RwLock::new(LockRank::Leaf, options.atime),
            reclaimer: Mutex::new(LockRank::Thread, None),
            store,
            clock,
        });
        if !file_system.inode(Ino::ROOT)?.lock().is_directory() {
            return Err(Error::corrupt("inode 1", "the root is not a directory"));
        }
        if !options.read_only {
            Self::rank_in_background(&file_system);
        }
        Ok(file_system)
    }

    /// Ends the background work and closes the store. Everything is durable on return.
    ///
    /// # Errors
    ///
    /// - `NoSpace`, `ReadOnly`: the last changes cannot be made durable.
    /// - `Engine`: a device or the metadata store failed.
    pub fn close(&self) -> Result<()> {
        self.closing.store(true, Ordering::Relaxed);
        if let Some(reclaimer) = self.reclaimer.lock().take() {
            // The thread returns no value and logs its errors; a panic in it was reported when it happened.
            let _ = reclaimer.join();
        }
        self.tree_work.wait();
        self.end_monitor();
        self.stop_ranking();
        Ok(self.store.close()?)
    }

    /// Registers `tell`. It is called with each inode whose set-user-id or set-group-id bit was cleared by a change of
    /// content, before that change returns: the reply to a write does not carry this. It is called with the inode
    /// locked, so it must not wait for another request. The first `tell` stays, and later ones are ignored.
    pub fn on_privileges_dropped(&self, tell: Tell) {
        let _ = self.on_privileges_dropped.set(tell);
    }

    /// The store of the volume.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Sets the policy for the time of last access (remount). A read-only mount never sets it.
    pub fn set_atime_policy(&self, policy: AtimePolicy) {
        *self.atime.write() = policy;
    }

    pub(crate) fn atime_policy(&self) -> AtimePolicy {
        if self.read_only { AtimePolicy::Never } else { *self.atime.read() }
    }

    /// Statistics: those of the store, the inode cache, and files by rank.
    pub fn report(&self) -> Report {
        let mut report = self.store.report();
        report.caches.insert("inodes".to_owned(), self.inodes.report());
        report.ranks = self.rank_report();
        report
    }

    /// The size of the volume, as far as the host has room for it, and its free space, in blocks of 4 KiB.
    pub fn statfs(&self) -> Space {
        Space { total: self.store.capacity().0, available: self.store.available().0 }
    }

    /// After `Error::NoSpace`: makes freed blocks usable again. Waits for a commit.
    ///
    /// # Errors
    ///
    /// - `NoSpace`: the host's file system is full, so that nothing can be committed.
    /// - `ReadOnly`: an earlier failure made the volume read-only.
    /// - `Engine`: a device or the metadata store failed.
    pub fn make_room(&self) -> Result<Room> {
        Ok(match self.store.make_room()? {
            _ if self.store.awaits_figures() => Room::Uncounted,
            true => Room::Coming,
            false if self.orphans.is_empty() => Room::None,
            false => Room::Perhaps,
        })
    }

    /// Calls `done` once everything published before this call is durable, from this thread or another. Passes it
    /// `NoSpace`, `ReadOnly` or `Engine` if that failed.
    pub fn fsync(&self, done: impl FnOnce(Result<()>) + Send + 'static) {
        self.store.barrier(Box::new(move |result| done(result.map_err(Error::from))));
    }

    /// Reports whether an error made the volume read-only.
    ///
    /// # Errors
    ///
    /// `ReadOnly`, with the error that caused it.
    pub fn flush(&self) -> Result<()> {
        self.store.failure().map_or(Ok(()), |why| Err(Error::ReadOnly(why)))
    }

    /// Refuses a change on a read-only mount.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            Err(Error::ReadOnly("it is mounted read-only; mount it without ro".to_owned()))
        } else {
            Ok(())
        }
    }

    /// Begins a change of records: refuses it on a read-only mount, waits for room in the log, and claims it until the
    /// change is published. Called before any lock is taken, because the committer, which makes room, may wait for a
    /// lock's holder.
    pub(crate) fn begin_change(&self) -> Result<LogReservation<'_>> {
        self.check_writable()?;
        Ok(self.store.room_for_records())
    }

    /// The inode `ino`, from the cache or the store.
    pub(crate) fn inode(&self, ino: Ino) -> Result<Arc<Inode>> {
        self.inodes.get(ino, || match self.store.get(&format::inode::key(ino))? {
            Some(bytes) => InodeRecord::decode(ino, &bytes),
            None => Err(Error::Stale),
        })
    }
}
