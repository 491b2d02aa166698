//! The snapshots of a mount: read-only directories below `.oncefs/snapshots`, each with an attribute that says what it
//! is of.

pub mod own;

use std::ffi::{CStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use oncefs_fs::SnapshotFacts;

use crate::files::held::Held;
use crate::files::reserved;
use crate::mounting::mount_table::Mount;

/// In the directory of oncefs itself.
const FOLDER: &str = "snapshots";
/// The attribute, as system calls take it.
const ATTRIBUTE: &CStr = c"trusted.oncefs.snapshot";
/// Bytes of the attribute, at most: three numbers and a path.
const ATTRIBUTE_BYTES_MAX: usize = 8 << 10;

/// The folder, open.
pub struct Folder {
    held: File,
    path: PathBuf,
}

/// A snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Its name.
    pub name: OsString,
    /// The inode number of its top.
    pub inode: u64,
    /// The facts in its attribute.
    pub facts: SnapshotFacts,
}

impl Folder {
    /// Opens the folder of a mount. None: it never had a snapshot.
    ///
    /// # Errors
    /// PermissionDenied: a directory on the way is not root's alone.
    pub fn open(mount: &Mount) -> io::Result<Option<Self>> {
        match Self::descend(mount, false) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found.map(Some),
        }
    }

    /// As [`Folder::open`]; creates it.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn create(mount: &Mount) -> io::Result<Self> {
        Self::descend(mount, true)
    }

    fn descend(mount: &Mount, creates: bool) -> io::Result<Self> {
        let root = File::open(&mount.dir)?;
        if Some(root.metadata()?.dev()) != mount.device_number() {
            return Err(io::Error::other("it was unmounted meanwhile: try again"));
        }
        let (held, path) = reserved::descend(&root, &mount.dir, FOLDER, creates)?;
        Ok(Self { held, path })
    }

    /// Its inode number.
    ///
    /// # Errors
    /// The daemon's.
    pub fn inode(&self) -> io::Result<u64> {
        self.held.metadata().map(|about| about.ino())
    }

    /// Where a snapshot is.
    pub fn path_of(&self, name: &Path) -> PathBuf {
        self.path.join(name)
    }

    /// All snapshots, the oldest first. Other directories that root made there are left out.
    ///
    /// # Errors
    /// The daemon's.
    pub fn all(&self) -> io::Result<Vec<Snapshot>> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
            let held = match Held::at(&self.path.join(&name)) {
                // It was removed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                held => held?,
            };
            let bytes = held.attribute(ATTRIBUTE, &mut value);
            if let Some(facts) = bytes.and_then(|bytes| SnapshotFacts::decode(&value[..bytes]).ok()) {
                all.push(Snapshot { name, inode: held.about()?.ino(), facts });
            }
        }
        all.sort_by(|one, other| {
            (one.facts.created_seconds, &one.name).cmp(&(other.facts.created_seconds, &other.name))
        });
        Ok(all)
    }
}
