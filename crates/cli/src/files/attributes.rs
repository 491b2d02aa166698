//! The attributes of an inode: read for a stream, and set from one. Its type does not matter: symbolic links have owners
//! and times too.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use oncefs_fs::COMPRESS_ATTRIBUTE;
use oncefs_stream::{Attributes, Flags, Moment};
use rustix::fs::{self, AtFlags, FileType, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::flags;
use super::held::Held;

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
    let mut list = vec![0_u8; ROOM_BYTES];
    let length = fs::listxattr(held.path(), list.as_mut_slice())?;
    Ok(list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

/// The value of an extended attribute. None: it has gone since.
fn value(held: &Held, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0_u8; ROOM_BYTES];
    match fs::getxattr(held.path(), name, value.as_mut_slice()) {
        Ok(length) => value.truncate(length),
        Err(Errno::NODATA) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    Ok(Some(value))
}

/// Sets all attributes but flags that forbid changes: owner, then mode and capabilities, which a change of the owner
/// clears; times last.
pub fn set(held: &Held, attributes: &Attributes) -> io::Result<()> {
    let (path, about) = (held.path(), held.about()?);
    let changes_owner = (about.uid(), about.gid()) != (attributes.user, attributes.group);
    if changes_owner {
        fs::chown(&path, Some(Uid::from_raw(attributes.user)), Some(Gid::from_raw(attributes.group)))?;
    }
    let changes_mode = changes_owner || (about.mode() ^ attributes.mode) & 0o7777 != 0;
    if changes_mode && FileType::from_raw_mode(attributes.mode) != FileType::Symlink {
        fs::chmod(&path, Mode::from_raw_mode(attributes.mode & 0o7777))?;
    }
    set_extended(held, &attributes.extended)?;
    if !attributes.flags.permitting().is_empty() {
        flags::set(held, attributes.flags.permitting())?;
    }
    set_times(held, attributes)
}

fn set_extended(held: &Held, extended: &[(Vec<u8>, Vec<u8>)]) -> io::Result<()> {
    let path = held.path();
    for name in names(held)? {
        if !extended.iter().any(|(wanted, _)| *wanted == name) {
            fs::removexattr(&path, name)?;
        }
    }
    for (name, value) in extended {
        match fs::setxattr(&path, name.as_slice(), value, XattrFlags::empty()) {
            // A volume that was never mounted with compression takes no policy for it.
            Err(Errno::OPNOTSUPP) if name == COMPRESS_ATTRIBUTE => {}
            other => other.map_err(|e| {
                io::Error::new(e.kind(), format!("cannot set the attribute {}: {e}", name.escape_ascii()))
            })?,
        }
    }
    Ok(())
}

fn set_times(held: &Held, attributes: &Attributes) -> io::Result<()> {
    let time = |moment: Moment| Timespec { tv_sec: moment.seconds, tv_nsec: moment.nanoseconds.into() };
    let times = Timestamps { last_access: time(attributes.accessed), last_modification: time(attributes.modified) };
    Ok(fs::utimensat(fs::CWD, held.path(), &times, AtFlags::empty())?)
}
