//! A mounted file system that stands still for a moment: nothing is written to its device meanwhile.
//!
//! A process of its own freezes it, and thaws it as soon as the command is done or has ended, however it ended, or after
//! [`FREEZE_MAX`]. If that process ends first, the command thaws the file system. The process starts before the moment
//! comes, because starting one takes long on a busy machine, and it writes back most before it freezes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use super::grace_periods::ShortGracePeriods;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;

/// The ioctls of a mount.
const FIFREEZE: libc::Ioctl = 0xC004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878_u32 as libc::Ioctl;

/// The line with which the command asks the process to freeze the file system.
const FREEZE: &str = "freeze";
/// The line that the process prints once the file system stands still.
const FROZEN: &str = "frozen";
/// Begins the line with which it says that it has thawed the file system, and for how many microseconds it stood still.
const STOOD: &str = "stood ";
/// The line if the process thawed the file system before the command was done.
const LATE: &str = "late";
/// The line if another program thawed the file system before the process did.
const LOST: &str = "lost";

/// The file system stands still for no longer than this: its programs wait, and the command may hang.
const FREEZE_MAX: Duration = Duration::from_secs(10);

/// The file system is written back again until that takes less than this, because all that is written meanwhile is
/// written while it stands still, ...
const SYNC_SHORT: Duration = Duration::from_millis(10);
/// ... but no more often than this.
const SYNCS_MAX: usize = 4;

/// A mounted file system, which cannot be unmounted meanwhile.
pub struct Mounted {
    dir: PathBuf,
    /// The number of its device.
    device: u64,
    root: File,
}

impl Mounted {
    /// Opens the file system mounted on `dir`, if it is that of the device with this number. Another one may be mounted
    /// there by now, or over it.
    pub fn open(dir: &Path, device: u64) -> Outcome<Self> {
        let root = File::open(dir).or_fail_doing(exit::FAILED, cannot_freeze(dir))?;
        let found = root.metadata().or_fail_doing(exit::FAILED, cannot_freeze(dir))?.dev();
        if found != device {
            let text = format!("{}: another one is mounted there, or it was unmounted just now", cannot_freeze(dir));
            return Err(Failure::new(exit::FAILED, text));
        }
        Ok(Self { dir: dir.to_owned(), device, root })
    }
}

/// A process that is ready to freeze a file system.
pub struct Keeper {
    process: Child,
    said: BufReader<ChildStdout>,
    dir: PathBuf,
    /// Keeps the file system from being unmounted.
    root: File,
    /// The process may have frozen the file system, and nothing has said that it is thawed. Without this, a thaw could
    /// undo the freeze of another program.
    is_asked: bool,
}

/// A file system that stands still until this ends or is dropped.
pub struct Standstill(Keeper);

/// How a standstill ended.
enum End {
    /// The process or the command thawed the file system. The process says how long it stood still.
    Thawed(Option<Duration>),
    /// The process thawed it before the command was done.
    Late,
    /// Another program thawed it, at an unknown moment.
    ByAnother,
}

impl Keeper {
    /// Starts the process for a file system, and writes back what the kernel holds of it.
    pub fn start(Mounted { dir, device, root }: &Mounted) -> Outcome<Self> {
        let failed = || cannot_freeze(dir);
        let root = root.try_clone().or_fail_doing(exit::FAILED, failed())?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("oncefs").args(["disk", "stand-still"]).arg(dir).arg(device.to_string());
        command.process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().or_fail_doing(exit::FAILED, failed())?;
        let said = BufReader::new(process.stdout.take().expect("stdout was asked to be a pipe"));
        // SAFETY: an open descriptor. An error is no error yet: the file system is written again before it is frozen.
        unsafe { libc::syncfs(root.as_raw_fd()) };
        Ok(Self { process, said, dir: dir.to_owned(), root, is_asked: false })
    }

    /// Writes the rest to the file system's device, and lets it stand still.
    pub fn freeze(mut self) -> Outcome<Standstill> {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let short = ShortGracePeriods::begin();
        self.is_asked = true;
        let stdin = self.process.stdin.as_mut().expect("stdin was asked to be a pipe");
        // If the process has ended, this fails, and what it has said tells why.
        let _ = writeln!(stdin, "{FREEZE}").and_then(|()| stdin.flush());
        let heard = self.hears();
        drop(short);
        if heard?.trim_end() == FROZEN {
            return Ok(Standstill(self));
        }
        let mut why = String::new();
        if let Some(stderr) = &mut self.process.stderr {
            stderr.read_to_string(&mut why).or_fail_doing(exit::FAILED, cannot_freeze(&self.dir))?;
        }
        let status = self.process.wait().or_fail_doing(exit::FAILED, cannot_freeze(&self.dir))?;
        // With this code it says that it has not frozen the file system. One that was killed may have.
        self.is_asked = status.code() != Some(exit::FAILED.into());
        let why = why.trim().trim_start_matches("oncefs: ");
        Err(Failure::new(exit::FAILED, if why.is_empty() { cannot_freeze(&self.dir) } else { why.to_owned() }))
    }

    /// Lets the file system go on.
    fn thaw(&mut self) -> io::Result<End> {
        drop(self.process.stdin.take());
        let line = self.hears().unwrap_or_default();
        let stood = line.trim_end().strip_prefix(STOOD).and_then(|micros| micros.parse().ok());
        let end = match (line.trim_end(), stood) {
            (LATE, _) => End::Late,
            (LOST, _) => End::ByAnother,
            (_, Some(micros)) => End::Thawed(Some(Duration::from_micros(micros))),
            _ => {
                // It was killed or could not thaw the file system. A freeze outlives the process that asked for it.
                self.process.wait()?;
                match request(&self.root, FITHAW) {
                    Ok(()) => End::Thawed(None),
                    Err(error) if is_not_frozen(&error) => End::ByAnother,
                    Err(error) => return Err(error),
                }
            }
        };
        self.is_asked = false;
        Ok(end)
    }

    /// The next line of the process.
    fn hears(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.said.read_line(&mut line).or_fail_doing(exit::FAILED, cannot_freeze(&self.dir))?;
        Ok(line)
    }
}

impl Standstill {
    /// Lets the file system go on. Returns how long it stood still, if the process could say so. The error is the reason
    /// why it may not have stood still until now.
    pub fn end(mut self) -> Result<Option<Duration>, String> {
        let dir = shown(&self.0.dir);
        match self.0.thaw() {
            Ok(End::Thawed(stood)) => Ok(stood),
            Ok(End::Late) => Err(format!("the freeze of the file system on {dir} took too long")),
            Ok(End::ByAnother) => Err(format!("another program thawed the file system on {dir} meanwhile")),
            Err(error) => Err(format!("{}: {error}", cannot_thaw(&self.0.dir))),
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        if self.is_asked
            && let Err(error) = self.thaw()
        {
            tell!("oncefs: {} may stand still: fsfreeze --unfreeze {}: {error}", shown(&self.dir), shown(&self.dir));
        }
        // An error means that the process has been waited for.
        let _ = self.process.wait();
    }
}

fn cannot_thaw(dir: &Path) -> String {
    format!("cannot thaw the file system on {}", shown(dir))
}

fn cannot_freeze(dir: &Path) -> String {
    format!("cannot freeze the file system on {}", shown(dir))
}

/// The process: waits for its order, then lets the file system of a device, mounted on `dir`, stand still until its
/// standard input ends, but no longer than [`FREEZE_MAX`].
pub fn keep(dir: &Path, device: u64) -> Outcome {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let Mounted { root, .. } = Mounted::open(dir, device)?;
    let mut stdin = BufReader::new(io::stdin());
    let mut order = String::new();
    stdin.read_line(&mut order).or_fail_doing(exit::FAILED, cannot_freeze(dir))?;
    if order.trim_end() != FREEZE {
        // The command has ended before the moment came.
        return Ok(());
    }
    write_back(&root);
    let began = Instant::now();
    request(&root, FIFREEZE).map_err(|e| {
        let why = match e.raw_os_error() {
            Some(libc::EBUSY) => ": another program has frozen it".to_owned(),
            Some(libc::EOPNOTSUPP) => ": it cannot stand still, so unmount it first".to_owned(),
            _ => format!(": {e}"),
        };
        Failure::new(exit::FAILED, cannot_freeze(dir) + &why)
    })?;
    // The command may have ended. Then its end of the pipe has too, and the file system goes on at once.
    answer(FROZEN);
    let is_done = ends_within(&io::stdin(), FREEZE_MAX);
    let thawed = request(&root, FITHAW);
    match &thawed {
        Ok(()) if is_done => answer(&format!("{STOOD}{}", began.elapsed().as_micros())),
        Ok(()) => answer(LATE),
        Err(error) if is_not_frozen(error) => answer(LOST),
        // The command tries it too.
        Err(_) => {}
    }
    thawed.or_fail_doing(exit::FAILED, cannot_thaw(dir))?;
    match is_done {
        true => Ok(()),
        false => Err(Failure::new(exit::FAILED, format!("the freeze of {} took too long", shown(dir)))),
    }
}

/// Whether a pipe ends within this time, whatever it still brings.
fn ends_within(pipe: &impl AsFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    let fd = pipe.as_fd();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd that outlives the call.
        match unsafe { libc::poll(&mut poll, 1, left.as_millis() as libc::c_int) } {
            0 => return false,
            1.. => match rustix::io::read(fd, &mut [0; 64]) {
                Ok(0) => return true,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            },
            // A signal. The time that is left bounds the next attempt.
            _ => {}
        }
    }
}

/// Whether FITHAW failed because the file system was not frozen.
fn is_not_frozen(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINVAL)
}

/// Writes a line to the command, which may have ended.
fn answer(line: &str) {
    // Not by the standard library's buffer, which would still hold the line when the process ends.
    let _ = rustix::io::write(io::stdout(), format!("{line}\n").as_bytes());
}

/// Writes back what the kernel holds of a file system, until little is left.
fn write_back(root: &File) {
    for _ in 0..SYNCS_MAX {
        let began = Instant::now();
        // SAFETY: an open descriptor. An error is met again when the file system is frozen.
        unsafe { libc::syncfs(root.as_raw_fd()) };
        if began.elapsed() < SYNC_SHORT {
            break;
        }
    }
}

fn request(dir: &File, what: libc::Ioctl) -> io::Result<()> {
    let nothing: libc::c_int = 0;
    // SAFETY: an open descriptor; both requests take an int that they do not read.
    match unsafe { libc::ioctl(dir.as_raw_fd(), what, nothing) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_stays_open_does_not_end_and_a_closed_one_does() {
        let (reads, mut writes) = io::pipe().unwrap();
        assert!(!ends_within(&reads, Duration::from_millis(1)));
        writes.write_all(&[b'x'; 100]).unwrap();
        assert!(!ends_within(&reads, Duration::from_millis(1)), "bytes are no end");
        drop(writes);
        assert!(ends_within(&reads, Duration::from_secs(3600)));
    }

    #[test]
    fn only_the_file_system_of_the_disk_s_device_is_opened() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().metadata().unwrap().dev();
        assert!(Mounted::open(dir.path(), device).is_ok());
        let why = Mounted::open(dir.path(), device + 1).err().unwrap().message;
        assert!(why.contains("another one is mounted there"), "{why}");
    }

    #[test]
    fn a_file_system_without_a_device_cannot_stand_still() {
        let proc = File::open("/proc").unwrap();
        // Other users are refused before that.
        let refused = request(&proc, FIFREEZE).unwrap_err().raw_os_error();
        assert!(matches!(refused, Some(libc::EOPNOTSUPP | libc::EPERM)), "{refused:?}");
    }
}
