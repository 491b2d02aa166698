//! Sectors of files that cannot be read: `pread` and `read` of this process give EIO for them, RocksDB's calls
//! included.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Device and inode of a file, and the bytes of it that are lost.
type Lost = (u64, u64, Range<u64>);

static LOST: Mutex<Vec<Lost>> = Mutex::new(Vec::new());
static COUNT: AtomicU64 = AtomicU64::new(0);

/// A range of a file that cannot be read while this lives. The file is kept open, so that no other one gets its inode.
pub struct Unreadable(Lost, #[expect(dead_code, reason = "it is only kept")] File);

impl Unreadable {
    /// Of the file that is at `path` now, whatever its name is later.
    pub fn at(path: &Path, range: Range<u64>) -> Self {
        let file = File::open(path).unwrap();
        let metadata = file.metadata().unwrap();
        assert!(range.start < metadata.len(), "a range of the file's {} bytes", metadata.len());
        let lost = (metadata.dev(), metadata.ino(), range);
        LOST.lock().unwrap().push(lost.clone());
        COUNT.fetch_add(1, SeqCst);
        Self(lost, file)
    }
}

impl Drop for Unreadable {
    fn drop(&mut self) {
        LOST.lock().unwrap().retain(|lost| *lost != self.0);
        COUNT.fetch_sub(1, SeqCst);
    }
}

/// How many bytes can be read from `at` on. None: not one of them.
fn readable(fd: i32, at: i64, count: usize) -> Option<usize> {
    if COUNT.load(SeqCst) == 0 {
        return Some(count);
    }
    // SAFETY: all zeros is a valid stat, and fstat writes only to it.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &raw mut stat) != 0 {
            return Some(count);
        }
        stat
    };
    let (at, end) = (at as u64, at as u64 + count as u64);
    let lost = LOST.lock().unwrap();
    let ranges = lost.iter().filter(|(dev, ino, _)| (*dev, *ino) == (stat.st_dev, stat.st_ino)).map(|lost| &lost.2);
    let first = ranges.filter(|range| range.start < end && at < range.end).map(|range| range.start).min();
    match first {
        None => Some(count),
        Some(start) if start > at => Some((start - at) as usize),
        Some(_) => None,
    }
}

fn fail() -> isize {
    // SAFETY: the address of this thread's errno.
    unsafe { *libc::__errno_location() = libc::EIO };
    -1
}

/// # Safety
///
/// As of pread(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread64(fd: i32, buffer: *mut libc::c_void, count: usize, at: i64) -> isize {
    match readable(fd, at, count) {
        // SAFETY: the caller's promise, with a count that is not larger.
        Some(count) => unsafe { libc::syscall(libc::SYS_pread64, fd, buffer, count, at) as isize },
        None => fail(),
    }
}

/// # Safety
///
/// As of pread(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pread(fd: i32, buffer: *mut libc::c_void, count: usize, at: i64) -> isize {
    // SAFETY: the caller's promise.
    unsafe { pread64(fd, buffer, count, at) }
}

/// # Safety
///
/// As of read(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read(fd: i32, buffer: *mut libc::c_void, count: usize) -> isize {
    // SAFETY: lseek changes nothing here; a descriptor without a place gives -1, and is read as it is.
    let at = if COUNT.load(SeqCst) == 0 { -1 } else { unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) } };
    match if at < 0 { Some(count) } else { readable(fd, at, count) } {
        // SAFETY: the caller's promise, with a count that is not larger.
        Some(count) => unsafe { libc::syscall(libc::SYS_read, fd, buffer, count) as isize },
        None => fail(),
    }
}
