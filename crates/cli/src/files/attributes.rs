//! The attributes of an inode: read for a stream, and set from one. Its type does not matter: symbolic links have owners
//! and times too.

use std::ffi::CString;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use oncefs_stream::{Attributes, Flags, Moment};

use super::flags;
use super::held::Held;
use crate::process::setup::check;

/// On the top of a received tree: which tree it is a copy of. Belongs to the copy, and is not sent on.
pub const RECEIVED: &std::ffi::CStr = c"trusted.oncefs.received";

/// The kernel's XATTR_LIST_MAX and XATTR_SIZE_MAX.
const ROOM_BYTES: usize = 65536;

/// The attributes of an inode with these flags. `about` was read before this call, so the extended attributes may be
/// newer.
pub fn of(held: &Held, about: &Metadata, flags: Flags) -> io::Result<Attributes> {
    let moment = |seconds, nanoseconds: i64| Moment { seconds, nanoseconds: nanoseconds as u32 };
    Ok(Attributes {
        mode: about.mode(),
        user: about.uid(),
        group: about.gid(),
        accessed: moment(about.atime(), about.atime_nsec()),
        modified: moment(about.mtime(), about.mtime_nsec()),
        flags,
        extended: extended(held)?,
    })
}

/// When a file was last changed.
pub fn modified(about: &Metadata) -> Moment {
    Moment { seconds: about.mtime(), nanoseconds: about.mtime_nsec() as u32 }
}

fn extended(held: &Held) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut extended = Vec::new();
    for name in names(held)? {
        if name != RECEIVED.to_bytes()
            && let Some(value) = value(held, &name)?
        {
            extended.push((name, value));
        }
    }
    extended.sort_unstable();
    Ok(extended)
}

/// The names of all extended attributes.
fn names(held: &Held) -> io::Result<Vec<Vec<u8>>> {
    let (path, mut list) = (held.c_path(), vec![0_u8; ROOM_BYTES]);
    // SAFETY: the path ends with a zero, and the length is that of `list`.
    let length = unsafe { libc::listxattr(path.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    list.truncate(length as usize);
    Ok(list.split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// The value of an extended attribute. None: it has gone since.
fn value(held: &Held, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let (path, name, mut value) = (held.c_path(), CString::new(name)?, vec![0_u8; ROOM_BYTES]);
    // SAFETY: both strings end with a zero, and the length is that of `value`.
    let length = unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len()) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ENODATA) { Ok(None) } else { Err(error) };
    }
    value.truncate(length as usize);
    Ok(Some(value))
}

/// Sets all attributes but flags that forbid changes: owner, then mode and capabilities, which a change of the owner
/// clears; times last.
pub fn set(held: &Held, attributes: &Attributes) -> io::Result<()> {
    let (path, about) = (held.c_path(), held.about()?);
    let changes_owner = (about.uid(), about.gid()) != (attributes.user, attributes.group);
    if changes_owner {
        // SAFETY: the path ends with a zero.
        check(unsafe { libc::chown(path.as_ptr(), attributes.user, attributes.group) })?;
    }
    let changes_mode = changes_owner || (about.mode() ^ attributes.mode) & 0o7777 != 0;
    if changes_mode && attributes.mode & libc::S_IFMT != libc::S_IFLNK {
        // SAFETY: the path ends with a zero.
        check(unsafe { libc::chmod(path.as_ptr(), attributes.mode & 0o7777) })?;
    }
    set_extended(held, &attributes.extended)?;
    if !attributes.flags.permitting().is_empty() {
        flags::set(held, attributes.flags.permitting())?;
    }
    set_times(held, attributes)
}

fn set_extended(held: &Held, extended: &[(Vec<u8>, Vec<u8>)]) -> io::Result<()> {
    let path = held.c_path();
    for name in names(held)? {
        if !extended.iter().any(|(wanted, _)| *wanted == name) {
            let name = CString::new(name)?;
            // SAFETY: both strings end with a zero.
            check(unsafe { libc::removexattr(path.as_ptr(), name.as_ptr()) })?;
        }
    }
    for (name, value) in extended {
        let shown = || name.escape_ascii();
        let text = CString::new(name.as_slice())?;
        // SAFETY: both strings end with a zero, and the length is that of `value`.
        check(unsafe { libc::setxattr(path.as_ptr(), text.as_ptr(), value.as_ptr().cast(), value.len(), 0) })
            .map_err(|e| io::Error::new(e.kind(), format!("cannot set the attribute {}: {e}", shown())))?;
    }
    Ok(())
}

fn set_times(held: &Held, attributes: &Attributes) -> io::Result<()> {
    let path = held.c_path();
    let times = [attributes.accessed, attributes.modified]
        .map(|moment| libc::timespec { tv_sec: moment.seconds, tv_nsec: moment.nanoseconds.into() });
    // SAFETY: the path ends with a zero, and the kernel reads two times.
    check(unsafe { libc::utimensat(libc::AT_FDCWD, path.as_ptr(), times.as_ptr(), 0) })
}
