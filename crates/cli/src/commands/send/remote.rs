//! `oncefs receive` on another machine, started by ssh(1).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use oncefs_stream::Token;

use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::names::shown;

/// Where a stream goes.
pub struct Destination<'a> {
    /// The program that runs a command on another machine, with its options.
    pub shell: &'a str,
    /// As that program names the machine.
    pub host: &'a OsStr,
    /// The new directory there.
    pub path: &'a Path,
}

/// A receive that runs.
pub struct Remote {
    child: Child,
    host: OsString,
}

impl Destination<'_> {
    /// The token of a receive that was interrupted there. None: there is none, or the machine could not be asked. In that
    /// case the receive that follows says what is wrong.
    pub fn token(&self) -> Outcome<Option<Token>> {
        let mut command = self.command(&[OsStr::new("--token")])?;
        // Its message would only say that nothing was interrupted.
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output();
        let output = output.or_fail_doing(exit::FAILED, format!("cannot run {}", self.shell))?;
        let text = std::str::from_utf8(&output.stdout).unwrap_or_default();
        match output.status.success() {
            true => text.trim().parse().map(Some).or_fail_doing(
                exit::FAILED,
                format!("{} answers with no token: install the same version of oncefs there", shown(self.host)),
            ),
            false => Ok(None),
        }
    }

    /// Starts the receive. Returns what its input is written to, and what its answers are read from if it is to be asked.
    pub fn start(&self, asks: bool) -> Outcome<(Remote, File, Option<File>)> {
        // A receiver that refuses the stream ends first, and has said why. Writing to it must not end this process.
        // SAFETY: SIG_IGN is a valid disposition.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        let (options, output) = match asks {
            true => (&[OsStr::new("--answers")][..], Stdio::piped()),
            false => (&[][..], Stdio::null()),
        };
        let child = self.command(options)?.stdin(Stdio::piped()).stdout(output).spawn();
        let mut child = child.or_fail_doing(exit::FAILED, format!("cannot run {}", self.shell))?;
        let input = child.stdin.take().expect("the child was given a pipe");
        let answers = child.stdout.take().map(|answers| File::from(OwnedFd::from(answers)));
        Ok((Remote { child, host: self.host.to_owned() }, File::from(OwnedFd::from(input)), answers))
    }

    fn command(&self, options: &[&OsStr]) -> Outcome<Command> {
        let (Some(dir), Some(name)) = (self.path.parent(), self.path.file_name()) else {
            let text = format!("{} does not name a new directory: give its path on the other side", shown(self.path));
            return Err(Failure::new(exit::USAGE, text));
        };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let mut words = self.shell.split_whitespace();
        let program = words.next().unwrap_or_default();
        if program.is_empty() || self.host.is_empty() || self.host.as_bytes().starts_with(b"-") {
            let text = "--to needs a host, and --rsh a program: see oncefs send --help";
            return Err(Failure::new(exit::USAGE, text));
        }
        let mut line = OsString::from("oncefs receive");
        for word in options.iter().copied().chain([OsStr::new("--"), dir.as_os_str(), name]) {
            line.push(" ");
            line.push(quoted(word));
        }
        let mut command = Command::new(program);
        command.args(words).arg(self.host).arg(line);
        Ok(command)
    }
}

impl Remote {
    /// Waits until everything that was sent is durable there. `sent`: the outcome on this side, with the input closed.
    pub fn end<T>(mut self, sent: Outcome<T>) -> Outcome<T> {
        let status = self.child.wait().or_fail_doing(exit::FAILED, format!("cannot wait for {}", shown(&self.host)))?;
        match (status.success(), sent) {
            (true, sent) => sent,
            (false, Ok(_)) => {
                let text =
                    format!("{} did not receive it ({status}); run the command again to go on", shown(&self.host));
                Err(Failure::new(exit::FAILED, text))
            }
            (false, Err(failure)) => {
                let text = format!("{}; {} ended with {status}", failure.message, shown(&self.host));
                Err(Failure::new(failure.code, text))
            }
        }
    }
}

/// A word for the shell on the other side, whatever its bytes are.
fn quoted(word: &OsStr) -> OsString {
    let mut bytes = vec![b'\''];
    for byte in word.as_bytes() {
        match byte {
            b'\'' => bytes.extend_from_slice(b"'\\''"),
            byte => bytes.push(*byte),
        }
    }
    bytes.push(b'\'');
    OsString::from_vec(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_on_the_other_side_takes_each_word_as_it_is() {
        for word in ["plain", "with space", "it's", "$(reboot)", "-x", "a\\b\"c\n"] {
            let mut line = OsString::from("printf '%s' ");
            line.push(quoted(OsStr::new(word)));
            let output = Command::new("sh").arg("-c").arg(line).output().unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }

    #[test]
    fn a_destination_without_a_name_or_a_host_is_refused() {
        let command = |host: &str, path: &str| {
            Destination { shell: "ssh -p 22", host: OsStr::new(host), path: Path::new(path) }.command(&[]).map(
                |command| {
                    let words = std::iter::once(command.get_program()).chain(command.get_args());
                    words.map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>()
                },
            )
        };
        let words = command("root@host", "/backup/home").unwrap();
        assert_eq!(words, ["ssh", "-p", "22", "root@host", "oncefs receive '--' '/backup' 'home'"]);
        assert_eq!(command("host", "home").unwrap()[4], "oncefs receive '--' '.' 'home'");
        for (host, path) in [("host", "/"), ("host", ".."), ("-oProxyCommand=x", "/a"), ("", "/a")] {
            assert_eq!(command(host, path).unwrap_err().code, exit::USAGE, "{host} {path}");
        }
    }
}
