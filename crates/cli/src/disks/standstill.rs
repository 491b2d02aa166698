//! A mounted file system that stands still for a moment: nothing is written to its device meanwhile.
//!
//! A process of its own freezes it, and thaws it as soon as the command is done or has ended, however it ended. If that
//! process ends first, the command thaws the file system. The process starts before the moment comes, because starting
//! one takes long on a busy machine, and it writes back most before it freezes.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;

/// The ioctls of a mount.
const FIFREEZE: libc::Ioctl = 0xC004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878_u32 as libc::Ioctl;

/// The line with which the command asks the process to freeze the file system.
const FREEZE: &str = "freeze";
/// The line that the process prints once the file system stands still.
const FROZEN: &str = "frozen";
/// Begins the line with which it says for how many microseconds the file system stood still.
const STOOD: &str = "stood ";

/// The file system is written back again until that takes less than this, because all that is written meanwhile is
/// written while it stands still, ...
const SYNC_SHORT: Duration = Duration::from_millis(10);
/// ... but no more often than this.
const SYNCS_MAX: usize = 4;

/// A process that is ready to freeze a file system.
pub struct Keeper {
    process: Child,
    said: BufReader<ChildStdout>,
    dir: PathBuf,
    /// Keeps the file system from being unmounted.
    root: File,
    /// It has frozen the file system. Before that, another program may have.
    is_frozen: bool,
}

/// A file system that stands still until this ends or is dropped.
pub struct Standstill(Keeper);

impl Keeper {
    /// Starts the process for the file system mounted on `dir`, and writes back what the kernel holds of it.
    pub fn start(dir: &Path) -> Outcome<Self> {
        let failed = || cannot_freeze(dir);
        let root = File::open(dir).or_fail_doing(exit::FAILED, failed())?;
        let mut command = Command::new("/proc/self/exe");
        command.arg0("oncefs").args(["disk", "stand-still"]).arg(dir).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().or_fail_doing(exit::FAILED, failed())?;
        let said = BufReader::new(process.stdout.take().expect("stdout was asked to be a pipe"));
        // SAFETY: an open descriptor. An error is no error yet: the file system is written again before it is frozen.
        unsafe { libc::syncfs(root.as_raw_fd()) };
        Ok(Self { process, said, dir: dir.to_owned(), root, is_frozen: false })
    }

    /// Writes the rest to the file system's device, and lets it stand still.
    pub fn freeze(mut self) -> Outcome<Standstill> {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let stdin = self.process.stdin.as_mut().expect("stdin was asked to be a pipe");
        // If the process has ended, this fails, and what it has said tells why.
        let _ = writeln!(stdin, "{FREEZE}").and_then(|()| stdin.flush());
        if self.hears()?.trim_end() == FROZEN {
            self.is_frozen = true;
            return Ok(Standstill(self));
        }
        let mut why = String::new();
        if let Some(stderr) = &mut self.process.stderr {
            stderr.read_to_string(&mut why).or_fail_doing(exit::FAILED, cannot_freeze(&self.dir))?;
        }
        let why = why.trim().trim_start_matches("oncefs: ");
        Err(Failure::new(exit::FAILED, if why.is_empty() { cannot_freeze(&self.dir) } else { why.to_owned() }))
    }

    /// The next line of the process.
    fn hears(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.said.read_line(&mut line).or_fail_doing(exit::FAILED, cannot_freeze(&self.dir))?;
        Ok(line)
    }
}

impl Standstill {
    /// Lets the file system go on. Returns how long it stood still, if the process could say so.
    pub fn end(mut self) -> Option<Duration> {
        drop(self.0.process.stdin.take());
        let line = self.0.hears().ok()?;
        line.trim_end().strip_prefix(STOOD)?.parse().ok().map(Duration::from_micros)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let status = self.process.wait();
        let is_thawed = status.as_ref().is_ok_and(ExitStatus::success);
        // A process that was killed may have frozen it without a word.
        let is_killed = status.map_or(true, |status| status.code().is_none());
        if (self.is_frozen && !is_thawed || is_killed)
            && let Err(error) = request(&self.root, FITHAW)
            // It was never frozen, or another program has thawed it.
            && error.raw_os_error() != Some(libc::EINVAL)
        {
            tell!("oncefs: {} may stand still: fsfreeze --unfreeze {}: {error}", shown(&self.dir), shown(&self.dir));
        }
    }
}

fn cannot_freeze(dir: &Path) -> String {
    format!("cannot freeze the file system on {}", shown(dir))
}

/// The process: waits for its order, then lets the file system on `dir` stand still until its standard input ends.
pub fn keep(dir: &Path) -> Outcome {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let root = File::open(dir).or_fail_doing(exit::FAILED, cannot_freeze(dir))?;
    let mut stdin = BufReader::new(io::stdin());
    let mut order = String::new();
    stdin.read_line(&mut order).or_fail_doing(exit::FAILED, cannot_freeze(dir))?;
    if order.trim_end() != FREEZE {
        // The command has ended before the moment came.
        return Ok(());
    }
    write_back(&root);
    let short = ShortGracePeriods::begin();
    let began = Instant::now();
    let frozen = request(&root, FIFREEZE);
    drop(short);
    frozen.map_err(|e| {
        let why = match e.raw_os_error() {
            Some(libc::EBUSY) => ": another program has frozen it".to_owned(),
            Some(libc::EOPNOTSUPP) => ": it cannot stand still, so unmount it first".to_owned(),
            _ => format!(": {e}"),
        };
        Failure::new(exit::FAILED, cannot_freeze(dir) + &why)
    })?;
    // The command may have ended. Then its end of the pipe has too, and the file system goes on at once.
    answer(FROZEN);
    let _ = io::copy(&mut stdin, &mut io::sink());
    let thawed = request(&root, FITHAW);
    answer(&format!("{STOOD}{}", began.elapsed().as_micros()));
    thawed.or_fail_doing(exit::FAILED, format!("cannot thaw the file system on {}", shown(dir)))
}

/// Lets the kernel hurry its grace periods (RCU) until this is dropped. A freeze waits for three of them, for two of
/// which programs already wait too: 40 to 100 ms on a busy machine, and 2 to 30 if the kernel hurries. If the process
/// is killed meanwhile, the kernel goes on hurrying, which costs its CPUs some interrupts.
struct ShortGracePeriods(Option<File>);

impl ShortGracePeriods {
    /// Does nothing where this cannot be set, or is set already.
    fn begin() -> Self {
        let knob = File::options().read(true).write(true).open("/sys/kernel/rcu_expedited").ok();
        Self(knob.filter(|knob| is_off(knob) && knob.write_all_at(b"1", 0).is_ok()))
    }
}

impl Drop for ShortGracePeriods {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.0.take().map(|knob| knob.write_all_at(b"0", 0)) {
            tell!("oncefs: the kernel hurries its grace periods from now on (/sys/kernel/rcu_expedited): {error}");
        }
    }
}

/// Whether a switch of the kernel reads as 0.
fn is_off(knob: &File) -> bool {
    let mut value = [0; 1];
    knob.read_exact_at(&mut value, 0).is_ok() && value == *b"0"
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
    fn a_file_system_without_a_device_cannot_stand_still() {
        let proc = File::open("/proc").unwrap();
        // Other users are refused before that.
        let refused = request(&proc, FIFREEZE).unwrap_err().raw_os_error();
        assert!(matches!(refused, Some(libc::EOPNOTSUPP | libc::EPERM)), "{refused:?}");
    }
}
