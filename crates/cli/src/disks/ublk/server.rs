//! The process of a ublk device: makes the device, serves it, and removes it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::Args;
use log::LevelFilter;

use super::control::Control;
use super::queue::Queue;
use super::record::{Record, device};
use super::wire::{self, ANY_NUMBER, Info, Numbers};
use crate::daemon::logging;
use crate::disks::SECTOR_BYTES;
use crate::disks::front::hold;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;
use crate::process::{descriptors, setup};

/// Asks the process to end as soon as the device is not in use.
pub const END_UNUSED: libc::c_int = libc::SIGUSR1;
/// The thread that serves the queue has ended.
const QUEUE_ENDED: libc::c_int = libc::SIGUSR2;
/// Signals for the process. One that asks it to end must not take a mounted device away.
const SIGNALS: [libc::c_int; 5] = [END_UNUSED, QUEUE_ENDED, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

/// Longest request.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// How often a device is asked whether it is still in use: soon after a change of mounts, then more rarely.
const LOOK_AGAIN_FIRST: Duration = Duration::from_millis(10);
const LOOK_AGAIN_LAST: Duration = Duration::from_secs(5);

/// Arguments of `disk serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Requests under way at most
    #[arg(long)]
    requests: u16,
    /// Refuse writes to the device
    #[arg(long)]
    read_only: bool,
}

/// Serves the disk that is standard input. Prints the device once it can be used.
pub fn serve(arguments: &ServeArgs) -> Outcome {
    descriptors::close_inherited();
    setup::leave_terminal().or_fail_doing(exit::FAILED, "cannot leave the terminal")?;
    logging::start(&logging::Target::Syslog, LevelFilter::Info).or_fail_doing(exit::FAILED, "cannot log")?;
    setup::prepare();
    let signals = Signals::block();
    let disk = open_disk(arguments.read_only).or_fail_doing(exit::FAILED, "cannot open the disk for direct I/O")?;
    let mut control = Control::open().or_fail(exit::FAILED)?;
    let info =
        Info { number: ANY_NUMBER, depth: arguments.requests, request_bytes_max: REQUEST_BYTES_MAX, is_live: false };
    let added = control.add(&info).or_fail_doing(exit::FAILED, "cannot make a ublk device")?;
    let run = run(&mut control, &added, disk, arguments.read_only, &signals);
    let removed = control.remove(added.number).or_fail_doing(exit::FAILED, "cannot remove the ublk device");
    run.and(removed).inspect_err(|failure| log::error!("{}: {}", shown(&device(added.number)), failure.message))
}

/// Serves a device until it is not wanted any more. Then all but the driver's part of it is gone.
fn run(control: &mut Control, info: &Info, disk: File, is_read_only: bool, signals: &Signals) -> Outcome {
    let doing = || format!("cannot serve the ublk device {}", info.number);
    let found = disk.metadata().or_fail_doing(exit::FAILED, doing())?;
    let block_shift = SECTOR_BYTES.trailing_zeros() as u8;
    let mut parameters = wire::parameters(found.len(), info.request_bytes_max, block_shift, is_read_only);
    control.set_parameters(info.number, &mut parameters).or_fail_doing(exit::FAILED, doing())?;
    let own = PathBuf::from(format!("/dev/ublkc{}", info.number));
    let server = File::options().read(true).write(true).open(&own).or_fail_doing(exit::FAILED, doing())?;
    let record = Record {
        number: info.number,
        process: std::process::id().cast_signed(),
        descriptor: disk.as_raw_fd(),
        file: (found.dev(), found.ino()),
        ends: false,
    };
    let kept = record.keep().or_fail_doing(exit::FAILED, doing())?;
    let is_started = Arc::new(AtomicBool::new(false));
    let queue = serve_queue(server, disk, control.numbers(), *info, is_started.clone());
    let queue = queue.or_fail_doing(exit::FAILED, doing())?;
    if let Err(e) = control.start(info.number) {
        // The thread of the queue has the device open, and the next command removes what is left of it.
        tell!("oncefs: {}: {e}", doing());
        std::process::exit(exit::FAILED.into());
    }
    is_started.store(true, Ordering::SeqCst);
    // The command that asked for the device may have ended, but the device stays.
    let _ = writeln!(io::stdout(), "{}", shown(&device(info.number)));
    let _ = descriptors::detach_stdio();
    let held = wait(&device(info.number), signals);
    // Held meanwhile, so nothing can mount it.
    let stopped = control.stop(info.number).or_fail_doing(exit::FAILED, "cannot stop the ublk device");
    drop(held);
    stopped?;
    let served = queue.join().map_err(|_| Failure::new(exit::FAILED, "the thread of the queue panicked"))?;
    drop(kept);
    served.or_fail_doing(exit::FAILED, doing())
}

/// Starts the thread of the queue, which owns what it serves. If it ends before the device started, the start would
/// wait for ever, so the process ends.
fn serve_queue(
    server: File,
    disk: File,
    numbers: Numbers,
    info: Info,
    is_started: Arc<AtomicBool>,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let serve = move || {
        let bytes = info.request_bytes_max as usize;
        let served = Queue::new(&server, &disk, numbers, info.depth, bytes).and_then(Queue::serve);
        if !is_started.load(Ordering::SeqCst) {
            let why = served.as_ref().err().map_or_else(|| "the kernel ended it".to_owned(), ToString::to_string);
            tell!("oncefs: cannot serve the ublk device {}: {why}", info.number);
            std::process::exit(exit::FAILED.into());
        }
        // SAFETY: a signal to this process, which waits for it.
        unsafe { libc::kill(libc::getpid(), QUEUE_ENDED) };
        served
    };
    thread::Builder::new().name("ublk".into()).spawn(serve)
}

/// Opens standard input anew, with an own position and flags, and lets go of it: its lock belongs to the command.
fn open_disk(is_read_only: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(!is_read_only).custom_flags(libc::O_DIRECT);
    let disk = options.open("/proc/self/fd/0")?;
    let null = File::open("/dev/null")?;
    // SAFETY: dup2 between open descriptors. Standard input has no owner.
    setup::check(unsafe { libc::dup2(null.as_raw_fd(), libc::STDIN_FILENO) }.min(0))?;
    Ok(disk)
}

/// Waits until the device is stopped, or is not in use after that was asked for. Returns it held then.
fn wait(device: &Path, signals: &Signals) -> Option<File> {
    match signals.wait(None) {
        Some(QUEUE_ENDED) => return None,
        asked => log::info!("{} ends once it is not in use (signal {})", shown(device), asked.unwrap_or(0)),
    }
    let mounts = File::open("/proc/self/mountinfo").ok();
    let mut pause = LOOK_AGAIN_FIRST;
    loop {
        // Another error than that it is in use: it is gone, or nothing can use it.
        match hold(device) {
            Ok(held) => return Some(held),
            Err(_) if signals.wait(Some(Duration::ZERO)) == Some(QUEUE_ENDED) => return None,
            Err(_) => {}
        }
        pause = match &mounts {
            Some(mounts) if await_change(mounts, pause) => LOOK_AGAIN_FIRST,
            Some(_) => (pause * 2).min(LOOK_AGAIN_LAST),
            None => {
                thread::sleep(pause);
                (pause * 2).min(LOOK_AGAIN_LAST)
            }
        };
    }
}

/// Waits for a change of the mount table. False: there was none within this time.
fn await_change(mounts: &File, timeout: Duration) -> bool {
    let mut poll = libc::pollfd { fd: mounts.as_fd().as_raw_fd(), events: libc::POLLPRI, revents: 0 };
    // SAFETY: one pollfd that outlives the call.
    unsafe { libc::poll(&mut poll, 1, timeout.as_millis() as libc::c_int) > 0 }
}

/// The signals of the process, blocked in all its threads.
struct Signals(libc::sigset_t);

impl Signals {
    fn block() -> Self {
        // SAFETY: a signal set is plain data; the calls fill and read it.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in SIGNALS {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            Self(set)
        }
    }

    /// Takes the next one. None: none came within the timeout.
    fn wait(&self, timeout: Option<Duration>) -> Option<libc::c_int> {
        loop {
            let signal = match timeout {
                // SAFETY: the set is initialised; null asks for no details.
                None => unsafe { libc::sigwaitinfo(&self.0, std::ptr::null_mut()) },
                Some(timeout) => {
                    let (seconds, nanos) = (timeout.as_secs().cast_signed(), timeout.subsec_nanos());
                    let timeout = libc::timespec { tv_sec: seconds, tv_nsec: nanos.into() };
                    // SAFETY: set and timeout outlive the call; null asks for no details.
                    unsafe { libc::sigtimedwait(&self.0, std::ptr::null_mut(), &timeout) }
                }
            };
            match signal {
                1.. => return Some(signal),
                _ if io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) => return None,
                _ => {}
            }
        }
    }
}
