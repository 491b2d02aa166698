//! The open volume of a daemon, and its answers to commands.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use oncefs_engine::{
    Announcement, Blocks, DedupCommand, DefragOptions, Error, Explained, Lbn, MapId, OpenOptions, Report, Store, Tag,
    WhenHeld,
};
use oncefs_fs::{AtimePolicy, Caller, DamagedFile, DamagedRange, FileSystem, Ino, Options, SystemClock, names_of_maps};
use oncefs_fuse::{KernelCache, MountFlags, Patience, RoomGauge, ShutdownMode};
use oncefs_stream::ASKED_MAX;
use serde::Serialize;
use serde_json::{Value, json};

use super::history::Historian;
use super::memory_budget::Budget;
use super::task::Task;
use super::trees;
use crate::control::answers::{self, About, Tuned};
use crate::control::client::Connection;
use crate::control::protocol::Request;
use crate::control::server::{CLIENT_GONE, Client, Handler, Server};
use crate::failure::{OrFail, Outcome, exit};
use crate::figures::of_mount::{
    DISK_RESERVE_BYTES, HostSpace, Snapshot, WAITED_FOR_ROOM, WAITED_IN_VAIN, WAITING_FOR_ROOM,
};
use crate::hex;
use crate::mounting::options::MountOptions;
use crate::names::{Name, shown};
use crate::random;

/// A process that is being killed releases its files within this time.
const DYING_PATIENCE: Duration = Duration::from_secs(3);

/// The lock in the cluster is not given up while a command is at work for longer than this. As long as a lease: the next
/// head waits no longer if the lock stays. No failover begins then.
const COMMANDS_PATIENCE: Duration = Duration::from_secs(5);

/// Files open for writing in one answer.
const OPEN_MAX: usize = 10_000;

/// An answer about several files takes no further file after this many runs. One file has at most this many.
const EXPLAINED_RUNS_MAX: usize = 8192;

/// Commands are root's.
const ROOT: Caller<'static> = Caller { uid: 0, gid: 0, umask: 0, labels: &[] };

/// Whether the kernel may send requests while the volume is closed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Requests {
    /// All were answered, and none comes any more.
    Over,
    /// The mount is in use, or the session failed.
    MayCome,
}

/// An open volume with its file system and its control socket.
pub struct OpenVolume {
    /// The served file system.
    pub file_system: Arc<FileSystem>,
    /// The flags of the mount, which a remount changes.
    pub flags: Arc<MountFlags>,
    /// Counts the room that requests take.
    pub gauge: Arc<RoomGauge>,
    /// Disks whose writes wait for room.
    pub patience: Arc<Patience>,
    read_only: bool,
    about: About,
    /// Copies and removals of trees under way.
    trees: trees::Trees,
    /// The kernel's caches, once the volume is mounted.
    kernel_cache: OnceLock<Arc<KernelCache>>,
    /// Set by a test. Nothing more becomes durable then, and that is not a failure.
    is_shut_down: AtomicBool,
    /// None: the volume was closed, or has no such thread.
    history: Mutex<Option<Historian>>,
    control: OnceLock<Server>,
    closed: OnceLock<Result<(), String>>,
}

impl OpenVolume {
    /// Opens the volume, and listens for commands. While it waits for the volume, `announcement` says so.
    pub fn open(task: &Task, budget: &Budget, announcement: &Announcement) -> Outcome<Arc<Self>> {
        let file_system = open_file_system(task, budget, announcement)?;
        let read_only = task.options.read_only();
        let flags = Arc::new(MountFlags::new(task.options.kernel_flags));
        let about = about(&task.options, &file_system);
        let (control, closed) = (OnceLock::new(), OnceLock::new());
        let (gauge, patience) = (Arc::default(), Arc::new(Patience::new(task.options.disk_reserve, budget.late_max())));
        let (kernel_cache, is_shut_down) = (OnceLock::new(), AtomicBool::new(false));
        let history = Mutex::new(keep_history(task, budget, &file_system));
        let daemon = Arc::new(Self {
            file_system,
            flags,
            gauge,
            patience,
            read_only,
            about,
            trees: trees::Trees::default(),
            kernel_cache,
            is_shut_down,
            history,
            control,
            closed,
        });
        match Server::start(&task.volume, daemon.clone()) {
            Ok(server) => drop(daemon.control.set(server)),
            Err(e) => log::warn!(
                "cannot create the control socket in {}: {e}; commands cannot reach this mount",
                shown(&task.volume)
            ),
        }
        Ok(daemon)
    }

    /// The volume is being mounted, with these caches in the kernel.
    pub fn mounted(&self, cache: Arc<KernelCache>) {
        let is_first = self.kernel_cache.set(cache).is_ok();
        assert!(is_first, "a daemon mounts its volume once");
    }

    /// Whether a file of the mount is open.
    pub fn has_open_files(&self) -> bool {
        self.kernel_cache.get().is_some_and(|cache| cache.has_open_files())
    }

    /// Closes the volume once, lets another machine open it, and tells the waiting commands.
    pub fn close(&self, requests: Requests) -> Result<(), String> {
        let close = || {
            if let Some(control) = self.control.get() {
                control.announce_closing();
            }
            drop(self.history.lock().unwrap_or_else(PoisonError::into_inner).take());
            let closed = self.file_system.close().and_then(|()| self.file_system.flush());
            let let_go = self.let_go(closed.is_ok() && requests == Requests::Over);
            let outcome = match self.is_shut_down.load(Ordering::Acquire) {
                true => Ok(()),
                false => closed.map_err(|e| format!("not everything became durable: {e}")),
            };
            if let Some(control) = self.control.get() {
                control.announce_closed(outcome.clone().map(|()| let_go.err()));
            }
            outcome
        };
        self.closed.get_or_init(close).clone()
    }

    /// Gives up the lock in the cluster, unless something could change objects under the next head: a request of the
    /// kernel, or a command at work. Threads that answer commands keep the volume to the end of the process, so dropping
    /// it is not enough. An error says why the next head may have to wait.
    fn let_go(&self, has_ended_well: bool) -> Result<(), String> {
        let store = self.file_system.store();
        if store.lease().is_none() {
            return Ok(());
        }
        let let_go = match has_ended_well {
            false => Err("the mount did not end well".to_owned()),
            true if self.control.get().is_some_and(|control| !control.end_requests(COMMANDS_PATIENCE)) => {
                Err("a command is still at work".to_owned())
            }
            true => store.let_go().map_err(|e| e.to_string()),
        };
        let_go
            .map_err(|why| {
                format!("it was not given up in the cluster ({why}), so the next head may wait for the lease")
            })
            .inspect_err(|why| log::warn!("{why}"))
    }

    /// Reserves the volume for the time after its end. Commands at work would keep it here.
    fn reserve_for(&self, heir: Option<&str>) -> Result<Value, String> {
        let lease = self.file_system.store().lease();
        let lease = lease.ok_or("the volume has no lease, because it lies on this machine")?;
        if heir.is_some() && self.control.get().is_some_and(|control| !control.others_end(COMMANDS_PATIENCE)) {
            return Err("a command is at work on it: stop that, or let it end".to_owned());
        }
        lease.reserve_for(heir.map(str::to_owned));
        Ok(Value::Null)
    }

    /// Makes durable what the mode names, and nothing from then on. `sync` writes the kernel's dirty pages back; after
    /// `close` no request is served.
    pub fn shut_down(&self, mode: ShutdownMode, sync: impl Fn() -> io::Result<()>, close: &dyn Fn()) -> io::Result<()> {
        let synced = if mode == ShutdownMode::Flush { sync() } else { Ok(()) };
        close();
        let flushed = synced.and_then(|()| match mode {
            ShutdownMode::NoLogFlush => Ok(()),
            ShutdownMode::Flush | ShutdownMode::LogFlush => self.commit(),
        });
        self.is_shut_down.store(true, Ordering::Release);
        self.file_system.store().shut_down();
        flushed
    }

    fn commit(&self) -> io::Result<()> {
        self.file_system.store().commit().map_err(io::Error::other)
    }

    fn stats(&self) -> Result<Value, String> {
        let mut report = self.report();
        if let Some(why) = self.file_system.store().failure() {
            report.settings.insert("read_only_because".to_owned(), why);
        }
        serde_json::to_value(report).map_err(|e| e.to_string())
    }

    /// The counts of the engine, the file system and this mount.
    fn report(&self) -> Report {
        let mut report = self.file_system.report();
        let waiting = self.patience.waiting().into_iter().map(|(_, requests)| requests as u64).sum();
        let (waited, in_vain) = self.patience.waited();
        let reserve = self.patience.reserve(report.space.get("data_bytes").copied().unwrap_or(0));
        let of_disks = [
            (WAITING_FOR_ROOM, waiting),
            (WAITED_FOR_ROOM, waited),
            (WAITED_IN_VAIN, in_vain),
            (DISK_RESERVE_BYTES, reserve),
        ];
        report.space.extend(of_disks.map(|(name, value)| (name.to_owned(), value)));
        report
    }

    /// Disks with writes that wait for room.
    fn room_waits(&self) -> answers::RoomWaits {
        let wait = |(ino, requests): (Ino, usize)| answers::RoomWait { inode: ino.0, requests: requests as u64 };
        answers::RoomWaits { files: self.patience.waiting().into_iter().map(wait).collect() }
    }

    /// The present figures of the volume.
    pub fn snapshot(&self, task: &Task) -> Snapshot {
        let store = self.file_system.store();
        let snapshot = Snapshot {
            volume: task.volume.clone(),
            mount: Some(task.dir.clone()),
            worker: store.dedup_status(),
            scrub: store.scrub_status(),
            // An unknown host raises no alarm.
            host: HostSpace::at(&task.volume).unwrap_or_default(),
            ..Snapshot::default()
        };
        Snapshot { read_only_because: store.failure(), ..snapshot.with(self.about.clone(), self.report()) }
    }

    fn tune(&self, changes: &[(String, String)]) -> Result<Value, String> {
        let store = self.file_system.store();
        let before = store.settings();
        store.tune(changes).map_err(|e| e.to_string())?;
        let list: Vec<String> = changes.iter().map(|(name, value)| format!("{name}={value}")).collect();
        log::info!("tuned: {}", list.join(" "));
        Ok(json!(Tuned { before, after: store.settings() }))
    }

    fn dedup(&self, command: DedupCommand) -> Result<Value, String> {
        if self.read_only {
            return Err(Error::ReadOnly("it was opened read-only".to_owned()).to_string());
        }
        self.file_system.store().dedup(command);
        Ok(Value::Null)
    }

    fn damage(&self, places_max: usize, client: &Client) -> Result<Value, String> {
        let found = self.file_system.damaged_files(places_max, &|| !client.is_gone()).map_err(|e| e.to_string())?;
        let (files, complete) = found.ok_or(CLIENT_GONE)?;
        let range = |range: &DamagedRange| answers::Range { offset: range.at, length: range.len, lost: range.is_lost };
        let file = |file: &DamagedFile| answers::File {
            inode: file.ino.map(|ino| ino.0),
            paths: file.paths.iter().map(|path| Name::from(&path[..])).collect(),
            more_paths: file.more,
            ranges: file.ranges.iter().map(range).collect(),
        };
        Ok(json!(answers::Damage { files: files.iter().map(file).collect(), complete }))
    }

    /// Files open for writing, as many as an answer may have.
    fn open_for_writing(&self, from: Ino) -> answers::OpenForWriting {
        let mut open = self.kernel_cache.get().map(|cache| cache.open_for_writing(from)).unwrap_or_default();
        let next = open.get(OPEN_MAX).map(|ino| ino.0);
        open.truncate(OPEN_MAX);
        // A file that has gone since has nothing left to write.
        let generation = |ino: Ino| Some((ino.0, self.file_system.getattr(ino).ok()?.generation));
        answers::OpenForWriting { inodes: open.into_iter().filter_map(generation).collect(), next }
    }

    /// The first portions of files, as many as an answer may have.
    fn explain_files(&self, inodes: &[u64], client: &Client) -> Vec<Option<Explained>> {
        let (mut explained, mut runs) = (Vec::new(), 0);
        for inode in inodes {
            if runs > EXPLAINED_RUNS_MAX || client.is_gone() {
                break;
            }
            let found = self.file_system.explain(Ino(*inode), Lbn(0)).ok();
            runs += found.as_ref().map_or(0, |found| found.runs.len());
            explained.push(found);
        }
        explained
    }

    /// The names of files by map, as many as an answer may have.
    fn names(&self, maps: &[u64], client: &Client) -> Result<Value, String> {
        let maps = maps.iter().copied().map(MapId).collect();
        let found = names_of_maps(self.file_system.store(), &maps, &|| !client.is_gone()).map_err(|e| e.to_string())?;
        let found = found.ok_or(CLIENT_GONE)?;
        let files = found.files.iter().map(|(map, names)| (map.0, answers::FileNames::of(names))).collect();
        Ok(json!(answers::NamesFound { files, next: found.next.map(|map| map.0) }))
    }
}

/// Whether a command works on files as a program does, so that background work gives way to it.
fn is_use(request: &Request) -> bool {
    matches!(
        request,
        Request::PrepareClone { .. }
            | Request::CloneFile { .. }
            | Request::CloneFileAtOnce { .. }
            | Request::CopyTree { .. }
            | Request::RemoveSnapshot { .. }
    )
}

impl Handler for OpenVolume {
    fn answer(&self, request: &Request, client: &Client) -> Result<Value, String> {
        match is_use(request) {
            true => self.answer_to(request, client),
            false => self.file_system.store().aside(|| self.answer_to(request, client)),
        }
    }
}

impl OpenVolume {
    fn answer_to(&self, request: &Request, client: &Client) -> Result<Value, String> {
        let store = self.file_system.store();
        match request {
            Request::Version => Ok(json!(self.about)),
            Request::Stats => self.stats(),
            Request::Commit => store.commit().map(|()| Value::Null).map_err(|e| e.to_string()),
            Request::ReserveFor { heir } => self.reserve_for(heir.as_deref()),
            Request::Grow { bytes } => store.grow(*bytes).map(|()| Value::Null).map_err(|e| e.to_string()),
            Request::MountFlags { kernel_flags } => {
                self.file_system.set_atime_policy(atime_policy(*kernel_flags));
                self.flags.set(*kernel_flags);
                self.gauge.remounted();
                Ok(Value::Null)
            }
            Request::Settings => Ok(json!(store.settings())),
            Request::ProfileSettings => Ok(json!(store.profile_settings())),
            Request::Tune { changes } => self.tune(changes),
            Request::Dedup { command } => self.dedup(*command),
            Request::DedupStatus => Ok(json!(store.dedup_status())),
            Request::Scrub { command } => store.scrub(*command).map(|()| Value::Null).map_err(|e| e.to_string()),
            Request::ScrubStatus => Ok(json!(store.scrub_status())),
            Request::Damage { places_max } => self.damage(*places_max, client),
            Request::Explain { inode, lbn } => to_json(self.file_system.explain(Ino(*inode), Lbn(*lbn))),
            Request::ExplainFiles { inodes } => Ok(json!(self.explain_files(inodes, client))),
            Request::Compare { inode, older, lbn } => {
                to_json(self.file_system.compare(Ino(*inode), older.map(Ino), Lbn(*lbn)))
            }
            Request::Referrers { blocks, from } => to_json(store.referrers(blocks, *from)),
            Request::FileNames { maps } => self.names(maps, client),
            Request::OpenForWriting { from } => Ok(json!(self.open_for_writing(Ino(*from)))),
            Request::WaitForRoom { inode, seconds } => {
                self.patience.set(Ino(*inode), Duration::from_secs(*seconds));
                Ok(json!(self.patience.waits_max()))
            }
            Request::RoomWaits => Ok(json!(self.room_waits())),
            Request::Layout { from } => to_json(store.layout(*from)),
            Request::Defrag { inode, from, run_blocks_min, space_blocks, dry_run } => {
                let (from, space) = (Lbn(*from), Blocks(*space_blocks));
                let (run_blocks_min, dry_run) = (*run_blocks_min, *dry_run);
                let options = DefragOptions { from, run_blocks_min, space, dry_run, ..DefragOptions::default() };
                self.file_system.defrag(Ino(*inode), &options).map(|outcome| json!(outcome)).map_err(|e| e.to_string())
            }
            Request::Convert { what, inode, from } => to_json(self.file_system.convert(*what, inode.map(Ino), *from)),
            Request::PrepareClone { inode } => to_json(self.file_system.settle_before_clone(Ino(*inode))),
            Request::CloneFile { inode, directory, name } => {
                let made = self.file_system.clone_file(Ino(*inode), Ino(*directory), name.as_bytes(), &ROOT);
                to_json(made.map(|_| ()))
            }
            Request::CloneFileAtOnce { inode, directory, name } => {
                let made = self.file_system.clone_begins_at_once(Ino(*inode)).and_then(|at_once| {
                    let make = || self.file_system.clone_file(Ino(*inode), Ino(*directory), name.as_bytes(), &ROOT);
                    at_once.then(make).transpose()
                });
                to_json(made.map(|made| made.is_some()))
            }
            Request::Policy { inode } => {
                to_json(self.file_system.effective(Ino(*inode)).map(answers::EffectiveView::of))
            }
            Request::CopyTree { source, parent, name, snapshot_of, ticket } => {
                let order = trees::Order { source: Ino(*source), parent: Ino(*parent), name, snapshot_of };
                self.trees.copy(&self.file_system, self.kernel_cache.get(), &order, *ticket, client)
            }
            Request::RemoveSnapshot { parent, name, ticket } => {
                self.trees.remove(&self.file_system, self.kernel_cache.get(), (Ino(*parent), name), *ticket)
            }
            Request::DiffDirectories { older, newer, from } => {
                trees::diff(&self.file_system, (*older, *newer), *from, client)
            }
            Request::TagSecret => Ok(json!(hex::encode(store.tag_secret()))),
            Request::BlocksByTag { tags } => blocks_by_tag(store, tags),
            Request::OwnBlocks { directory, from } => trees::own(&self.file_system, Ino(*directory), *from, client),
            Request::TreeProgress { ticket } => Ok(json!(self.trees.progress_of(*ticket))),
            Request::WaitExit => Err("wait-exit is answered by the server".into()),
        }
    }
}

fn keep_history(task: &Task, budget: &Budget, file_system: &FileSystem) -> Option<Historian> {
    let volume = Some(task.volume.as_path()).filter(|_| !task.options.read_only());
    Historian::start(volume, file_system.store().clone(), budget.memory_bytes_max)
        .inspect_err(|e| {
            log::warn!("no history is kept, and freed memory is not given back: cannot start a thread: {e}")
        })
        .ok()
}

fn about(options: &MountOptions, file_system: &FileSystem) -> About {
    let id = u128::from_be_bytes(file_system.store().volume_id());
    About {
        program: env!("CARGO_PKG_VERSION").into(),
        read_only: options.read_only(),
        volume_id: format!("{id:032x}"),
        options: options.to_list(),
        log_file: options.log_file.as_deref().map(Name::from),
    }
}

fn blocks_by_tag(store: &Store, tags: &[u64]) -> Result<Value, String> {
    if tags.len() > ASKED_MAX {
        return Err(format!("more than {ASKED_MAX} tags in one request"));
    }
    let tags: Vec<Tag> = tags.iter().copied().map(Tag).collect();
    let found = store.blocks_by_tag(&tags);
    Ok(found.iter().map(|block| block.as_deref().map(hex::encode)).collect())
}

fn to_json<T: Serialize, E: Display>(answer: Result<T, E>) -> Result<Value, String> {
    answer.map(|answer| json!(answer)).map_err(|e| e.to_string())
}

/// Opens the store. Retries for a while, because a killed daemon keeps the volume's lock and device a moment longer
/// than its mount.
fn open_store(volume: &Path, options: &OpenOptions) -> oncefs_engine::Result<Arc<Store>> {
    let deadline = Instant::now() + DYING_PATIENCE;
    loop {
        match Store::open(volume, options) {
            Err(Error::InUse(_) | Error::Held(_)) if Instant::now() < deadline && !is_served(volume) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
}

fn is_served(volume: &Path) -> bool {
    Connection::open(volume).is_ok_and(|daemon| daemon.is_some())
}

fn open_file_system(task: &Task, budget: &Budget, announcement: &Announcement) -> Outcome<Arc<FileSystem>> {
    let read_only = task.options.read_only();
    let random = random::bytes().or_fail_doing(exit::MOUNT_SYSTEM, "cannot read /dev/urandom")?;
    let store_options = OpenOptions {
        read_only,
        when_held: match task.options.standby {
            true => WhenHeld::StandsBy(announcement.clone()),
            false => WhenHeld::TakesOver,
        },
        data_device: task.options.data_device.clone(),
        profile: task.options.profile,
        settings: task.options.settings.clone(),
        ..OpenOptions::new(budget.store_bytes_max())
    };
    let options = Options {
        memory_bytes_max: budget.inode_bytes_max(),
        atime: atime_policy(task.options.kernel_flags),
        read_only,
        generation: Some(u32::from_ne_bytes(random)),
    };
    let store = open_store(&task.volume, &store_options).or_fail(exit::MOUNT_FAILED)?;
    FileSystem::open(store, Arc::new(SystemClock), &options).or_fail(exit::MOUNT_FAILED)
}

/// FUSE leaves the times of access to the daemon. Without a flag, relatime holds, as for every Linux file system.
fn atime_policy(kernel_flags: libc::c_ulong) -> AtimePolicy {
    if kernel_flags & (libc::MS_NOATIME | libc::MS_RDONLY) != 0 {
        AtimePolicy::Never
    } else if kernel_flags & libc::MS_STRICTATIME != 0 {
        AtimePolicy::Strict
    } else {
        AtimePolicy::Relative
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_no_use_of_the_volume_and_clones_are() {
        let questions =
            [Request::Version, Request::Stats, Request::DedupStatus, Request::FileNames { maps: Vec::new() }];
        assert!(!questions.iter().any(is_use));
        assert!(is_use(&Request::PrepareClone { inode: 2 }));
    }

    #[test]
    fn access_times_follow_the_mount_flags_with_relatime_as_the_default() {
        assert_eq!(atime_policy(0), AtimePolicy::Relative);
        assert_eq!(atime_policy(libc::MS_STRICTATIME), AtimePolicy::Strict);
        assert_eq!(atime_policy(libc::MS_NOATIME), AtimePolicy::Never);
        assert_eq!(atime_policy(libc::MS_RDONLY), AtimePolicy::Never);
    }
}
