//! The commands' side of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::answers::About;
use super::protocol::{Envelope, LINE_BYTES_MAX, Reply, Request, SILENCE_MAX, SocketPath, VERSION};
use crate::daemon::logging;
use crate::names::shown;
use crate::process::descriptors::await_readable;
use crate::process::setup::check;

/// If closing a volume takes longer than this, say so.
const QUIET: Duration = Duration::from_secs(2);

/// A daemon that does not accept a connection or a request within this time hangs.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

const OTHER_ANSWER: &str = "the daemon answered another request";

/// A connection to the daemon of a mounted volume, for one request.
#[derive(Debug)]
pub struct Connection {
    stream: UnixStream,
}

/// How the daemon ended while a command waited for its exit.
#[derive(Debug, PartialEq, Eq)]
pub enum Exit {
    /// Everything is durable and the process is gone.
    Clean,
    /// As `Clean`, and this is why the next machine may have to wait for the volume.
    NotLetGo(String),
    /// The process is gone, after an error at the end.
    Failed(String),
    /// The kernel has not released the mount: it is still mounted elsewhere.
    StillMounted,
}

impl Connection {
    /// Connects to the daemon. `None`: no daemon serves this volume. A socket of another user is an error.
    pub fn open(volume: &Path) -> io::Result<Option<Self>> {
        let socket = match SocketPath::in_volume(volume) {
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => return Ok(None),
            other => other?,
        };
        match connect(&socket.path, TAKEN_WITHIN) {
            Ok(stream) => {
                let peer = peer_of(&stream)?;
                if peer.uid != 0 {
                    let text = format!("the control socket in {} is user {}'s, not root's", shown(volume), peer.uid);
                    return Err(io::Error::other(text));
                }
                stream.set_read_timeout(Some(SILENCE_MAX))?;
                stream.set_write_timeout(Some(TAKEN_WITHIN))?;
                Ok(Some(Self { stream }))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Asks and waits for the answer.
    pub fn ask(mut self, request: Request) -> Result<serde_json::Value, String> {
        self.send(request).map_err(|e| format!("cannot talk to the daemon: {e}"))?;
        match self.into_replies().next_reply().map_err(|e| e.to_string())? {
            Reply::Ok(value) => Ok(value),
            Reply::Error(message) => Err(message),
            Reply::Waiting | Reply::Closing | Reply::Working => Err(OTHER_ANSWER.into()),
        }
    }

    /// The daemon's description of itself.
    pub fn about(self) -> Result<About, String> {
        serde_json::from_value(self.ask(Request::Version)?)
            .map_err(|e| format!("cannot understand the daemon's answer: {e}"))
    }

    /// The number of the daemon's process.
    pub fn process(&self) -> io::Result<i32> {
        peer_of(&self.stream).map(|peer| peer.pid)
    }

    /// Asks the daemon to report its exit. To be called before the unmount, because the daemon does not answer after
    /// it. A daemon that hangs is an error of the kind `TimedOut`.
    pub fn expect_exit(mut self) -> io::Result<ExpectedExit> {
        let process = process_behind(&self.stream)?;
        self.send(Request::WaitExit)?;
        let mut replies = self.into_replies();
        match replies.next_reply()? {
            Reply::Waiting => Ok(ExpectedExit { process, replies }),
            Reply::Error(message) => Err(io::Error::other(message)),
            Reply::Ok(_) | Reply::Closing | Reply::Working => Err(io::Error::other(OTHER_ANSWER)),
        }
    }

    fn send(&mut self, request: Request) -> io::Result<()> {
        let mut line = serde_json::to_string(&Envelope { version: VERSION, request })?;
        line.push('\n');
        self.stream.write_all(line.as_bytes())
    }

    fn into_replies(self) -> Replies {
        let silence_max = self.stream.read_timeout().ok().flatten().unwrap_or_default();
        Replies { lines: BufReader::new(self.stream), silence_max }
    }
}

/// The daemon's replies, line by line.
#[derive(Debug)]
struct Replies<Stream = UnixStream> {
    lines: BufReader<Stream>,
    /// The longest wait of a read of the stream.
    silence_max: Duration,
}

impl<Stream: Read> Replies<Stream> {
    /// The next reply other than `working`.
    fn next_reply(&mut self) -> io::Result<Reply> {
        loop {
            let line = self.next_line().map_err(|e| self.why_unread(&e))?;
            if line.is_empty() {
                let text = format!("the daemon ended without an answer: see its log ({})", logging::place());
                return Err(io::Error::other(text));
            }
            match serde_json::from_str(&line) {
                Ok(Reply::Working) => {}
                Err(e) => return Err(io::Error::other(format!("cannot understand the daemon's answer: {e}"))),
                Ok(reply) => return Ok(reply),
            }
        }
    }

    fn why_unread(&self, error: &io::Error) -> io::Error {
        let silence = self.silence_max.as_secs();
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let text = format!(
                    "the daemon has said nothing for {silence} s, so it hangs: see its log ({})",
                    logging::place()
                );
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
            kind @ io::ErrorKind::ConnectionReset => {
                io::Error::new(kind, format!("the daemon ended while it was asked ({error}): ask again"))
            }
            kind => io::Error::new(kind, format!("cannot read the daemon's answer: {error}")),
        }
    }

    fn next_line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        (&mut self.lines).take(LINE_BYTES_MAX).read_line(&mut line)?;
        Ok(line)
    }
}

impl Replies {
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
    /// Whether the daemon notices the unmount within `patience`, or has ended.
    pub fn notices(&mut self, patience: Duration) -> bool {
        self.replies.wait(patience)
    }

    /// Waits until the process is gone, and with it its lock on the volume. Gives up only if the daemon does not notice
    /// the unmount within `patience`. Closing may take any time after that.
    pub fn wait(mut self, patience: Duration) -> Exit {
        if !self.replies.wait(patience) {
            return Exit::StillMounted;
        }
        let outcome = self.outcome();
        let is_gone = await_readable(self.process.as_fd(), Some(SILENCE_MAX));
        match outcome {
            Ok(None) if is_gone => Exit::Clean,
            Ok(Some(why)) if is_gone => Exit::NotLetGo(why),
            Ok(_) => Exit::Failed(format!("its daemon does not end: see its log ({})", logging::place())),
            Err(message) => Exit::Failed(message),
        }
    }

    fn outcome(&mut self) -> Result<Option<String>, String> {
        loop {
            match self.replies.next_reply().map_err(|e| e.to_string())? {
                Reply::Closing => {
                    if !self.replies.wait(QUIET) {
                        tell!("oncefs: waiting until everything is durable");
                    }
                }
                Reply::Ok(not_let_go) => return Ok(not_let_go.as_str().map(str::to_owned)),
                Reply::Waiting | Reply::Working => return Err(OTHER_ANSWER.into()),
                Reply::Error(message) => return Err(message),
            }
        }
    }
}

/// connect(2) with a time limit for the daemon to accept. The standard library's connect waits forever.
fn connect(path: &Path, taken_within: Duration) -> io::Result<UnixStream> {
    // SAFETY: plain numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    check(fd.min(0))?;
    // SAFETY: the descriptor is new and has no other owner.
    let stream = unsafe { UnixStream::from_raw_fd(fd) };
    // On a Unix socket this bounds connect(2) too.
    stream.set_write_timeout(Some(taken_within))?;
    // SAFETY: zeros are a valid address.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    let len = size_of::<libc::sockaddr_un>() as libc::socklen_t;
    // SAFETY: `address` outlives the call, and `len` is its length.
    match check(unsafe { libc::connect(fd, std::ptr::from_ref(&address).cast(), len) }) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
            let text = format!("it takes no connection for {} s, so it hangs", taken_within.as_secs());
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        }
        other => other.map(|()| stream),
    }
}

/// The process at the other end, as the kernel reports it.
fn peer_of(stream: &UnixStream) -> io::Result<libc::ucred> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    let place = std::ptr::from_mut(&mut peer).cast();
    // SAFETY: `place` and `len` describe `peer`, which the call fills.
    check(unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut len) })?;
    Ok(peer)
}

/// A handle on the process at the other end; readable once it is gone.
fn process_behind(stream: &UnixStream) -> io::Result<OwnedFd> {
    let peer = peer_of(stream)?;
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, peer.pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    /// A daemon that calls `serve` with the first connection.
    fn daemon(serve: impl FnOnce(UnixStream) + Send + 'static) -> (tempfile::TempDir, std::thread::JoinHandle<()>) {
        let volume = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(SocketPath::in_volume(volume.path()).unwrap().path).unwrap();
        let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
        (volume, thread)
    }

    /// A daemon that is silent for the given seconds before each of its lines, by a simulated clock.
    struct Scripted(std::collections::VecDeque<(u64, &'static str)>);

    impl Read for Scripted {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let Some((silence, line)) = self.0.pop_front() else { return Ok(0) };
            if Duration::from_secs(silence) > SILENCE_MAX {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            bytes[..line.len()].copy_from_slice(line.as_bytes());
            Ok(line.len())
        }
    }

    fn told_by(script: &[(u64, &'static str)]) -> io::Result<Reply> {
        let lines = BufReader::new(Scripted(script.iter().copied().collect()));
        Replies { lines, silence_max: SILENCE_MAX }.next_reply()
    }

    #[test]
    fn a_daemon_that_is_silent_hangs_and_one_that_says_it_works_does_not() {
        let works = (29, "\"working\"\n");
        let answered = told_by(&[works, works, works, works, (29, "{\"ok\":7}\n")]).unwrap();
        assert!(matches!(&answered, Reply::Ok(value) if *value == 7), "{answered:?}");
        let silent = told_by(&[works, works, (31, "{\"ok\":7}\n")]).unwrap_err();
        assert_eq!(silent.kind(), io::ErrorKind::TimedOut);
        assert!(silent.to_string().contains("has said nothing for 30 s"), "{silent}");
        let ended = told_by(&[works]).unwrap_err();
        assert!(ended.to_string().contains("ended without an answer"), "{ended}");
    }

    #[test]
    fn a_volume_that_was_not_given_up_in_the_cluster_is_told_apart_from_one_that_was() {
        for (last, expected) in [
            ("{\"ok\":null}", Ok(None)),
            ("{\"ok\":\"a command is at work\"}", Ok(Some("a command is at work".to_owned()))),
            ("{\"error\":\"lost\"}", Err("lost".to_owned())),
        ] {
            let (volume, thread) = daemon(move |mut stream| {
                stream.write_all(format!("\"waiting\"\n\"closing\"\n{last}\n").as_bytes()).unwrap();
            });
            let connection = Connection::open(volume.path()).unwrap().unwrap();
            assert_eq!(connection.expect_exit().unwrap().outcome(), expected);
            thread.join().unwrap();
        }
    }

    #[test]
    fn a_command_waits_for_a_socket_only_so_long() {
        let (volume, thread) = daemon(|mut stream| drop(stream.read_to_string(&mut String::new())));
        let connection = Connection::open(volume.path()).unwrap().unwrap();
        assert_eq!(connection.stream.read_timeout().unwrap(), Some(SILENCE_MAX));
        connection.stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = connection.ask(Request::Stats).unwrap_err();
        assert!(error.contains("has said nothing for"), "{error}");
        thread.join().unwrap();
    }

    #[test]
    fn a_daemon_that_takes_no_connection_is_given_up() {
        let volume = tempfile::tempdir().unwrap();
        let socket = SocketPath::in_volume(volume.path()).unwrap();
        let listener = UnixListener::bind(&socket.path).unwrap();
        // SAFETY: a plain number for a socket that listens: one connection may wait.
        unsafe { libc::listen(listener.as_raw_fd(), 0) };
        let mut waiting = Vec::new();
        let error = loop {
            assert!(waiting.len() < 10, "all connections are taken");
            match connect(&socket.path, Duration::from_millis(100)) {
                Ok(stream) => waiting.push(stream),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
    }
}
