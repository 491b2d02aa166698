//! Answers Prometheus over HTTP: `GET /metrics` on an address that was bound before the daemon was confined.
//!
//! Clients are not trusted. A few connections are served at a time, each with a thread, a bounded request and a time
//! limit, and the figures are collected at most once a second. So no client slows the mount down.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::process::places::Places;

/// Bounds on untrusted clients.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Connections at a time. Further ones are closed at once.
    pub connections: usize,
    /// Time for the request, and again for the answer.
    pub patience: Duration,
    /// How long an answer is reused.
    pub fresh: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { connections: 4, patience: Duration::from_secs(5), fresh: Duration::from_secs(1) }
    }
}

/// Longest request: a line and the headers of any client that scrapes.
const REQUEST_BYTES_MAX: usize = 8 << 10;

/// Pause after an error of accept(2), such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The media type of the text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";

/// Makes the text.
type Source = dyn Fn() -> String + Send + Sync;

/// The text, and when it was made.
struct Figures {
    source: Box<Source>,
    last: Mutex<Option<(Instant, Arc<str>)>>,
    fresh: Duration,
}

impl Figures {
    /// The present text. Concurrent requests wait for the same one.
    fn text(&self) -> Arc<str> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((made, text)) if made.elapsed() < self.fresh => text.clone(),
            _ => last.insert((Instant::now(), (self.source)().into())).1.clone(),
        }
    }
}

/// Serves in the background until the process ends.
pub fn serve(
    listener: TcpListener,
    bounds: Bounds,
    source: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<()> {
    let figures = Arc::new(Figures { source: Box::new(source), last: Mutex::default(), fresh: bounds.fresh });
    std::thread::Builder::new().name("metrics".into()).spawn(move || accept(&listener, bounds, &figures)).map(drop)
}

fn accept(listener: &TcpListener, bounds: Bounds, figures: &Arc<Figures>) {
    let places = Places::default();
    loop {
        let Ok((mut stream, _)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(place) = places.take(bounds.connections) else { continue };
        let figures = figures.clone();
        let answer = move || {
            // A client that hung up or was too slow needs no reply.
            let _ = answer(&mut stream, bounds, &figures);
            // Freed first, so that a client that sees the end of its connection can connect again.
            drop(place);
            drop(stream);
        };
        if let Err(e) = std::thread::Builder::new().name("metrics-request".into()).spawn(answer) {
            log::warn!("cannot answer for metrics: {e}");
        }
    }
}

fn answer(stream: &mut TcpStream, bounds: Bounds, figures: &Figures) -> io::Result<()> {
    let request = read_head(stream, Instant::now() + bounds.patience)?;
    let (status, kind, body) = reply(request.as_deref(), figures);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let is_head = request.is_some_and(|line| line.starts_with("HEAD "));
    let body = if is_head { "" } else { &*body };
    write_within(stream, &[head.as_bytes(), body.as_bytes()].concat(), Instant::now() + bounds.patience)
}

/// Status, media type and body for the first line of a request. `None`: the request is too long.
fn reply(line: Option<&str>, figures: &Figures) -> (&'static str, &'static str, Arc<str>) {
    let Some(line) = line else {
        return ("431 Request Header Fields Too Large", TEXT_TYPE, "the request is too long\n".into());
    };
    let mut words = line.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let is_http = words.next().is_some_and(|version| version.starts_with("HTTP/1."));
    match (method, path.split('?').next().unwrap_or_default()) {
        _ if !is_http => ("400 Bad Request", TEXT_TYPE, "this is not HTTP\n".into()),
        ("GET" | "HEAD", "/metrics") => ("200 OK", METRICS_TYPE, figures.text()),
        ("GET" | "HEAD", _) => ("404 Not Found", TEXT_TYPE, "the metrics are at /metrics\n".into()),
        _ => ("405 Method Not Allowed", TEXT_TYPE, "only GET is answered\n".into()),
    }
}

/// The first line of a request, read with its complete head. `None`: the head is too long.
fn read_head(stream: &mut TcpStream, deadline: Instant) -> io::Result<Option<String>> {
    let (mut head, mut part) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > REQUEST_BYTES_MAX {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            bytes => head.extend_from_slice(&part[..bytes]),
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    // A line that is not UTF-8 is not HTTP either.
    Ok(Some(String::from_utf8(line.to_vec()).unwrap_or_default()))
}

fn write_within(stream: &mut TcpStream, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        let written = stream.write(bytes)?;
        bytes = &bytes[written..];
    }
    Ok(())
}

/// The time until the deadline. Fails after it.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use oncefs_toolbox::waiting::eventually;

    use super::*;

    /// An endpoint that counts its requests.
    fn endpoint(bounds: Bounds) -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counter = asked.clone();
        let source = move || format!("asked {}\n", counter.fetch_add(1, Ordering::Relaxed) + 1);
        serve(listener, bounds, source).unwrap();
        (address, asked)
    }

    fn ask(address: SocketAddr, request: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    const GET: &str = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

    #[test]
    fn metrics_are_got_and_everything_else_is_refused() {
        let (address, _) = endpoint(Bounds::default());
        let got = ask(address, GET).unwrap();
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nasked 1\n"), "{got}");
        assert!(got.contains("Content-Type: text/plain; version=0.0.4"), "{got}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("GET /metrics/../x HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("hello\r\n\r\n", "400"),
        ] {
            let got = ask(address, request).unwrap();
            assert!(got.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {got}");
        }
        let head = ask(address, "HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
        assert!(head.contains(" 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn a_request_without_an_end_is_refused_when_it_is_too_long() {
        let (address, asked) = endpoint(Bounds::default());
        let mut stream = TcpStream::connect(address).unwrap();
        let mut sent = 0;
        // The other side may hang up while this one still writes.
        while sent <= 4 * REQUEST_BYTES_MAX && stream.write_all(&[b'x'; 1024]).is_ok() {
            sent += 1024;
        }
        let mut byte = [0];
        while stream.read(&mut byte).is_ok_and(|bytes| bytes > 0) {}
        assert_eq!(asked.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn figures_are_asked_for_once_while_they_are_fresh() {
        let (address, asked) = endpoint(Bounds { fresh: Duration::from_secs(3600), ..Bounds::default() });
        for _ in 0..5 {
            assert!(ask(address, GET).unwrap().ends_with("asked 1\n"));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn silent_clients_take_their_places_only_for_a_time() {
        let bounds = Bounds { connections: 2, patience: Duration::from_millis(300), ..Bounds::default() };
        let (address, _) = endpoint(bounds);
        let silent: Vec<TcpStream> = (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
        eventually("one that asks is answered", || ask(address, GET).is_ok_and(|got| got.contains(" 200 ")));
        drop(silent);
    }
}
