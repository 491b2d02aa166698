//! The mount table, `/proc/self/mountinfo`, and paths whose file system may be dead.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use oncefs_fuse::MOUNT_TYPE;

use crate::names::shown;

/// One line of mountinfo.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `MAJOR:MINOR`, the same for all bind mounts of one file system.
    pub device: String,
    /// Where it is mounted.
    pub dir: PathBuf,
    /// File system type with subtype.
    pub kind: OsString,
    /// The volume, for mounts of oncefs.
    pub source: PathBuf,
    /// The user who mounted it, for a FUSE mount.
    pub owner: Option<u32>,
}

impl Mount {
    /// Whether this is an oncefs mount. Any user can choose type and source, but the kernel sets the user, and only
    /// root mounts oncefs.
    pub fn is_oncefs(&self) -> bool {
        self.kind == MOUNT_TYPE && self.owner == Some(0)
    }

    /// The user, other than root, who serves it.
    pub fn foreign_user(&self) -> Option<u32> {
        self.owner.filter(|user| *user != 0)
    }

    /// The device number of all files in it.
    pub fn device_number(&self) -> Option<u64> {
        let (major, minor) = self.device.split_once(':')?;
        Some(libc::makedev(major.parse().ok()?, minor.parse().ok()?))
    }

    /// Whether the daemon behind the mount is gone.
    pub fn is_dead(&self) -> bool {
        self.is_oncefs() && settled(|| ask_daemon(&self.dir)).is_err_and(|e| is_from_dead_mount(&e))
    }
}

/// All mounts that this process sees, in the order in which they were mounted.
pub fn all() -> io::Result<Vec<Mount>> {
    let table = std::fs::read("/proc/self/mountinfo")?;
    Ok(table.split(|&b| b == b'\n').filter_map(parse).collect())
}

/// The mount that `path` lies in: the longest mount point above it, and the topmost mount there.
pub fn containing(path: &Path) -> io::Result<Option<Mount>> {
    let path = resolve(path)?;
    let mounts = all()?.into_iter().filter(|m| path.starts_with(&m.dir));
    Ok(mounts.max_by_key(|m| m.dir.as_os_str().len()))
}

/// The mount exactly at `dir`, if there is one. Sends no request to it if `dir` is its plain path, because a file
/// system whose daemon hangs does not answer stat(2).
pub fn at(dir: &Path) -> io::Result<Option<Mount>> {
    if let Some(place) = place_of(dir)
        && let Some(mount) = all()?.into_iter().rev().find(|m| m.dir == place)
    {
        return Ok(Some(mount));
    }
    let dir = resolve(dir)?;
    Ok(containing(&dir)?.filter(|m| m.dir == dir))
}

/// The resolved path of a directory, without access to the directory itself.
fn place_of(dir: &Path) -> Option<PathBuf> {
    let dir = std::path::absolute(dir).ok()?;
    // The last part is a name, so it is an entry of the parent.
    Some(dir.parent()?.canonicalize().ok()?.join(dir.file_name()?))
}

/// The first mount of a file system, before its bind mounts.
pub fn first_of(device: &str) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().find(|m| m.is_oncefs() && m.device == device))
}

/// A mount of the given volume.
pub fn of_volume(volume: &Path) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().rev().find(|m| m.is_oncefs() && m.source == volume))
}

/// Whether this is the kernel's error for a mount without its daemon: aborted during the request, or no longer
/// connected.
fn is_from_dead_mount(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED))
}

/// Whether this is the kernel's error for a dying daemon: a request given to one of its threads at that moment is
/// interrupted and may be repeated, or is canceled with the thread's ring.
fn is_from_dying_mount(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::ECANCELED))
}

/// Whether this is the kernel's error for a mount whose daemon has ended or is ending.
pub fn is_from_ending_mount(error: &io::Error) -> bool {
    is_from_dead_mount(error) || is_from_dying_mount(error)
}

/// Calls statfs(2), which the kernel never answers from its caches. It may answer stat(2) for a dead daemon.
fn ask_daemon(dir: &Path) -> io::Result<()> {
    rustix::fs::statfs(dir)?;
    Ok(())
}

/// Asks until the answer is not that of a dying daemon.
fn settled<T>(ask: impl Fn() -> io::Result<T>) -> io::Result<T> {
    const TRIES: usize = 1000;
    let is_dying = |answer: &io::Result<T>| answer.as_ref().is_err_and(is_from_dying_mount);
    let mut answer = ask();
    for _ in 0..TRIES {
        if !is_dying(&answer) {
            break;
        }
        thread::sleep(Duration::from_millis(1));
        answer = ask();
    }
    answer
}

/// An absolute path without links. If the last part cannot be read because its daemon died, resolves the part above it.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    match settled(|| path.canonicalize()) {
        Err(e) if is_from_dead_mount(&e) => {
            let path = std::path::absolute(path)?;
            match (path.parent(), path.file_name()) {
                (Some(parent), Some(name)) => Ok(resolve(parent)?.join(name)),
                _ => Err(e),
            }
        }
        other => other,
    }
}

/// `36 35 98:0 /root /dir options [tags...] - type source superoptions`, with octal escapes in the paths.
pub(super) fn parse(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let dash = fields.iter().position(|f| *f == b"-")?;
    Some(Mount {
        device: String::from_utf8(fields.get(2)?.to_vec()).ok()?,
        dir: PathBuf::from(unescape(fields.get(4)?)),
        kind: unescape(fields.get(dash + 1)?),
        source: PathBuf::from(unescape(fields.get(dash + 2)?)),
        owner: owner(fields.get(dash + 3)?),
    })
}

/// The option `user_id`, if there is exactly one.
fn owner(options: &[u8]) -> Option<u32> {
    let mut users = options.split(|&b| b == b',').filter_map(|option| option.strip_prefix(b"user_id="));
    let user = std::str::from_utf8(users.next()?).ok()?.parse().ok()?;
    users.next().is_none().then_some(user)
}

/// The kernel writes space, tab, newline, backslash and `#` as `\ooo`.
pub(super) fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        match after.first_chunk::<3>().filter(|_| byte == b'\\').and_then(octal) {
            Some(escaped) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            None => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(plain)
}

fn octal(digits: &[u8; 3]) -> Option<u8> {
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

/// How to mount a volume again whose daemon died: over the dead mount, which needs no umount.
pub fn way_back(volume: &Path, dir: &Path) -> String {
    let (volume, dir) = (shown(volume), shown(dir));
    format!("mount it again with oncefs revive {dir} if fstab names it, otherwise with oncefs mount {volume} {dir}")
}

/// Whether one path is the other or lies in it.
pub fn overlap(a: &Path, b: &Path) -> bool {
    a.starts_with(b) || b.starts_with(a)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_mountinfo_is_read_with_escapes_and_optional_tags() {
        let line =
            br"98 28 0:52 / /mnt/my\040files rw,nosuid shared:4 master:1 - fuse.oncefs /srv/vol\134ume rw,user_id=0";
        let expected = Mount {
            device: "0:52".into(),
            dir: "/mnt/my files".into(),
            kind: "fuse.oncefs".into(),
            source: r"/srv/vol\ume".into(),
            owner: Some(0),
        };
        assert_eq!(parse(line), Some(expected));
    }

    #[test]
    fn only_a_mount_of_root_is_ours() {
        let is_ours = |options: &str| {
            parse(format!("98 28 0:52 / /mnt rw - fuse.oncefs /srv rw,{options}").as_bytes()).unwrap().is_oncefs()
        };
        assert!(is_ours("user_id=0,group_id=0,default_permissions,allow_other"));
        for other in
            ["user_id=1000,group_id=0", "group_id=0", "user_id=1000,user_id=0", "user_id=0,user_id=1000", "x=user_id=0"]
        {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn an_incomplete_escape_stays_as_it_is() {
        assert_eq!(unescape(br"a\04"), OsString::from(r"a\04"));
        assert_eq!(unescape(br"a\999b"), OsString::from(r"a\999b"));
    }

    #[test]
    fn a_mount_is_found_by_its_plain_path_and_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let (link, parent) = (dir.path().join("to-proc"), dir.path().join("to-root"));
        std::os::unix::fs::symlink("/proc", &link).unwrap();
        std::os::unix::fs::symlink("/", &parent).unwrap();
        for path in [Path::new("/proc"), Path::new("/proc/../proc"), &link, &parent.join("proc")] {
            assert_eq!(at(path).unwrap().map(|mount| mount.dir), Some(PathBuf::from("/proc")), "{}", path.display());
        }
        assert_eq!(at(dir.path()).unwrap(), None);
    }

    #[test]
    fn an_empty_line_is_no_mount() {
        assert_eq!(parse(b""), None);
    }

    #[test]
    fn the_mount_above_a_path_is_the_longest_one() {
        let found = containing(Path::new("/proc/self/fd")).unwrap().unwrap();
        assert_eq!(found.dir, Path::new("/proc"));
    }
}
