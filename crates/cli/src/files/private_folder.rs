//! Folders below `.oncefs` at the root of a mount, which only root enters.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::held::Held;

/// At the root of each mount that has such folders.
pub const TOP: &str = ".oncefs";

/// Descends from the root of a mount to the folder `.oncefs/name`, and creates what is missing.
///
/// # Errors
/// PermissionDenied: a directory on the way is not root's, or others may change it.
pub fn create(mount: &Path, name: &str) -> io::Result<Held> {
    let mut held = Held::at(mount)?;
    for name in [TOP, name] {
        match held.create_directory(OsStr::new(name)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        held = held.below([OsStr::new(name)])?;
        let about = held.about()?;
        if !about.is_dir() || about.uid() != 0 || about.mode() & 0o022 != 0 {
            let text = format!("{name} is not a directory that root alone may change");
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
        }
    }
    Ok(held)
}
