//! The directory `.oncefs` in the root of a mount, which holds disks, snapshots, and trees that are being received.
//!
//! Only root enters it, and listings of the root leave it out. A user who may write to the root could make a directory
//! of this name first, or a link. So a command descends without following links, and refuses a directory that is not
//! root's alone.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{self, Mode, OFlags};
use rustix::io::Errno;

/// Its name in the root of the mount.
pub const NAME: &str = ".oncefs";
/// Only root looks in.
const MODE: Mode = Mode::RWXU;

/// Opens the directory `folder` in it, below the mount's root `root`, which `dir` leads to. Returns it with its path.
///
/// # Errors
/// NotFound: it is not there, and `creates` is false. PermissionDenied: users other than root can change a directory on
/// the way, and could put something there.
pub fn descend(root: &File, dir: &Path, folder: &str, creates: bool) -> io::Result<(File, PathBuf)> {
    let (mut held, mut path) = (root.try_clone()?, dir.to_owned());
    for name in [NAME, folder] {
        if creates {
            match fs::mkdirat(&held, name, MODE) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        path.push(name);
        held = open_at(&held, name, OFlags::DIRECTORY)?;
        refuse_others(&held.metadata()?)?;
    }
    Ok((held, path))
}

/// Opens a file in a directory. Follows no link.
///
/// # Errors
/// Those of openat(2).
pub fn open_at(dir: &File, name: &str, flags: OFlags) -> io::Result<File> {
    Ok(fs::openat(dir, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?.into())
}

/// Only root may own or change it.
fn refuse_others(found: &Metadata) -> io::Result<()> {
    match found.uid() == 0 && found.mode() & 0o022 == 0 {
        true => Ok(()),
        false => Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is not root's alone")),
    }
}
