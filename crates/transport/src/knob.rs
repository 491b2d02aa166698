//! The kernel's global knobs, turned for the time of a mount(2) and then turned back. One process at a time turns them.
//! Otherwise a process could restore a value that another one had set for a while.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::way::Transport;

/// Pages that one request may have: the kernel's global knob, which it samples when it reads the answer to INIT.
pub const PAGE_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// The kernel's switch for FUSE over io_uring. It matters while mounting and answering INIT.
pub(crate) const ENABLE_RINGS: &str = "/sys/module/fuse/parameters/enable_uring";

/// The file whose lock gives a process its turn. It belongs to root, because any user may open, and so lock, the knobs
/// themselves.
const LOCK: &str = "/run/oncefs-knobs.lock";
/// A process that waited this long goes on without the knobs: a mount takes a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The lock file, which a process must lock to turn knobs.
#[derive(Debug)]
pub struct KnobLock(File);

impl KnobLock {
    /// Opens the lock file. To be called while the process may still open files.
    ///
    /// # Errors
    /// `/run` is missing, or this process is not root.
    pub fn open() -> io::Result<Self> {
        Self::at(Path::new(LOCK))
    }

    fn at(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
        Ok(Self(options.open(path).map_err(named)?))
    }

    /// Waits for the turn of this process.
    ///
    /// # Errors
    /// Another process kept the lock for too long, or the kernel's errors.
    pub fn take(&self) -> io::Result<Knobs<'_>> {
        self.take_within(PATIENCE)
    }

    fn take_within(&self, patience: Duration) -> io::Result<Knobs<'_>> {
        let began = Instant::now();
        loop {
            match self.0.try_lock() {
                Ok(()) => return Ok(Knobs { lock: self, turned: Vec::new() }),
                Err(TryLockError::Error(e)) => return Err(e),
                Err(TryLockError::WouldBlock) if began.elapsed() >= patience => {
                    let text = format!("another process has kept the lock of {LOCK} for {} s", patience.as_secs());
                    return Err(io::Error::new(ErrorKind::TimedOut, text));
                }
                Err(TryLockError::WouldBlock) => thread::sleep(LOOK_INTERVAL),
            }
        }
    }
}

/// The turn of this process. Dropping it turns all knobs back.
#[derive(Debug)]
pub struct Knobs<'a> {
    lock: &'a KnobLock,
    turned: Vec<Knob>,
}

impl Knobs<'_> {
    /// Raises [`PAGE_LIMIT`] if requests of this size need it.
    ///
    /// # Errors
    /// The knob is missing, or this process may not turn it. The kernel then cuts requests to its limit.
    pub fn raise_page_limit(&mut self, request_bytes_max: u32) -> io::Result<()> {
        let pages = pages_for(request_bytes_max, rustix::param::page_size());
        let wanted = |now: &str| now.parse::<u64>().is_ok_and(|limit| limit < pages).then(|| pages.to_string());
        self.turn(Path::new(PAGE_LIMIT), wanted)
    }

    /// Lets the kernel offer rings unless classic is wanted. If that fails, the session reports why there are no rings.
    pub fn turn_on_rings(&mut self, transport: Transport) {
        let on = |now: &str| (now != "Y").then(|| "Y".to_owned());
        if transport != Transport::Classic
            && let Err(e) = self.turn(Path::new(ENABLE_RINGS), on)
        {
            log::info!("cannot turn on {ENABLE_RINGS}: {e}");
        }
    }

    /// Turns a knob to the value that `wanted` derives from the present one. None: the knob already has it.
    fn turn(&mut self, path: &Path, wanted: impl Fn(&str) -> Option<String>) -> io::Result<()> {
        let previous = value(&mut File::open(path)?)?;
        if let Some(wanted) = wanted(&previous) {
            let mut file = OpenOptions::new().write(true).open(path)?;
            turn_to(&mut file, &wanted)?;
            self.turned.push(Knob { path: path.to_owned(), file, previous });
        }
        Ok(())
    }
}

impl Drop for Knobs<'_> {
    fn drop(&mut self) {
        self.turned.clear();
        if let Err(e) = self.lock.0.unlock() {
            log::warn!("cannot give up the lock of {LOCK}: {e}");
        }
    }
}

/// A turned knob. Dropping it restores the previous value.
#[derive(Debug)]
struct Knob {
    path: PathBuf,
    file: File,
    previous: String,
}

impl Drop for Knob {
    fn drop(&mut self) {
        if let Err(e) = turn_to(&mut self.file, &self.previous) {
            log::warn!("cannot set {} back to {}: {e}", self.path.display(), self.previous);
        }
    }
}

/// Pages that a request of this size needs.
fn pages_for(request_bytes_max: u32, page_bytes: usize) -> u64 {
    u64::from(request_bytes_max).div_ceil(page_bytes as u64)
}

fn value(file: &mut File) -> io::Result<String> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    Ok(text.trim().to_owned())
}

fn turn_to(file: &mut File, value: &str) -> io::Result<()> {
    file.rewind()?;
    file.write_all(value.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            let place = Self(tempfile::tempdir().unwrap());
            std::fs::write(place.knob(), "N\n").unwrap();
            place
        }

        fn knob(&self) -> PathBuf {
            self.0.path().join("knob")
        }

        fn lock(&self) -> KnobLock {
            KnobLock::at(&self.0.path().join("lock")).unwrap()
        }

        fn value(&self) -> String {
            std::fs::read_to_string(self.knob()).unwrap().trim().to_owned()
        }
    }

    fn on(now: &str) -> Option<String> {
        (now != "Y").then(|| "Y".to_owned())
    }

    #[test]
    fn a_knob_has_its_value_while_held_and_the_old_one_after() {
        let place = Place::new();
        let lock = place.lock();
        let mut knobs = lock.take().unwrap();
        knobs.turn(&place.knob(), on).unwrap();
        assert_eq!(place.value(), "Y");
        knobs.turn(&place.knob(), on).unwrap();
        assert!(knobs.turn(Path::new("/nonexistent"), on).is_err());
        drop(knobs);
        assert_eq!(place.value(), "N");
    }

    #[test]
    fn who_locks_a_knob_itself_holds_nobody_up() {
        let place = Place::new();
        let other = File::open(place.knob()).unwrap();
        other.lock().unwrap();
        let lock = place.lock();
        lock.take().unwrap().turn(&place.knob(), on).unwrap();
        assert_eq!(place.value(), "N");
    }

    #[test]
    fn one_at_a_time_turns_knobs_and_nobody_waits_for_ever() {
        let place = Place::new();
        let (one, two) = (place.lock(), place.lock());
        let knobs = one.take().unwrap();
        let refused = two.take_within(Duration::from_millis(20)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::TimedOut, "{refused}");
        drop(knobs);
        two.take_within(Duration::ZERO).unwrap();
    }

    #[test]
    fn many_at_a_time_all_find_the_knob_off_and_leave_it_off() {
        let place = Place::new();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let lock = place.lock();
                    let mut knobs = lock.take().unwrap();
                    assert_eq!(place.value(), "N");
                    knobs.turn(&place.knob(), on).unwrap();
                    assert_eq!(place.value(), "Y");
                });
            }
        });
        assert_eq!(place.value(), "N");
    }

    #[test]
    fn a_request_needs_a_page_for_each_that_it_begins() {
        assert_eq!(pages_for(1 << 20, 4096), 256);
        assert_eq!(pages_for((1 << 20) + 1, 4096), 257);
        assert_eq!(pages_for(1 << 20, 65536), 16);
    }
}
