//! System calls that the standard library does not offer, as plain functions.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A path as the kernel takes it.
pub fn c_path(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().as_os_str().as_bytes()).unwrap()
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// The error number of a call that must have failed.
pub fn errno<T>(result: io::Result<T>) -> i32 {
    match result {
        Ok(_) => 0,
        Err(error) => error.raw_os_error().unwrap(),
    }
}

/// fallocate(2).
pub fn fallocate(file: &File, mode: i32, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: plain numbers.
    done(unsafe { libc::fallocate64(file.as_raw_fd(), mode, at as i64, len as i64) })
}

/// posix_fadvise(2): the kernel reads no more than what is asked for.
pub fn advise_random(file: &File) -> io::Result<()> {
    // SAFETY: plain numbers.
    let error = unsafe { libc::posix_fadvise64(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// lseek(2) with SEEK_DATA or SEEK_HOLE.
pub fn seek(file: &File, at: u64, whence: i32) -> io::Result<u64> {
    // SAFETY: plain numbers.
    let found = unsafe { libc::lseek64(file.as_raw_fd(), at as i64, whence) };
    u64::try_from(found).map_err(|_| io::Error::last_os_error())
}

/// Pages among the first `len` bytes of a file that the kernel has in its cache.
pub fn cached_pages(file: &File, len: u64) -> usize {
    const PAGE_BYTES: usize = 4096;
    let mut is_cached = vec![0_u8; (len as usize).div_ceil(PAGE_BYTES)];
    // SAFETY: a mapping of its own, of which mincore(2) only says which pages are there: one byte for each.
    unsafe {
        let (kind, nowhere) = (libc::MAP_SHARED, std::ptr::null_mut());
        let mapped = libc::mmap(nowhere, len as usize, libc::PROT_READ, kind, file.as_raw_fd(), 0);
        assert_ne!(mapped, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        assert_eq!(libc::mincore(mapped, len as usize, is_cached.as_mut_ptr()), 0, "{}", io::Error::last_os_error());
        libc::munmap(mapped, len as usize);
    }
    is_cached.iter().filter(|page| **page & 1 != 0).count()
}

/// One copy_file_range(2).
pub fn copy_range(from: &File, from_at: u64, to: &File, to_at: u64, len: u64) -> io::Result<u64> {
    let (mut from_at, mut to_at) = (from_at as i64, to_at as i64);
    // SAFETY: both offsets outlive the call.
    let copied =
        unsafe { libc::copy_file_range(from.as_raw_fd(), &mut from_at, to.as_raw_fd(), &mut to_at, len as usize, 0) };
    length(copied).map(|len| len as u64)
}

/// copy_file_range(2) until all of `len` is copied; gives the number of calls.
pub fn copy_range_all(from: &File, from_at: u64, to: &File, to_at: u64, len: u64) -> io::Result<u64> {
    let (mut copied, mut calls) = (0, 0);
    while copied < len {
        match copy_range(from, from_at + copied, to, to_at + copied, len - copied)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            part => copied += part,
        }
        calls += 1;
    }
    Ok(calls)
}

/// renameat2(2).
pub fn rename(from: &Path, to: &Path, flags: u32) -> io::Result<()> {
    let (from, to) = (c_path(from), c_path(to));
    // SAFETY: both strings outlive the call.
    done(unsafe { libc::renameat2(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) })
}

/// mknod(2).
pub fn mknod(path: &Path, mode: u32, device: u64) -> io::Result<()> {
    // SAFETY: the string outlives the call.
    done(unsafe { libc::mknod(c_path(path).as_ptr(), mode, device) })
}

/// lsetxattr(2).
pub fn set_xattr(path: &Path, name: &str, value: &[u8]) -> io::Result<()> {
    let name = CString::new(name).unwrap();
    // SAFETY: path, name and value outlive the call.
    done(unsafe { libc::lsetxattr(c_path(path).as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
}

/// lgetxattr(2).
pub fn get_xattr(path: &Path, name: &str) -> io::Result<Vec<u8>> {
    let name = CString::new(name).unwrap();
    let mut value = vec![0; 65536];
    // SAFETY: path, name and value outlive the call.
    let len = unsafe { libc::lgetxattr(c_path(path).as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    value.truncate(length(len)?);
    Ok(value)
}

/// lremovexattr(2).
pub fn remove_xattr(path: &Path, name: &str) -> io::Result<()> {
    let name = CString::new(name).unwrap();
    // SAFETY: path and name outlive the call.
    done(unsafe { libc::lremovexattr(c_path(path).as_ptr(), name.as_ptr()) })
}

/// llistxattr(2), sorted.
pub fn list_xattr(path: &Path) -> io::Result<Vec<String>> {
    let mut names = vec![0u8; 65536];
    // SAFETY: path and buffer outlive the call.
    let len = unsafe { libc::llistxattr(c_path(path).as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(length(len)?);
    let mut list: Vec<String> =
        names.split(|b| *b == 0).filter(|n| !n.is_empty()).map(|n| String::from_utf8(n.to_vec()).unwrap()).collect();
    list.sort();
    Ok(list)
}

/// A time in seconds and nanoseconds.
pub type Time = (i64, i64);

/// utimensat(2) on the thing itself, not on what a symbolic link points to.
pub fn set_times(path: &Path, accessed: Time, modified: Time) -> io::Result<()> {
    let times = [accessed, modified].map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec });
    let path = c_path(path);
    // SAFETY: path and times outlive the call.
    done(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), libc::AT_SYMLINK_NOFOLLOW) })
}

/// lchown(2).
pub fn chown(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    std::os::unix::fs::lchown(path, Some(uid), Some(gid))
}

/// statvfs(3).
pub fn space(path: &Path) -> io::Result<libc::statvfs> {
    let mut space = MaybeUninit::uninit();
    // SAFETY: path and buffer outlive the call.
    done(unsafe { libc::statvfs(c_path(path).as_ptr(), space.as_mut_ptr()) })?;
    // SAFETY: the call succeeded, so it filled the buffer.
    Ok(unsafe { space.assume_init() })
}

/// syncfs(2) of the file system that `path` is on.
pub fn sync_file_system(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: plain number.
    done(unsafe { libc::syncfs(file.as_raw_fd()) })
}

/// Unmounts `dir` although its daemon is dead.
pub fn unmount_dead(dir: &Path) -> io::Result<()> {
    let dir = c_path(dir);
    // SAFETY: the string outlives the calls.
    done(unsafe { libc::umount2(dir.as_ptr(), 0) })
        .or_else(|_| done(unsafe { libc::umount2(dir.as_ptr(), libc::MNT_DETACH) }))
}

/// Whether something is mounted at `dir`, by the kernel's table.
pub fn is_mounted(dir: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.split(' ').nth(4) == dir.to_str())
}

/// Runs `work` in a child process, and returns its result (0 to 255). `work` may only make system calls:
/// a forked child of a threaded process must not allocate. The child has the files of all tests open, and as long as it
/// lives their mounts are in use: one that lives long closes them first ([`close_files`]).
pub fn in_child(work: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child only makes system calls, as documented, and ends by _exit.
    unsafe {
        match libc::fork() {
            -1 => panic!("fork: {}", io::Error::last_os_error()),
            0 => libc::_exit(work()),
            child => {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &mut status, 0), child);
                assert!(libc::WIFEXITED(status), "the child was killed");
                libc::WEXITSTATUS(status)
            }
        }
    }
}

/// Closes all files but the standard ones, for use in [`in_child`].
pub fn close_files() {
    // SAFETY: plain numbers; the descriptors of the child are nobody's who still runs there.
    unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
}

/// The error number of the last system call, for use in [`in_child`].
pub fn last_errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// fcntl(2) record lock of a byte range, without waiting.
pub fn record_lock(fd: i32, kind: i32, at: i64, len: i64) -> i32 {
    let lock = libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: at, l_len: len, l_pid: 0 };
    // SAFETY: the lock outlives the call.
    if unsafe { libc::fcntl(fd, libc::F_SETLK, &lock) } == 0 { 0 } else { last_errno() }
}

/// A shared or private mapping of a file's beginning, unmapped when dropped. Children do not get it: it would keep the
/// mount in use.
pub struct Mapping {
    start: *mut u8,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes; `flags` is MAP_SHARED or MAP_PRIVATE.
    pub fn new(file: &File, len: usize, flags: i32) -> io::Result<Self> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, access, flags, file.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            let mapping = Mapping { start: start.cast(), len };
            // SAFETY: exactly the mapping.
            done(unsafe { libc::madvise(start, len, libc::MADV_DONTFORK) })?;
            Ok(mapping)
        }
    }

    /// The mapped bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is `len` bytes long and lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }

    /// msync(2), waiting.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: exactly the mapping.
        done(unsafe { libc::msync(self.start.cast(), self.len, libc::MS_SYNC) })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping, which nobody can use any more.
        unsafe { libc::munmap(self.start.cast(), self.len) };
    }
}

const HANDLE_BYTES: usize = 128;

/// A file handle as NFS servers keep it: it must find the file again without its name.
#[repr(C)]
#[derive(Clone)]
pub struct Handle {
    handle_bytes: libc::c_uint,
    handle_type: libc::c_int,
    f_handle: [u8; HANDLE_BYTES],
}

/// name_to_handle_at(2).
pub fn handle_of(path: &Path) -> io::Result<Handle> {
    let mut handle = Handle { handle_bytes: HANDLE_BYTES as u32, handle_type: 0, f_handle: [0; HANDLE_BYTES] };
    let mut mount_id = 0;
    let path = c_path(path);
    // SAFETY: `Handle` has the layout of file_handle followed by its bytes; all arguments outlive the call.
    done(unsafe {
        libc::name_to_handle_at(libc::AT_FDCWD, path.as_ptr(), (&raw mut handle).cast(), &mut mount_id, 0)
    })?;
    Ok(handle)
}

/// The generation in the handle of a file on FUSE, which follows the two halves of the inode number.
pub fn generation_of(handle: &Handle) -> u32 {
    u32::from_ne_bytes([8, 9, 10, 11].map(|at| handle.f_handle[at]))
}

/// open_by_handle_at(2) for reading, on the mount that `mount` is a path of.
pub fn open_by_handle(mount: &Path, handle: &Handle) -> io::Result<File> {
    open_by_handle_at(&File::open(mount)?, handle)
}

/// The same on an open directory of the mount; for use in [`in_child`] too.
pub fn open_by_handle_at(mount: &File, handle: &Handle) -> io::Result<File> {
    let mut handle = handle.clone();
    // SAFETY: as in `handle_of`.
    let fd = unsafe { libc::open_by_handle_at(mount.as_raw_fd(), (&raw mut handle).cast(), libc::O_RDONLY) };
    done(fd)?;
    // SAFETY: a new descriptor that nobody else owns.
    Ok(unsafe { File::from_raw_fd(fd) })
}
