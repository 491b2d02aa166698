//! Files and directories held by descriptors that only name them (O_PATH). Opening such a descriptor never waits and
//! has no side effect, even for pipes and devices. Below a directory no symbolic link is followed and no other mount
//! entered. What a directory calls a regular file may be looked at or opened at once, which saves system calls.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::{DirEntry, File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, Mode, OFlags, ResolveFlags, Stat, XattrFlags};
use rustix::path::Arg;

/// Names in one system call: as many of the longest as fit into a path of 4096 bytes.
const NAMES_AT_ONCE: usize = 15;

const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// A link on the way is ELOOP. A path that leaves the directory or its mount is EXDEV.
const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_XDEV);

/// An entry of a directory.
pub struct Entry {
    /// Its name.
    pub name: OsString,
    /// Whether its directory entry has the type of a regular file. Some file systems leave the type out.
    pub is_file: bool,
}

/// The status of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The number of its device, and its inode number.
    pub inode: (u64, u64),
    /// The number of its names.
    pub names: u64,
    /// Its size.
    pub bytes: u64,
    /// The room that it takes, in units of 512 bytes.
    pub sectors: u64,
    mode: u32,
}

impl Status {
    /// Whether it is a regular file.
    pub fn is_file(self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    /// Whether it is a directory.
    pub fn is_dir(self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFDIR
    }
}

impl From<&Metadata> for Status {
    fn from(about: &Metadata) -> Self {
        Self {
            inode: (about.dev(), about.ino()),
            names: about.nlink(),
            bytes: about.len(),
            sectors: about.blocks(),
            mode: about.mode(),
        }
    }
}

impl From<Stat> for Status {
    fn from(about: Stat) -> Self {
        Self {
            inode: (about.st_dev, about.st_ino),
            names: about.st_nlink,
            bytes: about.st_size as u64,
            sectors: about.st_blocks as u64,
            mode: about.st_mode,
        }
    }
}

/// A file, directory or anything else. A symbolic link is held, not its target.
#[derive(Debug)]
pub struct Held {
    file: File,
}

impl From<File> for Held {
    fn from(file: File) -> Self {
        Self { file }
    }
}

impl From<OwnedFd> for Held {
    fn from(descriptor: OwnedFd) -> Self {
        Self { file: descriptor.into() }
    }
}

impl Held {
    /// Holds the file at a path. Follows links on the way, but not one at the end.
    pub fn at(path: &Path) -> io::Result<Self> {
        Ok(fs::open(path, HOLD, Mode::empty())?.into())
    }

    /// Holds a file below this directory.
    pub fn below<'a>(&self, names: impl IntoIterator<Item = &'a OsStr>) -> io::Result<Self> {
        let names: Vec<&OsStr> = names.into_iter().collect();
        let mut at = None;
        let mut steps = names.chunks(NAMES_AT_ONCE).peekable();
        while let Some(step) = steps.next() {
            at = Some(at.as_ref().unwrap_or(self).step(step, steps.peek().is_some())?);
        }
        at.map_or_else(|| Ok(Self { file: self.file.try_clone()? }), Ok)
    }

    fn step(&self, names: &[&OsStr], is_directory: bool) -> io::Result<Self> {
        match self.step_at_once(names, is_directory) {
            // Linux before 5.6 has no openat2, and some sandboxes forbid it.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                self.step_by_names(names, is_directory)
            }
            other => other,
        }
    }

    fn step_at_once(&self, names: &[&OsStr], is_directory: bool) -> io::Result<Self> {
        self.open_at(names.join(OsStr::new("/")), HOLD | directory_flag(is_directory))
    }

    fn open_at(&self, path: impl Arg, flags: OFlags) -> io::Result<Self> {
        Ok(fs::openat2(&self.file, path, flags, Mode::empty(), BENEATH)?.into())
    }

    /// As `step_at_once`, name by name. The device number reveals other mounts, except for bind mounts of the same file
    /// system.
    fn step_by_names(&self, names: &[&OsStr], is_directory: bool) -> io::Result<Self> {
        let device = self.about()?.dev();
        let mut at = Self { file: self.file.try_clone()? };
        for (n, name) in names.iter().enumerate() {
            let flags = HOLD | directory_flag(is_directory || n + 1 < names.len());
            at = fs::openat(&at.file, *name, flags, Mode::empty())?.into();
            if at.about()?.dev() != device {
                return Err(io::Error::from_raw_os_error(libc::EXDEV));
            }
        }
        Ok(at)
    }

    /// Its metadata.
    pub fn about(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// The entries of a directory, ascending by name.
    pub fn entries(&self) -> io::Result<Vec<Entry>> {
        let entry = |entry: DirEntry| Entry {
            name: entry.file_name(),
            is_file: entry.file_type().is_ok_and(|kind| kind.is_file()),
        };
        let mut entries: Vec<Entry> =
            std::fs::read_dir(self.path())?.map(|found| found.map(entry)).collect::<io::Result<_>>()?;
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    /// The status of an entry of this directory. Opens nothing and follows no link, but looks into other mounts.
    pub fn status_of(&self, name: &OsStr) -> io::Result<Status> {
        Ok(fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW)?.into())
    }

    /// Opens an entry that the directory calls a regular file for reading, as `open_unnoticed`, in one system call. Fails
    /// more often than that: hold the entry then. By now it may be something else, but opening that does not wait.
    pub fn open_at_once(&self, name: &OsStr) -> io::Result<File> {
        let unnoticed = OFlags::NOATIME | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(self.open_at(name, OFlags::RDONLY | unnoticed | OFlags::NOFOLLOW | OFlags::CLOEXEC)?.file)
    }

    /// Opens it for reading. Only for a regular file or a directory, according to `about`.
    pub fn open(&self) -> io::Result<File> {
        File::open(self.path())
    }

    /// As `open`, also for a block device, and without a change of the access time if the reader is the owner or root.
    /// Does not wait for a program that has a lease on the file (fcntl(2)), which may take 45 seconds to give it up.
    pub fn open_unnoticed(&self) -> io::Result<File> {
        let open =
            |flags: libc::c_int| File::options().read(true).custom_flags(flags | libc::O_NONBLOCK).open(self.path());
        let opened = match open(libc::O_NOATIME) {
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => open(0),
            opened => opened,
        };
        opened.map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => io::Error::new(e.kind(), "another program has a lease on it"),
            _ => e,
        })
    }

    /// An attribute, if it has the attribute and `value` has room for it.
    pub fn attribute(&self, name: &CStr, value: &mut [u8]) -> Option<usize> {
        fs::getxattr(self.path(), name, value).ok()
    }

    /// Sets an attribute, or removes it.
    pub fn set_attribute(&self, name: &CStr, value: Option<&str>) -> io::Result<()> {
        match value {
            Some(value) => fs::setxattr(self.path(), name, value.as_bytes(), XattrFlags::empty())?,
            None => fs::removexattr(self.path(), name)?,
        }
        Ok(())
    }

    /// A path that leads to the held file, for calls that refuse O_PATH.
    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// The descriptor, for calls beside an entry of this directory.
    pub(super) fn descriptor(&self) -> &File {
        &self.file
    }
}

#[cfg(test)]
impl Held {
    /// Makes a directory in this one, for a path of any length.
    pub fn make_directory(&self, name: &str) {
        std::fs::create_dir(self.path().join(name)).unwrap();
    }
}

fn directory_flag(is_directory: bool) -> OFlags {
    if is_directory { OFlags::DIRECTORY } else { OFlags::empty() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names<'a>(path: &'a [&'a str]) -> Vec<&'a OsStr> {
        path.iter().map(OsStr::new).collect()
    }

    #[test]
    fn no_way_of_opening_follows_a_link_or_leaves_the_directory() {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(top.path().join("in/a")).unwrap();
        std::fs::write(top.path().join("in/a/file"), "file").unwrap();
        std::fs::create_dir(top.path().join("out")).unwrap();
        std::fs::write(top.path().join("out/file"), "secret").unwrap();
        symlink(top.path().join("out"), top.path().join("in/link")).unwrap();
        let held = Held::at(&top.path().join("in")).unwrap();
        for step in [Held::step_at_once, Held::step_by_names] {
            let inode = |path: &[&str]| step(&held, &names(path), false).and_then(|held| held.about()).unwrap().ino();
            assert_eq!(inode(&["a", "file"]), top.path().join("in/a/file").metadata().unwrap().ino());
            assert_eq!(inode(&["link"]), top.path().join("in/link").symlink_metadata().unwrap().ino());
            let refused = |path: &[&str]| step(&held, &names(path), false).unwrap_err().raw_os_error().unwrap();
            assert!([libc::ELOOP, libc::ENOTDIR].contains(&refused(&["link", "file"])));
            assert_eq!(refused(&["missing"]), libc::ENOENT);
            assert!(step(&held, &names(&["link"]), true).is_err(), "a link is no directory");
        }
        let proc = Held::at(Path::new("/")).unwrap();
        for step in [Held::step_at_once, Held::step_by_names] {
            let error = step(&proc, &names(&["proc", "self"]), false).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EXDEV), "another mount");
        }
    }

    #[test]
    fn opening_at_once_follows_no_link_enters_no_mount_and_does_not_wait_for_a_pipe() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("file"), "file").unwrap();
        symlink(top.path().join("file"), top.path().join("link")).unwrap();
        fs::mknodat(fs::CWD, top.path().join("pipe"), fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        let held = Held::at(top.path()).unwrap();
        let entries = held.entries().unwrap();
        let said: Vec<_> = entries.iter().map(|entry| (entry.name.to_str().unwrap(), entry.is_file)).collect();
        assert_eq!(said, [("file", true), ("link", false), ("pipe", false)]);
        let opened =
            |name: &str| held.open_at_once(OsStr::new(name)).map(|file| Status::from(&file.metadata().unwrap()));
        let file = opened("file").unwrap();
        assert!(file.is_file() && file.bytes == 4 && file == held.status_of(OsStr::new("file")).unwrap());
        assert_eq!(opened("link").unwrap_err().raw_os_error(), Some(libc::ELOOP));
        assert!(!held.status_of(OsStr::new("link")).unwrap().is_file());
        assert!(!opened("pipe").unwrap().is_file());
        let root = Held::at(Path::new("/")).unwrap();
        assert_eq!(root.open_at_once(OsStr::new("proc")).unwrap_err().raw_os_error(), Some(libc::EXDEV));
    }

    #[test]
    fn a_lease_of_another_program_is_not_waited_for() {
        /// Of `fcntl.h`.
        const F_SETSIG: libc::c_int = 10;
        let file = tempfile::NamedTempFile::new().unwrap();
        let (descriptor, held) = (file.as_file().as_raw_fd(), Held::at(file.path()).unwrap());
        // SAFETY: fcntl takes integers here. A reader raises a signal, which is ignored by default.
        unsafe {
            assert_eq!(libc::fcntl(descriptor, F_SETSIG, libc::SIGURG), 0);
            assert_eq!(libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_WRLCK), 0);
        }
        let error = held.open_unnoticed().unwrap_err();
        assert_eq!(error.to_string(), "another program has a lease on it");
        // SAFETY: fcntl takes integers here.
        assert_eq!(unsafe { libc::fcntl(descriptor, libc::F_SETLEASE, libc::F_UNLCK) }, 0);
        held.open_unnoticed().unwrap();
    }

    #[test]
    fn a_path_of_any_length_is_followed() {
        let top = tempfile::tempdir().unwrap();
        let held = Held::at(top.path()).unwrap();
        let name = "n".repeat(250);
        let mut at = held.below([]).unwrap();
        for _ in 0..40 {
            at.make_directory(&name);
            at = at.below([OsStr::new(&name)]).unwrap();
        }
        let found = held.below(vec![OsStr::new(&name); 40]).unwrap();
        assert_eq!(found.about().unwrap().ino(), at.about().unwrap().ino());
        assert!(held.below(vec![OsStr::new(&name); 41]).is_err());
    }
}
