//! The daemon: opens the volume, serves the mount, closes the volume.
//!
//! Its life is one function, `serve`. It ends when the kernel lets go of the mount, whoever unmounted it;
//! a signal only asks for that.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use clap::Args;
use oncefs_engine::{BLOCK_BYTES, Blocks, DedupCommand, DefragOptions, Error, Lbn, MapId, OpenOptions, Store};
use oncefs_fs::{AtimePolicy, DamagedFile, DamagedRange, FileSystem, Ino, Options, SystemClock, paths_of_maps};
use oncefs_fuse::{Adapter, AdapterConfig, DirtyLimit, MountSpec, Session, SessionSpec};
use serde::Serialize;
use serde_json::{Value, json};

use crate::commands::{policy, scrub};
use crate::control::client::Connection;
use crate::control::protocol::{About, Request, Tuned};
use crate::control::server::{Handler, Server};
use crate::daemon::{logging, systemd};
use crate::failure::{OrFail, Outcome, exit};
use crate::mounting::mount_table::shown;
use crate::mounting::mounter::Mounter;
use crate::mounting::options::MountOptions;
use crate::process::confinement::confine_daemon;
use crate::process::privileges;
use crate::process::setup::{self, EndSignals};
use crate::profiles;

/// The daemon's word when the mount is there.
pub const READY: &str = "ready";

/// After a signal, users of the mount have this long to close their files.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A process that is being killed gives up its files within this time.
const DYING_PATIENCE: Duration = Duration::from_secs(3);

/// The inode cache's share of the memory; the rest is the store's.
const INODES_SHARE_OF_MEMORY: u64 = 16;

/// One WRITE or READ carries a MiB, the kernel's own limit for unprivileged settings.
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Where the last part of a volume begins, in which writes bypass the page cache.
const DIRECT_IO_SHARE_OF_DATA: u64 = 64;
const DIRECT_IO_BYTES_MAX: u64 = 64 << 20;

/// Names told of one file.
const NAMES_OF_A_FILE_MAX: usize = 8;
/// Bytes of names in one answer: half of what a line may have.
const NAMES_BYTES_MAX: usize = 2 << 20;

/// Arguments of `serve`. Paths are absolute.
#[derive(Debug, Args)]
pub struct ServeArgs {
    pub volume: PathBuf,
    pub dir: PathBuf,
    #[arg(short = 'o')]
    pub options: String,
    #[arg(long)]
    pub log_file: Option<PathBuf>,
}

/// What to serve. Paths are absolute and without links.
#[derive(Debug)]
pub struct Task {
    pub volume: PathBuf,
    pub dir: PathBuf,
    pub options: MountOptions,
}

/// Serves in this process and logs to stderr.
pub fn in_foreground(task: &Task) -> Outcome {
    setup::close_inherited();
    let target = task.options.log_file.as_deref().map_or(logging::Target::Stderr, logging::Target::File);
    start_log(&target, task)?;
    serve(task, || Ok(()))
}

/// Serves in the background. Stdout leads to `oncefs mount`: one line, `ready` or an exit code and a message.
pub fn in_background(arguments: ServeArgs) -> Outcome {
    setup::close_inherited();
    let served = background_task(arguments).and_then(|task| {
        setup::leave_terminal().or_fail_doing(exit::MOUNT_SYSTEM, "cannot leave the terminal")?;
        let target = task.options.log_file.as_deref().map_or(logging::Target::Syslog, logging::Target::File);
        start_log(&target, &task)?;
        serve(&task, || {
            // Who started the mount may have left; the mount is there all the same.
            let _ = writeln!(std::io::stdout(), "{READY}");
            setup::detach_stdio()
        })
    });
    if let Err(failure) = &served {
        log::error!("{}", failure.message);
        // Nobody listens any more if the mount had been there.
        let _ = writeln!(std::io::stdout(), "{} {}", failure.code, failure.message);
    }
    served
}

fn background_task(arguments: ServeArgs) -> Outcome<Task> {
    let mut options = MountOptions { log_file: arguments.log_file, ..MountOptions::default() };
    options.apply(&arguments.options).or_fail(exit::MOUNT_USAGE)?;
    Ok(Task { volume: arguments.volume, dir: arguments.dir, options })
}

fn start_log(target: &logging::Target, task: &Task) -> Outcome {
    let file = task.options.log_file.as_deref().map(shown).unwrap_or_default();
    logging::start(target, task.options.log_level)
        .or_fail_doing(exit::MOUNT_SYSTEM, format!("cannot start the log {file}"))
}

fn serve(task: &Task, ready: impl FnOnce() -> std::io::Result<()>) -> Outcome {
    let signals = EndSignals::block();
    setup::prepare();
    let bounds = Bounds::of(task)?;
    setup::bound_allocator(bounds.memory_bytes_max);
    let connection = oncefs_fuse::open_device().or_fail(exit::MOUNT_FAILED)?;
    let mounter = Mounter::start(mount_spec(task), &connection);
    let mounter = Arc::new(mounter.or_fail_doing(exit::MOUNT_SYSTEM, "cannot start a process")?);
    let served =
        give_up_privileges(task).and_then(|()| serve_unprivileged(task, &bounds, connection, &mounter, signals, ready));
    mounter.end();
    served
}

/// Leaves this process what serving the volume takes: no capability, but for the way to a volume in a private directory
/// of another user, and no file outside of the volume.
fn give_up_privileges(task: &Task) -> Outcome {
    let parts = Store::parts_outside(&task.volume).or_fail(exit::MOUNT_FAILED)?;
    if let Err(e) = privileges::keep_only(privileges::kept_for(&task.volume)) {
        log::warn!("cannot give up the privileges of root: {e}");
    }
    confine_daemon(&task.volume, &parts);
    Ok(())
}

fn serve_unprivileged(
    task: &Task,
    bounds: &Bounds,
    connection: OwnedFd,
    mounter: &Arc<Mounter>,
    signals: EndSignals,
    ready: impl FnOnce() -> std::io::Result<()>,
) -> Outcome {
    let daemon = Daemon::open(task, bounds)?;
    let session = mount(task, bounds, &daemon, connection, mounter).inspect_err(|_| drop(daemon.close()))?;
    let limit = start_threads(task, &session, &daemon, mounter, signals)
        .inspect_err(|_| mounter.detach())
        .or_fail(exit::MOUNT_SYSTEM)?;
    log::info!("mounted {} on {}", shown(&task.volume), shown(&task.dir));
    systemd::tell(systemd::READY);
    ready().or_fail(exit::MOUNT_SYSTEM)?;

    let served = session.run();
    systemd::tell(systemd::STOPPING);
    drop(limit);
    let closed = daemon.close();
    log::info!("unmounted {} from {}", shown(&task.volume), shown(&task.dir));
    served.or_fail_doing(exit::MOUNT_FAILED, "serving the mount ended early")?;
    closed.or_fail(exit::MOUNT_FAILED)
}

/// What the daemon may take: by option, else by the profile.
struct Bounds {
    memory_bytes_max: u64,
    threads: usize,
    request_bytes_max: u32,
}

impl Bounds {
    fn of(task: &Task) -> Outcome<Self> {
        let options = &task.options;
        let own = || Store::profile_of(&task.volume).or_fail(exit::MOUNT_FAILED);
        let profile = options.profile.map_or_else(own, Ok)?;
        let memory_bytes_max = options.memory.unwrap_or_else(|| profiles::default_memory(profile, setup::ram_bytes()));
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = options.threads.unwrap_or_else(|| profiles::default_threads(profile, cpus));
        let request_bytes_max =
            options.max_write.or_else(|| profiles::default_max_write(profile)).unwrap_or(REQUEST_BYTES_MAX);
        Ok(Self { memory_bytes_max, threads, request_bytes_max })
    }
}

fn mount_spec(task: &Task) -> MountSpec {
    MountSpec { volume: task.volume.clone(), dir: task.dir.clone(), kernel_flags: task.options.kernel_flags }
}

/// Mounts and answers INIT. On an error nothing stays mounted.
fn mount(
    task: &Task,
    bounds: &Bounds,
    daemon: &Daemon,
    connection: OwnedFd,
    mounter: &Mounter,
) -> Outcome<Session<Adapter>> {
    let spec =
        SessionSpec { dir: task.dir.clone(), threads: bounds.threads, request_bytes_max: bounds.request_bytes_max };
    let config = AdapterConfig {
        request_bytes_max: spec.request_bytes_max,
        direct_io_below_bytes: direct_io_below(daemon.file_system.store().totals().data.0 * BLOCK_BYTES as u64),
    };
    let adapter = Adapter::new(daemon.file_system.clone(), config);
    let kernel_cache = adapter.kernel_cache();
    let session = Session::mount(adapter, connection, &spec, || mounter.mount())
        .inspect_err(|_| mounter.detach())
        .or_fail(exit::MOUNT_FAILED)?;
    kernel_cache.connect(session.notifier()).or_fail_doing(exit::MOUNT_SYSTEM, "cannot start a thread")?;
    Ok(session)
}

fn start_threads(
    task: &Task,
    session: &Session<Adapter>,
    daemon: &Arc<Daemon>,
    mounter: &Arc<Mounter>,
    signals: EndSignals,
) -> std::io::Result<DirtyLimit> {
    let (dir, ending, mounter) = (task.dir.clone(), daemon.clone(), mounter.clone());
    let watch = move || end_on_signal(&signals, &dir, &ending, &mounter);
    std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    let daemon = daemon.clone();
    let available = move || daemon.file_system.store().totals().available.0 * BLOCK_BYTES as u64;
    DirtyLimit::follow(session.device(), setup::ram_bytes(), available)
}

/// Asked to end: hands the kernel's dirty pages over, unmounts, and closes the volume under whoever does not let go.
fn end_on_signal(signals: &EndSignals, dir: &Path, daemon: &Daemon, mounter: &Mounter) {
    let Some(signal) = signals.wait(None) else {
        return;
    };
    log::info!("{signal}: unmounting {}", shown(dir));
    if let Err(e) = mounter.sync() {
        log::warn!("cannot sync {}: {e}", shown(dir));
    }
    match mounter.unmount() {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            log::warn!("{} is in use: detached, waiting for its users", shown(dir));
            mounter.detach();
        }
        // Whatever else it is: the mount is gone already.
        _ => {}
    }
    signals.wait(Some(END_PATIENCE));
    log::warn!("{} is still in use: closing the volume", shown(dir));
    let closed = daemon.close();
    mounter.end();
    std::process::exit(if closed.is_ok() { 0 } else { exit::FAILED.into() });
}

struct Daemon {
    file_system: Arc<FileSystem>,
    read_only: bool,
    control: OnceLock<Server>,
    closed: OnceLock<Result<(), String>>,
}

impl Daemon {
    fn open(task: &Task, bounds: &Bounds) -> Outcome<Arc<Self>> {
        let file_system = open_file_system(task, bounds)?;
        let read_only = task.options.read_only();
        let daemon = Arc::new(Self { file_system, read_only, control: OnceLock::new(), closed: OnceLock::new() });
        match Server::start(&task.volume, daemon.clone()) {
            Ok(server) => drop(daemon.control.set(server)),
            Err(e) => log::warn!(
                "no control socket in {}: {e}: stats and umount cannot talk to this mount",
                shown(&task.volume)
            ),
        }
        Ok(daemon)
    }

    /// Closes the volume, once, and tells those who wait for it.
    fn close(&self) -> Result<(), String> {
        let close = || {
            if let Some(control) = self.control.get() {
                control.announce_closing();
            }
            let closed = self.file_system.close().and_then(|()| self.file_system.flush());
            let outcome = closed.map_err(|e| format!("not everything became durable: {e}"));
            if let Some(control) = self.control.get() {
                control.announce_closed(outcome.clone());
            }
            outcome
        };
        self.closed.get_or_init(close).clone()
    }

    fn stats(&self) -> Result<Value, String> {
        let mut report = self.file_system.report();
        if let Some(why) = self.file_system.store().failure() {
            report.settings.insert("read_only_because".to_owned(), why);
        }
        serde_json::to_value(report).map_err(|e| e.to_string())
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
            return Err("the volume was opened read-only: nothing is deduplicated".into());
        }
        self.file_system.store().dedup(command);
        Ok(Value::Null)
    }

    fn damage(&self, places_max: usize) -> Result<Value, String> {
        let (files, complete) = self.file_system.damaged_files(places_max).map_err(|e| e.to_string())?;
        let range = |range: &DamagedRange| scrub::Range { at: range.at, len: range.len, lost: range.is_lost };
        let file = |file: &DamagedFile| scrub::File {
            inode: file.ino.map(|ino| ino.0),
            paths: file.paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect(),
            ranges: file.ranges.iter().map(range).collect(),
        };
        Ok(json!(scrub::Damage { files: files.iter().map(file).collect(), complete }))
    }
}

impl Daemon {
    /// The names of files by map, as many as an answer may have.
    fn names(&self, maps: &[u64]) -> Result<Value, String> {
        let maps = maps.iter().copied().map(MapId).collect();
        let found = paths_of_maps(self.file_system.store(), &maps).map_err(|e| e.to_string())?;
        let mut bytes = 0;
        let mut names = BTreeMap::new();
        for (MapId(map), mut paths) in found {
            paths.truncate(NAMES_OF_A_FILE_MAX);
            // As they are answered: an escaped byte is up to six.
            bytes += json!(paths).to_string().len();
            if bytes <= NAMES_BYTES_MAX {
                names.insert(map, paths);
            }
        }
        Ok(json!(names))
    }
}

impl Handler for Daemon {
    fn answer(&self, request: &Request) -> Result<Value, String> {
        let store = self.file_system.store();
        match request {
            Request::Version => {
                Ok(json!(About { program: env!("CARGO_PKG_VERSION").into(), read_only: self.read_only }))
            }
            Request::Stats => self.stats(),
            Request::Commit => store.commit().map(|()| Value::Null).map_err(|e| e.to_string()),
            Request::Grow { bytes } => store.grow(*bytes).map(|()| Value::Null).map_err(|e| e.to_string()),
            Request::Atime { kernel_flags } => {
                self.file_system.set_atime_policy(atime_policy(*kernel_flags));
                Ok(Value::Null)
            }
            Request::Settings => Ok(json!(store.settings())),
            Request::Tune { changes } => self.tune(changes),
            Request::Dedup { command } => self.dedup(*command),
            Request::DedupStatus => Ok(json!(store.dedup_status())),
            Request::Scrub { command } => store.scrub(*command).map(|()| Value::Null).map_err(|e| e.to_string()),
            Request::ScrubStatus => Ok(json!(store.scrub_status())),
            Request::Damage { places_max } => self.damage(*places_max),
            Request::Explain { inode, lbn } => told(self.file_system.explain(Ino(*inode), Lbn(*lbn))),
            Request::Referrers { blocks, from } => told(store.referrers(blocks, *from)),
            Request::Names { maps } => self.names(maps),
            Request::Layout { from } => told(store.layout(*from)),
            Request::Defrag { inode, from, run_blocks_min, space_blocks, dry_run } => {
                let (from, space) = (Lbn(*from), Blocks(*space_blocks));
                let (run_blocks_min, dry_run) = (*run_blocks_min, *dry_run);
                let options = DefragOptions { from, run_blocks_min, space, dry_run, ..DefragOptions::default() };
                self.file_system.defrag(Ino(*inode), &options).map(|outcome| json!(outcome)).map_err(|e| e.to_string())
            }
            Request::Policy { inode } => told(self.file_system.effective(Ino(*inode)).map(policy::EffectiveView::of)),
            Request::WaitExit => Err("the server keeps these to itself".into()),
        }
    }
}

fn told<T: Serialize, E: Display>(answer: Result<T, E>) -> Result<Value, String> {
    answer.map(|answer| json!(answer)).map_err(|e| e.to_string())
}

/// A daemon that was killed holds the volume's lock a moment longer than its mount.
fn open_store(volume: &Path, options: &OpenOptions) -> oncefs_engine::Result<Arc<Store>> {
    let deadline = Instant::now() + DYING_PATIENCE;
    loop {
        match Store::open(volume, options) {
            Err(Error::InUse(_)) if Instant::now() < deadline && !is_served(volume) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return other,
        }
    }
}

fn is_served(volume: &Path) -> bool {
    Connection::open(volume).is_ok_and(|daemon| daemon.is_some())
}

fn open_file_system(task: &Task, bounds: &Bounds) -> Outcome<Arc<FileSystem>> {
    let inodes = bounds.memory_bytes_max / INODES_SHARE_OF_MEMORY;
    let read_only = task.options.read_only();
    let store_options = OpenOptions {
        read_only,
        profile: task.options.profile,
        settings: task.options.settings.clone(),
        ..OpenOptions::new(bounds.memory_bytes_max - inodes)
    };
    let options = Options { memory_bytes_max: inodes, atime: atime_policy(task.options.kernel_flags), read_only };
    let store = open_store(&task.volume, &store_options).or_fail(exit::MOUNT_FAILED)?;
    FileSystem::open(store, Arc::new(SystemClock), &options).or_fail(exit::MOUNT_FAILED)
}

/// With less than this available, files opened for writing bypass the page cache: write(2) itself reports a full disk.
fn direct_io_below(data_bytes: u64) -> u64 {
    (data_bytes / DIRECT_IO_SHARE_OF_DATA).min(DIRECT_IO_BYTES_MAX)
}

/// FUSE leaves the times of access to the daemon; without a word relatime holds, as for every Linux file system.
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
    fn access_times_follow_the_mount_flags_with_relatime_as_the_default() {
        assert_eq!(atime_policy(0), AtimePolicy::Relative);
        assert_eq!(atime_policy(libc::MS_STRICTATIME), AtimePolicy::Strict);
        assert_eq!(atime_policy(libc::MS_NOATIME), AtimePolicy::Never);
        assert_eq!(atime_policy(libc::MS_RDONLY), AtimePolicy::Never);
    }
}
