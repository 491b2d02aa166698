//! Writes the daemon's log to stderr, a file, or syslog.
//!
//! A message to syslog is a datagram that never waits: a log daemon whose own files lie on this mount must not be able
//! to stop the file system. A message that does not fit is dropped.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::names::printable;

/// LOG_DAEMON of syslog(3).
const FACILITY_DAEMON: u8 = 3 << 3;

const SYSLOG_SOCKET: &str = "/dev/log";

/// The kernel refuses longer lines.
const KERNEL_LOG_LINE_MAX: usize = 900;

enum Sink {
    Stderr,
    File(Mutex<File>),
    Syslog(UnixDatagram),
}

struct Logger {
    sink: Sink,
}

/// The place to look for a log in syslog.
pub fn place() -> &'static str {
    place_of(Path::new(SYSLOG_SOCKET).exists())
}

fn place_of(has_syslog: bool) -> &'static str {
    match has_syslog {
        true => "journalctl -t oncefs, or /var/log/syslog",
        false => "dmesg, with warnings and errors only: no syslog runs here",
    }
}

/// The target of the log.
pub enum Target<'a> {
    /// Standard error.
    Stderr,
    /// Append to a file.
    File(&'a Path),
    /// The system's log, facility `daemon`.
    Syslog,
}

/// Starts logging; once per process.
pub fn start(target: &Target, level: LevelFilter) -> io::Result<()> {
    let sink = match target {
        Target::Stderr => Sink::Stderr,
        Target::File(path) => Sink::File(Mutex::new(File::options().append(true).create(true).open(path)?)),
        Target::Syslog => {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Sink::Syslog(socket)
        }
    };
    // The logger lives as long as the process.
    log::set_logger(Box::leak(Box::new(Logger { sink }))).map_err(|e| io::Error::other(e.to_string()))?;
    log::set_max_level(level);
    Ok(())
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata) -> bool {
        // The libraries log a lot from `debug` on. Only their warnings matter.
        metadata.target().starts_with("oncefs") || metadata.level() <= Level::Warn
    }

    fn log(&self, record: &Record) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let (text, level) = (printable(&record.args().to_string()), record.level());
        // The failure of a log write cannot be reported anywhere.
        let _ = match &self.sink {
            Sink::Stderr => writeln!(io::stderr(), "oncefs: {}: {text}", name(level)),
            Sink::File(file) => {
                let line = format!(
                    "{} oncefs[{}]: {}: {text}\n",
                    local_time("%Y-%m-%d %H:%M:%S"),
                    std::process::id(),
                    name(level)
                );
                file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
            }
            Sink::Syslog(socket) => to_syslog(socket, level, &text),
        };
    }

    fn flush(&self) {}
}

fn name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

fn severity(level: Level) -> u8 {
    match level {
        Level::Error => 3,
        Level::Warn => 4,
        Level::Info => 6,
        Level::Debug | Level::Trace => 7,
    }
}

/// If no log daemon listens (in a container, early at boot), serious messages go to the kernel's log.
fn to_syslog(socket: &UnixDatagram, level: Level, text: &str) -> io::Result<()> {
    match socket.send_to(datagram(level, text).as_bytes(), SYSLOG_SOCKET) {
        Err(e) if level <= Level::Warn && matches!(e.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => {
            let priority = FACILITY_DAEMON | severity(level);
            let line = format!("<{priority}>oncefs[{}]: {text}", std::process::id());
            let end = line.floor_char_boundary(KERNEL_LOG_LINE_MAX);
            File::options().write(true).open("/dev/kmsg")?.write_all(&line.as_bytes()[..end])
        }
        sent => sent.map(drop),
    }
}

/// As syslog(3) of the C library writes it.
fn datagram(level: Level, text: &str) -> String {
    let priority = FACILITY_DAEMON | severity(level);
    format!("<{priority}>{} oncefs[{}]: {text}", local_time("%b %e %H:%M:%S"), std::process::id())
}

fn local_time(format: &str) -> String {
    let format = std::ffi::CString::new(format).expect("the formats in this module hold no NUL");
    let mut text = [0u8; 64];
    // SAFETY: `time` accepts null; `tm` is plain data that `localtime_r` fills; `strftime` writes at most `text`.
    let len = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&now, &mut tm);
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &tm)
    };
    String::from_utf8_lossy(&text[..len]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_starts_with_facility_and_severity() {
        let line = datagram(Level::Error, "disk on fire");
        assert!(line.starts_with("<27>"), "{line}");
        assert!(line.ends_with(&format!(" oncefs[{}]: disk on fire", std::process::id())), "{line}");
    }

    #[test]
    fn the_place_of_the_log_depends_on_whether_there_is_a_syslog() {
        assert!(place_of(true).contains("journalctl -t oncefs"));
        assert!(place_of(false).contains("dmesg"));
    }

    #[test]
    fn times_have_the_shape_that_syslog_expects() {
        let time = local_time("%b %e %H:%M:%S");
        assert_eq!(time.len(), "Nov 21 20:54:12".len(), "{time}");
    }
}
