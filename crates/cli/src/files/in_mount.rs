//! Finds the file or directory in a mounted volume that a path on the command line names.
//!
//! The path to the mount belongs to root, so its links are followed. Below the mount point users make the names. A link
//! there is refused, because its owner could change its target between two steps of a command.

use std::ffi::OsStr;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use oncefs_engine::Store;

use super::held::Held;
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::mounting::mount_table::{self, Mount};
use crate::names::shown;

/// A file or directory in a mounted volume.
#[derive(Debug)]
pub struct InMount {
    /// The mount.
    pub mount: Mount,
    /// Its path: the mount point and names below it.
    pub path: PathBuf,
    /// Its parent directory. None for the root of the mount.
    pub above: Option<Held>,
    /// The file or directory itself.
    pub held: Held,
}

impl InMount {
    /// Finds it. Refuses a path outside all mounted volumes, with the advice `give`.
    pub fn find(path: &Path, give: &str) -> Outcome<Self> {
        let found = entry(path).or_fail_doing(exit::FAILED, shown(path))?;
        let (mount, below) = found.ok_or_else(|| outside(path, give))?;
        Self::open(mount, &below).map_err(|error| refused(path, &error))
    }

    fn open(mount: Mount, below: &Path) -> io::Result<Self> {
        let root = Held::at(&mount.dir)?;
        if Some(root.about()?.dev()) != mount.device_number() {
            return Err(io::Error::other("it was unmounted meanwhile: try again"));
        }
        let above = match below.parent() {
            Some(above) => Some(root.below(names_of(above))?),
            None => None,
        };
        let held = root.below(names_of(below))?;
        if held.about()?.is_symlink() {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        Ok(Self { path: mount.dir.join(below), mount, above, held })
    }
}

fn names_of(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().map(Component::as_os_str)
}

/// Refuses a path outside all mounts. The directory of a volume is easily taken for its mount.
fn outside(path: &Path, give: &str) -> Failure {
    let real = mount_table::resolve(path).unwrap_or_else(|_| path.to_owned());
    let (path, mount) = (shown(path), mount_table::of_volume(&real).ok().flatten());
    let advice = match mount.map(|mount| shown(&mount.dir)) {
        Some(dir) => format!("it is the volume that is mounted on {dir}: give a path there, such as {dir}"),
        None if !is_on_fuse(&real) && Store::profile_of(&real).is_ok() => {
            format!("it is a volume that is not mounted: mount it (oncefs mount {path} DIR), and give a path in DIR")
        }
        None => give.to_owned(),
    };
    Failure::new(exit::FAILED, format!("{path} is not in a mounted oncefs volume: {advice}"))
}

/// Whether a file system in user space has a path: its daemon may answer nothing.
fn is_on_fuse(path: &Path) -> bool {
    let mount = mount_table::containing(path).ok().flatten();
    mount.is_some_and(|mount| mount.kind.as_encoded_bytes().starts_with(b"fuse"))
}

fn refused(path: &Path, error: &io::Error) -> Failure {
    let path = shown(path);
    let text = match error.raw_os_error() {
        Some(libc::ELOOP) => {
            format!(
                "{path} leads through a symbolic link inside the mount, which is not followed: give the path it stands for"
            )
        }
        Some(libc::EXDEV) => format!("{path} is in another file system that is mounted inside the volume"),
        _ => format!("{path}: {error}"),
    };
    Failure::new(exit::FAILED, text)
}

/// The first oncefs mount that a path enters, and the names below its mount point.
fn entry(path: &Path) -> io::Result<Option<(Mount, PathBuf)>> {
    let path = std::path::absolute(path)?;
    let mut prefixes: Vec<&Path> = path.ancestors().collect();
    prefixes.reverse();
    for prefix in prefixes {
        let real = mount_table::resolve(prefix)?;
        let Some(mount) = mount_table::at(&real)?.filter(Mount::is_oncefs) else { continue };
        let rest = path.strip_prefix(prefix).map_err(io::Error::other)?;
        let Some(below) = without_dots(rest) else { continue };
        return Ok(Some(innermost(mount, below)?));
    }
    Ok(None)
}

/// Names without `.` and `..`. None if they lead above their start. No name among them is a link, so `..` always
/// cancels the name before it.
fn without_dots(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir if !plain.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            name => plain.push(name),
        }
    }
    Some(plain)
}

/// The deepest mount on the path, because a volume may be mounted inside another one.
fn innermost(mount: Mount, below: PathBuf) -> io::Result<(Mount, PathBuf)> {
    let path = mount.dir.join(&below);
    let inside = |other: &Mount| other.is_oncefs() && path.starts_with(&other.dir) && other.dir.starts_with(&mount.dir);
    let deepest = mount_table::all()?.into_iter().filter(inside).max_by_key(|other| other.dir.as_os_str().len());
    let mount = deepest.unwrap_or(mount);
    let below = path.strip_prefix(&mount.dir).map_err(io::Error::other)?.to_owned();
    Ok((mount, below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_taken_out_and_never_lead_above_the_beginning() {
        for (path, plain) in [("a/b", Some("a/b")), ("a/../b/.", Some("b")), ("", Some("")), ("a/../..", None)] {
            assert_eq!(without_dots(Path::new(path)), plain.map(PathBuf::from), "{path}");
        }
    }

    #[test]
    fn a_path_in_no_volume_is_refused_with_advice() {
        let failure = InMount::find(Path::new("/proc/self"), "give a file in one").unwrap_err();
        assert!(failure.message.ends_with("is not in a mounted oncefs volume: give a file in one"), "{failure:?}");
        assert!(InMount::find(Path::new("/nonexistent/x"), "").unwrap_err().message.contains("/nonexistent/x"));
    }
}
