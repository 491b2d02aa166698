//! A mounted file system that stands still for a moment: nothing is written to its device meanwhile.
//!
//! A process of its own freezes it, and thaws it as soon as the command is done or has ended, however it ended. If that
//! process ends first, the command thaws the file system.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;

/// The ioctls of a mount.
const FIFREEZE: libc::Ioctl = 0xC004_5877_u32 as libc::Ioctl;
const FITHAW: libc::Ioctl = 0xC004_5878_u32 as libc::Ioctl;

/// The line that the process prints once the file system stands still.
const FROZEN: &str = "frozen";

/// A file system that stands still until this is dropped.
pub struct Standstill {
    keeper: Child,
    dir: PathBuf,
    /// The keeper has frozen it. Before that, another program may have.
    is_frozen: bool,
}

impl Standstill {
    /// Writes everything of the file system mounted on `dir` to its device, and lets it stand still.
    pub fn begin(dir: &Path) -> Outcome<Self> {
        let failed = || format!("cannot freeze the file system on {}", shown(dir));
        let root = File::open(dir).or_fail_doing(exit::FAILED, failed())?;
        // Most is written before the file system stands still.
        // SAFETY: an open descriptor.
        unsafe { libc::syncfs(root.as_raw_fd()) };
        let mut command = Command::new("/proc/self/exe");
        command.arg0("oncefs").args(["disk", "stand-still"]).arg(dir).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let keeper = command.spawn().or_fail_doing(exit::FAILED, failed())?;
        let mut standstill = Self { keeper, dir: dir.to_owned(), is_frozen: false };
        let said = standstill.keeper.stdout.take().expect("stdout was asked to be a pipe");
        let mut line = String::new();
        BufReader::new(said).read_line(&mut line).or_fail_doing(exit::FAILED, failed())?;
        if line.trim_end() == FROZEN {
            standstill.is_frozen = true;
            return Ok(standstill);
        }
        let mut why = String::new();
        if let Some(stderr) = &mut standstill.keeper.stderr {
            stderr.read_to_string(&mut why).or_fail_doing(exit::FAILED, failed())?;
        }
        let why = why.trim().trim_start_matches("oncefs: ");
        Err(Failure::new(exit::FAILED, if why.is_empty() { failed() } else { why.to_owned() }))
    }
}

impl Drop for Standstill {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let status = self.keeper.wait();
        let is_thawed = status.as_ref().is_ok_and(ExitStatus::success);
        // A keeper that was killed may have frozen it without a word.
        let is_killed = status.map_or(true, |status| status.code().is_none());
        if (self.is_frozen && !is_thawed || is_killed)
            && let Err(error) = File::open(&self.dir).and_then(|dir| request(&dir, FITHAW))
            // It was never frozen, or another program has thawed it.
            && error.raw_os_error() != Some(libc::EINVAL)
        {
            tell!("oncefs: {} may stand still: fsfreeze --unfreeze {}: {error}", shown(&self.dir), shown(&self.dir));
        }
    }
}

/// The process: lets the file system on `dir` stand still until its standard input ends.
pub fn keep(dir: &Path) -> Outcome {
    let failed = |what: &str| format!("cannot {what} the file system on {}", shown(dir));
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM, libc::SIGPIPE] {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    let root = File::open(dir).or_fail_doing(exit::FAILED, failed("freeze"))?;
    request(&root, FIFREEZE).map_err(|e| {
        let why = match e.raw_os_error() {
            Some(libc::EBUSY) => ": another program has frozen it".to_owned(),
            Some(libc::EOPNOTSUPP) => ": it cannot stand still, so unmount it first".to_owned(),
            _ => format!(": {e}"),
        };
        Failure::new(exit::FAILED, failed("freeze") + &why)
    })?;
    // The command may have ended. Then its end of the pipe has too, and the file system goes on at once.
    let mut stdout = io::stdout();
    let _ = writeln!(stdout, "{FROZEN}").and_then(|()| stdout.flush());
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    request(&root, FITHAW).or_fail_doing(exit::FAILED, failed("thaw"))
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
