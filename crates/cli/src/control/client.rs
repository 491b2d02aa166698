//! The commands' side of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::answers::About;
use super::protocol::{Envelope, LINE_BYTES_MAX, Reply, Request, SocketPath, VERSION};
use crate::process::descriptors::await_readable;

/// If closing a volume takes longer than this, say so.
const QUIET: Duration = Duration::from_secs(2);

/// A connection to the daemon of a mounted volume; serves one request.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

/// How the daemon ended while a command waited for its exit.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is durable and the process is gone.
    Clean,
    /// The process is gone; something went wrong at the end.
    Failed(String),
    /// The kernel has not let go of the mount: another place still uses it.
    StillMounted,
}

impl Connection {
    /// Connects to the daemon. `None`: no daemon serves this volume.
    pub fn open(volume: &Path) -> io::Result<Option<Self>> {
        let socket = match SocketPath::in_volume(volume) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
            other => other?,
        };
        match UnixStream::connect(&socket.path) {
            Ok(stream) => Ok(Some(Self { stream })),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Asks and waits for the answer.
    pub fn ask(mut self, request: Request) -> Result<serde_json::Value, String> {
        self.send(request).map_err(|e| format!("cannot talk to the daemon: {e}"))?;
        match self.into_replies().next_reply()? {
            Reply::Ok(value) => Ok(value),
            Reply::Error(message) => Err(message),
            Reply::Waiting | Reply::Closing => Err("the daemon answered another request".into()),
        }
    }

    /// The daemon's description of itself.
    pub fn about(self) -> Result<About, String> {
        serde_json::from_value(self.ask(Request::Version)?)
            .map_err(|e| format!("cannot understand the daemon's answer: {e}"))
    }

    /// Asks to be told of the exit. To be called before the unmount, for nobody answers after it.
    pub fn expect_exit(mut self) -> Result<ExpectedExit, String> {
        let process = process_behind(&self.stream).map_err(|e| e.to_string())?;
        self.send(Request::WaitExit).map_err(|e| e.to_string())?;
        let mut replies = self.into_replies();
        match replies.next_reply()? {
            Reply::Waiting => Ok(ExpectedExit { process, replies }),
            Reply::Error(message) => Err(message),
            Reply::Ok(_) | Reply::Closing => Err("the daemon answered another request".into()),
        }
    }

    fn send(&mut self, request: Request) -> io::Result<()> {
        let mut line = serde_json::to_string(&Envelope { version: VERSION, request })?;
        line.push('\n');
        self.stream.write_all(line.as_bytes())
    }

    fn into_replies(self) -> Replies {
        Replies { lines: BufReader::new(self.stream) }
    }
}

#[derive(Debug)]
struct Replies {
    lines: BufReader<UnixStream>,
}

impl Replies {
    fn next_reply(&mut self) -> Result<Reply, String> {
        let line = self.next_line().map_err(|e| format!("cannot read the daemon's answer: {e}"))?;
        if line.is_empty() {
            return Err("the daemon ended without an answer: see its log (journalctl -t oncefs)".into());
        }
        serde_json::from_str(&line).map_err(|e| format!("cannot understand the daemon's answer: {e}"))
    }

    fn next_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.lines).take(LINE_BYTES_MAX).read_line(&mut line)?;
        Ok(line)
    }

    /// Whether something arrives within `patience`.
    fn wait(&mut self, patience: Duration) -> bool {
        !self.lines.buffer().is_empty() || await_readable(self.lines.get_ref().as_fd(), Some(patience))
    }
}

/// A daemon that will report its exit.
#[derive(Debug)]
pub struct ExpectedExit {
    process: OwnedFd,
    replies: Replies,
}

impl ExpectedExit {
    /// Waits until the process is gone, and with it its lock on the volume. Gives up only when the daemon does not
    /// notice the unmount within `patience`; closing may then take as long as it needs.
    pub fn wait(mut self, patience: Duration) -> Exit {
        if !self.replies.wait(patience) {
            return Exit::StillMounted;
        }
        let outcome = self.outcome();
        await_readable(self.process.as_fd(), None);
        match outcome {
            Ok(()) => Exit::Clean,
            Err(message) => Exit::Failed(message),
        }
    }

    fn outcome(&mut self) -> Result<(), String> {
        loop {
            match self.replies.next_reply()? {
                Reply::Closing => {
                    if !self.replies.wait(QUIET) {
                        eprintln!("oncefs: waiting until everything is durable");
                    }
                }
                Reply::Ok(_) => return Ok(()),
                Reply::Waiting => return Err("the daemon answered another request".into()),
                Reply::Error(message) => return Err(message),
            }
        }
    }
}

/// A handle on the process at the other end; readable once it is gone.
fn process_behind(stream: &UnixStream) -> io::Result<OwnedFd> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let place = std::ptr::from_mut(&mut peer).cast();
    // SAFETY: `place` and `len` describe `peer`, which the call fills.
    let done = unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut len) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, peer.pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
