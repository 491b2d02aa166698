//! The older tree that a tree is compared with.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use oncefs_stream::{Moment, Name, Source, TreePath};

use crate::files::attributes::modified;
use crate::files::held::Held;
use crate::files::in_mount::InMount;
use crate::files::walk::{Step, walk};

/// Of shorter files it is not looked up where they were before they were moved: sending one again costs little.
const MOVED_BYTES_MIN: u64 = 64 << 10;

/// A file of the older tree.
#[derive(Debug)]
pub struct OlderFile {
    /// Its inode number.
    pub inode: u64,
    /// Its size.
    pub size: u64,
    path: TreePath,
    modified: Moment,
}

impl OlderFile {
    fn new(about: &Metadata, path: TreePath) -> Self {
        Self { inode: about.ino(), size: about.len(), path, modified: modified(about) }
    }

    /// How a stream names it.
    pub fn source(&self) -> Source {
        Source::Older { path: self.path.clone(), size: self.size, modified: self.modified }
    }
}

/// The older tree.
pub struct OlderTree {
    top: Held,
    /// Files by size and moment of modification, which a move leaves as they are.
    files: HashMap<(u64, i64, i64), Vec<OsString>>,
}

impl OlderTree {
    /// The tree below a directory. Walks it once.
    pub fn new(older: &InMount) -> io::Result<Self> {
        let (mut files, mut refused) = (HashMap::new(), None);
        walk(&older.path, older.held.below([])?, &mut |place, step| match step {
            Step::Found(_, about) if about.is_file() && about.len() >= MOVED_BYTES_MIN => {
                let names = || place.names().into_iter().map(OsStr::to_owned).collect();
                files.entry(key_of(about)).or_insert_with(names);
            }
            Step::Found(..) => {}
            Step::Refused(error) => refused = Some(error),
        });
        match refused {
            Some(error) => Err(io::Error::new(error.kind(), format!("cannot read the older directory: {error}"))),
            None => Ok(Self { top: older.held.below([])?, files }),
        }
    }

    /// The file that was at this path, or the one that may have been moved to it. Which blocks they have in common is to
    /// be asked.
    pub fn file(&self, path: &TreePath, about: &Metadata) -> io::Result<Option<OlderFile>> {
        let names: Vec<&OsStr> = path.names().iter().map(|name| OsStr::from_bytes(name.bytes())).collect();
        if let Some(found) = self.regular(&names)? {
            return Ok(Some(OlderFile::new(&found, path.clone())));
        }
        let Some(names) = self.files.get(&key_of(about)) else { return Ok(None) };
        let names: Vec<&OsStr> = names.iter().map(OsString::as_os_str).collect();
        let Some(found) = self.regular(&names)? else { return Ok(None) };
        let mut path = TreePath::default();
        for name in names {
            path.push(Name::new(name.as_bytes()).map_err(io::Error::other)?);
        }
        Ok(Some(OlderFile::new(&found, path)))
    }

    fn regular(&self, names: &[&OsStr]) -> io::Result<Option<Metadata>> {
        match self.top.below(names.iter().copied()) {
            Ok(held) => Ok(Some(held.about()?).filter(Metadata::is_file)),
            Err(e) if is_absent(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// Nothing is at the path, or something else is on the way.
fn is_absent(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EXDEV))
}

fn key_of(about: &Metadata) -> (u64, i64, i64) {
    (about.len(), about.mtime(), about.mtime_nsec())
}
