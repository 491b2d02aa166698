//! The daemon: opens the volume, serves the mount, closes the volume.
//!
//! Its life is one function, `serve`. It ends when the kernel releases the mount. A signal only asks for the unmount.

use std::io::Write;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use oncefs_engine::sync::most_held;
use oncefs_engine::{Announcement, BLOCK_BYTES, LeaseEnd, Store};
use oncefs_fuse::{
    Adapter, AdapterConfig, Gate, KnobLock, MOUNT_TYPE, MayAnswer, MountSpec, RoomLeft, RoomWatch, Session,
    SessionSpec, Watched, most_bytes,
};

use super::memory_budget::Budget;
use super::requests::{OpenVolume, Requests};
use super::task::Task;
use super::{logging, metrics_endpoint, systemd};
use crate::control::in_use;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::figures::metrics::{self, Subject};
use crate::mounting::mounter::Mounter;
use crate::mounting::options::MountOptions;
use crate::names::shown;
use crate::process::confinement::confine_daemon;
use crate::process::signals::EndSignals;
use crate::process::{descriptors, memory, privileges, setup};

/// The daemon's line on stdout once the mount exists.
pub const READY: &str = "ready";

/// After a signal, users of the mount have this long to close their files.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// A mount with `until_idle` ends when no file has been open for so long. Commands that work on it one after the other
/// need less.
const IDLE: Duration = Duration::from_secs(3);
const IDLE_LOOK: Duration = Duration::from_millis(300);

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

/// Serves in this process and logs to stderr.
pub fn in_foreground(task: &Task) -> Outcome {
    descriptors::close_inherited();
    let target = task.options.log_file.as_deref().map_or(logging::Target::Stderr, logging::Target::File);
    start_log(&target, task)?;
    serve(task, || Ok(()))
}

/// Serves in the background. Stdout leads to `oncefs mount`: one line, `ready` or an exit code and a message.
pub fn in_background(arguments: ServeArgs) -> Outcome {
    descriptors::close_inherited();
    let served = background_task(arguments).and_then(|task| {
        setup::leave_terminal().or_fail_doing(exit::MOUNT_SYSTEM, "cannot leave the terminal")?;
        let target = task.options.log_file.as_deref().map_or(logging::Target::Syslog, logging::Target::File);
        start_log(&target, &task)?;
        serve(&task, || {
            // The command that started the mount may have ended, but the mount stays.
            let _ = writeln!(std::io::stdout(), "{READY}");
            descriptors::detach_stdio()
        })
    });
    if let Err(failure) = &served {
        log::error!("{}", failure.message);
        // After the mount exists, this line is not read any more.
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
        .or_fail_doing(exit::MOUNT_SYSTEM, format!("cannot open the log {file} (-o logfile=FILE names another)"))
}

fn serve(task: &Task, ready: impl FnOnce() -> std::io::Result<()>) -> Outcome {
    let signals = EndSignals::block();
    setup::prepare();
    let budget = Budget::of(task)?;
    memory::bound_allocator(budget.memory_bytes_max);
    let connection = oncefs_fuse::open_device().or_fail(exit::MOUNT_FAILED)?;
    let mounter = Mounter::start(mount_spec(task), &connection, task.options.until_idle);
    let mounter = Arc::new(mounter.or_fail_doing(exit::MOUNT_SYSTEM, "cannot start the process that mounts")?);
    let knob_lock = KnobLock::open()
        .inspect_err(|e| log::warn!("the kernel's knobs for FUSE stay as they are, and rings may be missing: {e}"))
        .ok();
    let served = listen_for_metrics(task).and_then(|metrics| {
        let kernel = Kernel { connection, mounter: mounter.clone(), knob_lock, metrics };
        give_up_privileges(task)?;
        serve_unprivileged(task, &budget, kernel, signals, ready)
    });
    mounter.end();
    served
}

/// Binds the address while the daemon is allowed to. The mounter was started before, so it does not inherit the socket.
fn listen_for_metrics(task: &Task) -> Outcome<Option<TcpListener>> {
    let Some(address) = task.options.metrics else { return Ok(None) };
    let listener = TcpListener::bind(address);
    if let Some(held) = listener.as_ref().err().and_then(|_| in_use::by_daemon(&task.volume)) {
        // The volume's own daemon may have the address. Another port would not help.
        return Err(Failure::new(exit::MOUNT_FAILED, held));
    }
    let doing = format!("cannot listen on {address} for -o metrics: choose another port");
    listener.map(Some).or_fail_doing(exit::MOUNT_SYSTEM, doing)
}

/// Reduces this process to what it needs to serve the volume: no capability, except to reach a volume in another user's
/// private directory, and no file outside the volume.
fn give_up_privileges(task: &Task) -> Outcome {
    let parts = Store::parts_outside(&task.volume, task.options.data_device.as_deref()).or_fail(exit::MOUNT_FAILED)?;
    // The threads of librados, which start when the volume is opened, are confined too.
    let ports = Store::prepare_objects(&task.volume).or_fail(exit::MOUNT_FAILED)?.unwrap_or_default();
    if let Err(e) = privileges::keep_only(privileges::kept_for(&task.volume)) {
        log::warn!("cannot drop the privileges of root: {e}");
    }
    confine_daemon(&task.volume, &parts, &ports);
    Ok(())
}

/// Resources that the daemon opened before it was confined.
struct Kernel {
    connection: OwnedFd,
    mounter: Arc<Mounter>,
    knob_lock: Option<KnobLock>,
    metrics: Option<TcpListener>,
}

fn serve_unprivileged(
    task: &Task,
    budget: &Budget,
    mut kernel: Kernel,
    signals: EndSignals,
    ready: impl FnOnce() -> std::io::Result<()>,
) -> Outcome {
    let announcement = Announcement::default();
    let open = || OpenVolume::open(task, budget, &announcement);
    let (daemon, signal) = signals.end_while(task.options.standby, || announcement.end(), open);
    let daemon = daemon?;
    if let Some(signal) = signal {
        log::info!("{signal} came while {} was opened: closing it", shown(&task.volume));
        return daemon.close(Requests::Over).or_fail(exit::MOUNT_FAILED);
    }
    let (mounter, metrics) = (&kernel.mounter.clone(), kernel.metrics.take());
    let session = mount(task, budget, &daemon, kernel).inspect_err(|_| drop(daemon.close(Requests::MayCome)))?;
    let watch = start_threads(task, &session, &daemon, mounter, signals)
        .and_then(|watch| answer_prometheus(task, &daemon, metrics).map(|()| watch))
        .inspect_err(|_| mounter.detach())
        .or_fail(exit::MOUNT_SYSTEM)?;
    log::info!("mounted {} on {}", shown(&task.volume), shown(&task.dir));
    if let Some(lease) = daemon.file_system.store().lease() {
        lease.note_serving();
    }
    systemd::notify(systemd::READY);
    ready().or_fail(exit::MOUNT_SYSTEM)?;

    let served = session.run().inspect_err(|e| abort(mounter, e));
    systemd::notify(systemd::STOPPING);
    drop(watch);
    let closed = daemon.close(if served.is_ok() { Requests::Over } else { Requests::MayCome });
    log::info!("unmounted {} from {}", shown(&task.volume), shown(&task.dir));
    say_what_calls_cost();
    let doing = format!("serving {} ended unexpectedly (mount it again)", shown(&task.dir));
    served.or_fail_doing(exit::MOUNT_FAILED, doing)?;
    closed.or_fail(exit::MOUNT_FAILED)
}

/// Logs the largest cost of a call, in a build that counts it.
fn say_what_calls_cost() {
    if let (Some(held), Some(bytes)) = (most_held(), most_bytes()) {
        let (reads, looks) = (held.reads, held.looks);
        log::info!("calls cost at most: reads_held={reads} looks_held={looks} request_bytes={bytes}");
    }
}

/// Aborts the connection after a request was lost. Otherwise its caller, which may be a thread of this process, would
/// wait forever.
fn abort(mounter: &Mounter, why: &std::io::Error) {
    log::error!("requests can be answered no more ({why}): ending the connection, all calls fail from here on");
    if let Err(e) = mounter.guard().abort() {
        log::error!("cannot end the connection: {e}; if this daemon hangs: echo 1 >/sys/fs/fuse/connections/N/abort");
    }
}

fn mount_spec(task: &Task) -> MountSpec {
    let (source, dir, kernel_flags) = (task.volume.clone(), task.dir.clone(), task.options.kernel_flags);
    MountSpec { source, dir, kind: MOUNT_TYPE, kernel_flags }
}

/// Mounts and answers INIT. On an error nothing stays mounted.
fn mount(task: &Task, budget: &Budget, daemon: &Arc<OpenVolume>, kernel: Kernel) -> Outcome<Session> {
    let Kernel { connection, mounter, knob_lock, .. } = kernel;
    let (transport, request_bytes_max) = (budget.transport(), budget.request_bytes_max);
    let spec = SessionSpec { dir: task.dir.clone(), transport, request_bytes_max, knob_lock };
    let config = AdapterConfig {
        request_bytes_max,
        gauge: daemon.gauge.clone(),
        flags: daemon.flags.clone(),
        patience: daemon.patience.clone(),
    };
    let adapter = Adapter::new(daemon.file_system.clone(), config);
    let kernel_cache = adapter.kernel_cache();
    daemon.mounted(kernel_cache.clone());
    let (stopped, syncer) = (daemon.clone(), mounter.clone());
    let shut_down = Arc::new(move |mode, close: &dyn Fn()| stopped.shut_down(mode, || syncer.sync(), close));
    let lease = daemon.file_system.store().lease();
    let may_answer = lease.map(|lease| -> MayAnswer { Arc::new(move || lease.wait()) });
    let session = Session::mount(Gate::new(adapter, shut_down, may_answer), connection, &spec, || mounter.mount())
        .inspect_err(|_| mounter.detach())
        .or_fail(exit::MOUNT_FAILED)?;
    kernel_cache.connect(session.notifier()).or_fail_doing(exit::MOUNT_SYSTEM, "cannot start a thread")?;
    Ok(session)
}

fn start_threads(
    task: &Task,
    session: &Session,
    daemon: &Arc<OpenVolume>,
    mounter: &Arc<Mounter>,
    signals: EndSignals,
) -> std::io::Result<RoomWatch> {
    let (dir, ending, unmounter) = (task.dir.clone(), daemon.clone(), mounter.clone());
    let watch = move || end_on_signal(&signals, &dir, &ending, &unmounter);
    std::thread::Builder::new().name("signals".into()).spawn(watch)?;
    watch_lease(daemon, mounter)?;
    if task.options.until_idle {
        let (daemon, mounter) = (daemon.clone(), mounter.clone());
        std::thread::Builder::new().name("until-idle".into()).spawn(move || end_when_idle(&daemon, &mounter))?;
    }
    let (store, mounter) = (daemon.file_system.store().clone(), mounter.clone());
    let watched = Watched {
        device: session.device(),
        ram_bytes: memory::ram_bytes(),
        flags: daemon.flags.clone(),
        left: move || RoomLeft {
            available_bytes: store.available().0 * BLOCK_BYTES as u64,
            data_bytes: store.totals().data.0 * BLOCK_BYTES as u64,
        },
        set_synchronous: move |is_on| mounter.set_synchronous(is_on),
    };
    RoomWatch::start(watched, daemon.gauge.clone())
}

/// Serves metrics on the address of `-o metrics`, if there is one.
fn answer_prometheus(task: &Task, daemon: &Arc<OpenVolume>, listener: Option<TcpListener>) -> std::io::Result<()> {
    let Some(listener) = listener else { return Ok(()) };
    log::info!("metrics: http://{}/metrics", listener.local_addr()?);
    let (task, daemon) = (task.clone(), daemon.clone());
    let text = move || metrics::text(&[Subject::of(&daemon.snapshot(&task))]);
    metrics_endpoint::serve(listener, metrics_endpoint::Bounds::default(), text)
}

/// Once the lease of a volume in objects is over, another machine may serve the volume. So the connection ends before
/// anything else, with what the kernel has in its caches, and nothing more becomes durable.
fn watch_lease(daemon: &Arc<OpenVolume>, mounter: &Arc<Mounter>) -> std::io::Result<()> {
    let store = daemon.file_system.store();
    let Some(lease) = store.lease() else { return Ok(()) };
    // The volume's lock goes with the last reference to it.
    let (store, mounter) = (Arc::downgrade(store), mounter.clone());
    let watch = move || {
        let Some(end) = lease.wait_for_end() else { return };
        let why = match end {
            LeaseEnd::TakenOver => "another machine took the volume over",
            LeaseEnd::Gone => "the volume's pool was deleted",
            LeaseEnd::Paused => {
                "this process stood still for longer than its lease, so another machine may serve the volume"
            }
        };
        abort(&mounter, &std::io::Error::other(why));
        mounter.detach();
        if let Some(store) = store.upgrade() {
            store.shut_down();
        }
    };
    std::thread::Builder::new().name("lease-watch".into()).spawn(watch).map(drop)
}

/// Unmounts once no file has been open for `IDLE`. A mount that is in use in another way, by a working directory or a
/// disk's device, gets as much time again.
fn end_when_idle(daemon: &OpenVolume, mounter: &Mounter) {
    let mut idle_since = Instant::now();
    loop {
        std::thread::sleep(IDLE_LOOK);
        if daemon.has_open_files() {
            idle_since = Instant::now();
        } else if idle_since.elapsed() >= IDLE {
            match mounter.unmount() {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => idle_since = Instant::now(),
                // Unmounted, or gone already.
                _ => return,
            }
        }
    }
}

/// After a signal, writes back the kernel's dirty pages, unmounts, and closes the volume even if files are still open.
fn end_on_signal(signals: &EndSignals, dir: &Path, daemon: &OpenVolume, mounter: &Mounter) {
    if let Err(e) = mounter.guard().watch_me() {
        log::debug!("nobody watches over the end of this process: {e}");
    }
    let Some(signal) = signals.wait(None) else {
        return;
    };
    log::info!("{signal}: unmounting {}", shown(dir));
    // To sync waits for what is being written.
    daemon.patience.end_all();
    if let Err(e) = mounter.sync() {
        log::warn!("cannot sync {}: {e}", shown(dir));
    }
    match mounter.unmount() {
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {
            log::warn!("{} is in use: detached it, waiting for programs to close their files", shown(dir));
            mounter.detach();
        }
        // Any other error means that the mount is already gone.
        _ => {}
    }
    signals.wait(Some(END_PATIENCE));
    log::warn!("{} is still in use: closing the volume anyway", shown(dir));
    // This thread ends the process, so it waits for one that has closed the volume to give up the lock in the cluster.
    let closed = daemon.close(Requests::MayCome);
    // The mounter outlives this process, so that this process's last thread is not the last in the mount's namespace.
    std::process::exit(if closed.is_ok() { 0 } else { exit::FAILED.into() });
}
