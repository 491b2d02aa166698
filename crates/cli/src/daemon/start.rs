//! Starts the daemon of a mount, and waits until the mount exists.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::logging;
use super::serve::READY;
use super::task::Task;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;
use crate::process::descriptors;

/// If opening a volume takes longer than this, say so.
const QUIET: Duration = Duration::from_secs(2);

/// The environment variables that the daemon keeps: systemd's socket and the time zone.
const DAEMON_VARIABLES: [&str; 2] = ["NOTIFY_SOCKET", "TZ"];

/// Starts this program again as the daemon and waits for its line on stdout.
pub fn in_background(task: &Task) -> Outcome {
    let mut daemon = Command::new("/proc/self/exe");
    daemon.arg0("oncefs").arg("serve").arg("-o").arg(task.options.to_list());
    if let Some(file) = &task.options.log_file {
        daemon.arg("--log-file").arg(file);
    }
    daemon.arg("--").arg(&task.volume).arg(&task.dir);
    daemon.env_clear().envs(std::env::vars_os().filter(|(name, _)| DAEMON_VARIABLES.iter().any(|kept| name == kept)));
    daemon.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let daemon = daemon.spawn().or_fail_doing(exit::MOUNT_SYSTEM, "cannot start the daemon")?;
    await_ready(daemon, &task.volume)
}

fn await_ready(mut daemon: Child, volume: &Path) -> Outcome {
    let pipe = daemon.stdout.take().expect("stdout was asked to be a pipe");
    if !descriptors::await_readable(pipe.as_fd(), Some(QUIET)) {
        tell!("oncefs: opening the volume {} takes longer than usual: still waiting", shown(volume));
    }
    let mut word = String::new();
    BufReader::new(pipe).read_line(&mut word).or_fail_doing(exit::MOUNT_SYSTEM, "cannot read from the daemon")?;
    match word.trim_end().split_once(' ') {
        _ if word.trim_end() == READY => Ok(()),
        Some((code, message)) => {
            // It has said all, and ends. A command that tries again would collect dead processes.
            daemon.wait().or_fail(exit::MOUNT_SYSTEM)?;
            Err(Failure::new(code.parse().unwrap_or(exit::MOUNT_FAILED), message))
        }
        None => {
            let status = daemon.wait().or_fail(exit::MOUNT_SYSTEM)?;
            let how = status
                .signal()
                .map_or(format!("with code {}", status.code().unwrap_or(0)), |s| format!("by signal {s}"));
            let text = format!(
                "the daemon ended {how} while mounting: see its log ({}), or mount in the foreground (-f)",
                logging::place()
            );
            Err(Failure::new(exit::MOUNT_FAILED, text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_fails_leaves_no_dead_process() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo 32 it is in use"]).stdout(Stdio::piped());
        let daemon = command.spawn().unwrap();
        let process = format!("/proc/{}", daemon.id());
        let failure = await_ready(daemon, Path::new("/volume")).unwrap_err();
        assert_eq!((failure.code, failure.message.as_str()), (32, "it is in use"));
        assert!(!Path::new(&process).exists());
    }
}
