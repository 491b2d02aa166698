//! The daemon's side of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::commands_under_way::UnderWay;
use super::protocol::{Envelope, LINE_BYTES_MAX, Reply, Request, SocketPath, VERSION, WORKING_EVERY};
use crate::process::places::Places;

/// Connections served at a time, each with a thread. More than any user's commands need.
const CONNECTIONS_MAX: usize = 32;

/// A client that does not finish its line within this time is dropped.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A client that does not take its answer within this time is dropped.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// The answer to a command that has ended. The text is not read.
pub const CLIENT_GONE: &str = "the command ended before its answer";

/// Answers every request but `wait-exit`.
pub trait Handler: Send + Sync + 'static {
    /// The answer as JSON, or an error in one line. Long work that changes nothing ends with its client.
    fn answer(&self, request: &Request, client: &Client) -> Result<serde_json::Value, String>;
}

/// The command at the other end.
#[derive(Debug, Default)]
pub struct Client {
    is_gone: AtomicBool,
}

impl Client {
    /// Whether it has hung up, so that the answer is not needed.
    pub fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }
}

/// Listens until the volume is closed.
#[derive(Clone)]
pub struct Server {
    waiting: Arc<Mutex<Waiting>>,
    requests: UnderWay,
    socket: Arc<SocketPath>,
}

/// The commands that wait for the exit.
#[derive(Default)]
struct Waiting {
    streams: Vec<UnixStream>,
    is_closed: bool,
}

impl Waiting {
    fn tell(&mut self, reply: &Reply) {
        for stream in &mut self.streams {
            // A command that hung up does not need the reply.
            let _ = send(stream, reply);
        }
    }
}

impl Server {
    /// Creates the socket in the volume. The caller holds the volume's lock, so an existing socket is left from a dead
    /// daemon.
    pub fn start(volume: &Path, handler: Arc<dyn Handler>) -> io::Result<Self> {
        let socket = SocketPath::in_volume(volume)?;
        let listener = listen(&socket)?;
        let server = Self { waiting: Arc::default(), requests: UnderWay::default(), socket: Arc::new(socket) };
        let serving = server.clone();
        std::thread::Builder::new().name("control".into()).spawn(move || serving.accept(&listener, &handler))?;
        Ok(server)
    }

    /// Tells the waiting commands that the mount has ended. From here on, no new command connects.
    pub fn announce_closing(&self) {
        if let Err(e) = std::fs::remove_file(&self.socket.path) {
            log::warn!("cannot remove the control socket: {e}");
        }
        self.waiting().tell(&Reply::Closing);
        let server = self.clone();
        let telling = std::thread::Builder::new().name("control-closing".into()).spawn(move || server.tell_of_work());
        if let Err(e) = telling {
            log::warn!("cannot start a thread: {e}; commands may give up waiting for the end");
        }
    }

    /// Waits until no request but that of the caller is under way, at most for `patience`. False: another still is.
    pub fn others_end(&self, patience: Duration) -> bool {
        self.requests.others_end(patience)
    }

    /// Answers no request from here on, and waits for those under way, at most for `patience`. False: one is still under
    /// way.
    pub fn end_requests(&self, patience: Duration) -> bool {
        self.requests.end_all(patience)
    }

    /// Reports work under way until the volume is closed.
    fn tell_of_work(&self) {
        loop {
            std::thread::sleep(WORKING_EVERY);
            let mut waiting = self.waiting();
            if waiting.is_closed {
                return;
            }
            waiting.tell(&Reply::Working);
        }
    }

    /// Tells the waiting commands the outcome of closing the volume, and why it was not given up in the cluster, if so.
    pub fn announce_closed(&self, outcome: Result<Option<String>, String>) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        waiting.tell(&match outcome {
            Ok(not_let_go) => Reply::Ok(serde_json::json!(not_let_go)),
            Err(message) => Reply::Error(message),
        });
    }

    /// Keeps the connection for the exit, and drops those of failed umounts that have hung up.
    fn keep_waiting(&self, mut stream: UnixStream) {
        let mut waiting = self.waiting();
        waiting.streams.retain(is_connected);
        if send(&mut stream, &Reply::Waiting).is_ok() {
            waiting.streams.push(stream);
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(&self, listener: &UnixListener, handler: &Arc<dyn Handler>) {
        let places = Places::default();
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            if stream.set_write_timeout(Some(ANSWER_TIMEOUT)).is_err() {
                continue;
            }
            let Some(place) = places.take(CONNECTIONS_MAX) else {
                let _ = send(&mut stream, &Reply::Error("too many commands at the same time: try again".into()));
                continue;
            };
            let (server, handler) = (self.clone(), handler.clone());
            let serve = move || {
                let _place = place;
                server.serve(stream, &*handler);
            };
            if let Err(e) = std::thread::Builder::new().name("control-request".into()).spawn(serve) {
                log::warn!("cannot serve a command: {e}");
            }
        }
    }

    fn serve(&self, mut stream: UnixStream, handler: &dyn Handler) {
        let reply = match read_request(&stream) {
            Ok(Request::WaitExit) => return self.keep_waiting(stream),
            Ok(request) => match self.requests.begin() {
                Some(_begun) => answer(&stream, &request, handler),
                None => Err("the volume is closed: mount it again".into()),
            },
            Err(message) => Err(message),
        };
        let _ = send(&mut stream, &reply.map_or_else(Reply::Error, Reply::Ok));
    }
}

/// Answers a request, while another thread reports the work to the client and notes the client's end.
fn answer(stream: &UnixStream, request: &Request, handler: &dyn Handler) -> Result<serde_json::Value, String> {
    let client = Client::default();
    let (done, is_done) = UnixStream::pair().map_err(|e| e.to_string())?;
    std::thread::scope(|scope| {
        let watch = || watch(stream, &is_done, &client);
        if let Err(e) = std::thread::Builder::new().name("control-watch".into()).spawn_scoped(scope, watch) {
            log::warn!("cannot watch a command: {e}");
        }
        let answer = handler.answer(request, &client);
        drop(done);
        answer
    })
}

/// Reports work until the answer is ready or the client has hung up.
fn watch(stream: &UnixStream, is_done: &UnixStream, client: &Client) {
    let poll = |socket: &UnixStream, events| libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    loop {
        let mut both = [poll(stream, libc::POLLRDHUP), poll(is_done, libc::POLLIN)];
        // SAFETY: two pollfds that outlive the call.
        let ready = unsafe { libc::poll(both.as_mut_ptr(), 2, WORKING_EVERY.as_millis() as libc::c_int) };
        let [hung_up, done] = both.map(|socket| ready > 0 && socket.revents != 0);
        if done {
            return;
        }
        let mut stream = stream;
        if hung_up || (ready == 0 && send(&mut stream, &Reply::Working).is_err()) {
            return client.is_gone.store(true, Ordering::Relaxed);
        }
    }
}

/// Whether the other side is still connected. It sends no more data.
fn is_connected(stream: &UnixStream) -> bool {
    let mut byte = 0u8;
    let place = std::ptr::from_mut(&mut byte).cast();
    // SAFETY: a peek of one byte into `byte`.
    let received = unsafe { libc::recv(stream.as_raw_fd(), place, 1, libc::MSG_PEEK | libc::MSG_DONTWAIT) };
    received != 0
}

fn listen(socket: &SocketPath) -> io::Result<UnixListener> {
    match std::fs::remove_file(&socket.path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(&socket.path)?;
    std::fs::set_permissions(&socket.path, PermissionsExt::from_mode(0o600))?;
    Ok(listener)
}

fn read_request(stream: &UnixStream) -> Result<Request, String> {
    stream.set_read_timeout(Some(REQUEST_TIMEOUT)).map_err(|e| e.to_string())?;
    let mut line = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX))
        .read_line(&mut line)
        .map_err(|e| format!("cannot read the request: {e}"))?;
    parse_request(&line)
}

fn parse_request(line: &str) -> Result<Request, String> {
    let value: serde_json::Value = serde_json::from_str(line).map_err(|e| format!("the request is not JSON: {e}"))?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(u64::from(VERSION)) {
        return Err(format!(
            "the daemon speaks version {VERSION} of the protocol: use the oncefs program that mounted the volume, or mount it again"
        ));
    }
    serde_json::from_value::<Envelope>(value)
        .map(|envelope| envelope.request)
        .map_err(|e| format!("the daemon does not know this request ({e}): unmount the volume and mount it again with this version of oncefs"))
}

fn send(stream: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_string(reply)?;
    line.push('\n');
    stream.write_all(line.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use oncefs_engine::{DedupCommand, LayoutCursor, MapCursor, ScrubCommand};

    use super::*;
    use crate::control::answers::DiffCursor;

    /// Works until its client is gone, and reports that.
    struct Endless(Mutex<Sender<()>>);

    impl Handler for Endless {
        fn answer(&self, _: &Request, client: &Client) -> Result<serde_json::Value, String> {
            while !client.is_gone() {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.0.lock().unwrap().send(()).unwrap();
            Err("nobody reads this".into())
        }
    }

    #[test]
    fn work_ends_with_its_client() {
        let volume = tempfile::tempdir().unwrap();
        let (sender, ended) = channel();
        let server = Server::start(volume.path(), Arc::new(Endless(Mutex::new(sender)))).unwrap();
        let mut client = UnixStream::connect(SocketPath::in_volume(volume.path()).unwrap().path).unwrap();
        client.write_all(b"{\"version\":1,\"request\":\"stats\"}\n").unwrap();
        let mut working = String::new();
        BufReader::new(&client).read_line(&mut working).unwrap();
        assert_eq!(working, "\"working\"\n", "work that takes long is told of");
        assert!(ended.try_recv().is_err());
        assert!(!server.end_requests(Duration::ZERO), "the lock would be given up under the work");
        drop(client);
        ended.recv_timeout(Duration::from_secs(10)).expect("the work goes on without its client");
        assert!(server.end_requests(Duration::MAX));
    }

    #[test]
    fn requests_of_this_version_are_understood() {
        assert_eq!(parse_request(r#"{"version":1,"request":"stats"}"#), Ok(Request::Stats));
        assert_eq!(parse_request(r#"{"version":1,"request":"grow","bytes":4096}"#), Ok(Request::Grow { bytes: 4096 }));
        assert_eq!(parse_request(r#"{"version":1,"request":"wait-exit"}"#), Ok(Request::WaitExit));
        assert_eq!(parse_request(r#"{"version":1,"request":"settings"}"#), Ok(Request::Settings));
        assert_eq!(parse_request(r#"{"version":1,"request":"dedup-status"}"#), Ok(Request::DedupStatus));
        let changes = vec![("inline".to_owned(), "off".to_owned())];
        assert_eq!(
            parse_request(r#"{"version":1,"request":"tune","changes":[["inline","off"]]}"#),
            Ok(Request::Tune { changes })
        );
        for (text, command) in [
            (r#"{"now":{"full":true}}"#, DedupCommand::Now { full: true }),
            (r#""pause""#, DedupCommand::Pause),
            (r#""resume""#, DedupCommand::Resume),
        ] {
            let line = format!(r#"{{"version":1,"request":"dedup","command":{text}}}"#);
            assert_eq!(parse_request(&line), Ok(Request::Dedup { command }));
        }
    }

    #[test]
    fn other_requests_are_refused_with_the_reason() {
        assert!(parse_request("hello").unwrap_err().contains("not JSON"));
        assert!(parse_request(r#"{"version":2,"request":"stats"}"#).unwrap_err().contains("version 1"));
        assert!(parse_request(r#"{"request":"stats"}"#).unwrap_err().contains("version 1"));
        for unknown in [
            r#"{"version":1,"request":"dance"}"#,
            r#"{"version":1,"request":"tune"}"#,
            r#"{"version":1,"request":"tune","changes":{"inline":"off"}}"#,
            r#"{"version":1,"request":"dedup","command":"sometimes"}"#,
        ] {
            assert!(parse_request(unknown).unwrap_err().contains("does not know"), "{unknown}");
        }
    }

    #[test]
    fn what_the_client_writes_the_server_reads() {
        let changes = vec![("inline".to_owned(), "off".to_owned()), ("worker".to_owned(), "idle".to_owned())];
        let name = crate::names::Name::from(&b"not \xff UTF-8"[..]);
        for request in [
            Request::Version,
            Request::Commit,
            Request::Grow { bytes: u64::MAX },
            Request::Tune { changes },
            Request::Settings,
            Request::ProfileSettings,
            Request::Dedup { command: DedupCommand::Now { full: true } },
            Request::Dedup { command: DedupCommand::Pause },
            Request::Dedup { command: DedupCommand::Resume },
            Request::DedupStatus,
            Request::Scrub { command: ScrubCommand::Start { rate: Some(5) } },
            Request::Scrub { command: ScrubCommand::Stop },
            Request::ScrubStatus,
            Request::Damage { places_max: 7 },
            Request::Explain { inode: 5, lbn: 1 << 40 },
            Request::ExplainFiles { inodes: vec![5, u64::MAX] },
            Request::Compare { inode: 5, older: Some(7), lbn: 1 << 40 },
            Request::Compare { inode: 5, older: None, lbn: 0 },
            Request::Referrers { blocks: vec![(7, 2), (u64::MAX, 1)], from: MapCursor { map: 1, leaf: 2 } },
            Request::FileNames { maps: vec![1, 9] },
            Request::OpenForWriting { from: 7 },
            Request::WaitForRoom { inode: 7, seconds: 60 },
            Request::RoomWaits,
            Request::Layout { from: LayoutCursor::default() },
            Request::Layout { from: LayoutCursor { at: Some(MapCursor { map: 1, leaf: 2 }), open: None } },
            Request::Policy { inode: 5 },
            Request::CopyTree { source: 1, parent: 9, name: name.clone(), snapshot_of: None, ticket: 3 },
            Request::CopyTree { source: 1, parent: 9, name: name.clone(), snapshot_of: Some(name.clone()), ticket: 3 },
            Request::RemoveSnapshot { parent: 9, name, ticket: u64::MAX },
            Request::TreeProgress { ticket: 3 },
            Request::TagSecret,
            Request::BlocksByTag { tags: vec![0, u64::MAX] },
            Request::OwnBlocks { directory: 3, from: u64::MAX },
            Request::DiffDirectories {
                older: None,
                newer: Some(7),
                from: DiffCursor { is_newer_done: true, cookie: 9 },
            },
            Request::Defrag { inode: 5, from: 256, run_blocks_min: None, space_blocks: 9, dry_run: true },
        ] {
            let line = serde_json::to_string(&Envelope { version: VERSION, request: request.clone() }).unwrap();
            assert_eq!(parse_request(&line), Ok(request));
        }
    }
}
