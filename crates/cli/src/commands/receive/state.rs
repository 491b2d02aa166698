//! The part of a tree that has arrived: a folder below `.oncefs/receive`, which only root enters, until the tree has
//! its name.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use oncefs_stream::{Header, Position, Token, identity};

use super::late_flags::LateFlags;
use crate::files::held::Held;
use crate::files::in_mount::InMount;
use crate::files::reserved;

const FOLDER: &str = "receive";
const TREE: &str = "tree";
const POSITION: &str = "position";
const NEW_POSITION: &str = "position.new";
const FLAGS: &str = "flags";
const KNOWN: &str = "known";

/// A token holds a path twice as long, in hexadecimal.
const TOKEN_BYTES_MAX: u64 = (2 << 20) + 1024;

/// The folder of one tree, locked against a second receive of it.
pub struct State {
    all: Held,
    name: String,
    folder: Held,
    _lock: File,
}

impl State {
    /// Opens the folder for `name` in `dir`; creates it. What is there can be changed: a receive that was interrupted at
    /// its end may have set flags that forbid it.
    ///
    /// # Errors
    /// WouldBlock: another process receives the same tree.
    pub fn open(dir: &InMount, name: &OsStr) -> io::Result<Self> {
        let mount = &dir.mount.dir;
        let all = Held::from(reserved::descend(&File::open(mount)?, mount, FOLDER, true)?.0);
        let inode = dir.held.about()?.ino();
        let folder_name = identity(&[&inode.to_le_bytes(), name.as_bytes()]).to_string();
        match all.create_directory(OsStr::new(&folder_name)) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => {}
        }
        let folder = all.below([OsStr::new(&folder_name)])?;
        let lock = folder.open()?;
        match lock.try_lock() {
            Ok(()) => {
                let state = Self { all, name: folder_name, folder, _lock: lock };
                state.unset_late_flags()?;
                Ok(state)
            }
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(io::Error::new(io::ErrorKind::WouldBlock, "another process receives it"))
            }
            Err(std::fs::TryLockError::Error(e)) => Err(e),
        }
    }

    fn unset_late_flags(&self) -> io::Result<()> {
        let Ok(top) = self.folder.below([OsStr::new(TREE)]) else { return Ok(()) };
        match self.folder.open_to_write(OsStr::new(FLAGS)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            opened => LateFlags::of(opened?)?.unset(&top),
        }
    }

    /// The flags that are to be set when the tree is whole.
    pub fn late_flags(&self) -> io::Result<LateFlags> {
        match self.folder.open_to_write(OsStr::new(FLAGS)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => LateFlags::of(self.folder.create_file(OsStr::new(FLAGS))?),
            opened => LateFlags::of(opened?),
        }
    }

    /// An empty file for contents that the volume has and the sender need not send.
    pub fn known_contents(&self) -> io::Result<File> {
        match self.folder.remove_all(OsStr::new(KNOWN)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => self.folder.create_file(OsStr::new(KNOWN)),
        }
    }

    /// The token of what has arrived. None: nothing that could be continued.
    pub fn token(&self) -> io::Result<Option<Token>> {
        if self.folder.status_of(OsStr::new(TREE)).is_err() {
            return Ok(None);
        }
        let file = match self.folder.open_to_write(OsStr::new(POSITION)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let text = io::read_to_string(io::Read::take(file, TOKEN_BYTES_MAX))?;
        text.trim_end().parse().map(Some).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
    }

    /// Removes what cannot be continued.
    pub fn clear(&self) -> io::Result<()> {
        for name in [TREE, NEW_POSITION, POSITION, FLAGS] {
            match self.folder.remove_all(OsStr::new(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes everything.
    pub fn remove(&self) -> io::Result<()> {
        // First the position: without it nothing is continued.
        self.folder.remove_all(OsStr::new(POSITION)).or_else(|e| match e.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(e),
        })?;
        self.all.remove_all(OsStr::new(&self.name))
    }

    /// The top of the tree: an empty one, or what has arrived before.
    pub fn tree(&self, resumed: Option<&Position>) -> io::Result<Held> {
        if resumed.is_none() {
            self.folder.create_directory(OsStr::new(TREE))?;
        }
        self.folder.below([OsStr::new(TREE)])
    }

    /// Saves how far the stream has arrived. Everything up to there must be durable.
    pub fn save(&self, header: &Header, position: Position) -> io::Result<()> {
        let token = Token { source: header.source, older: header.older, position };
        match self.folder.remove_all(OsStr::new(NEW_POSITION)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let mut file = self.folder.create_file(OsStr::new(NEW_POSITION))?;
        file.write_all(token.to_string().as_bytes())?;
        file.sync_all()?;
        self.folder.replace_entry(OsStr::new(NEW_POSITION), OsStr::new(POSITION))?;
        self.folder.open()?.sync_all()
    }

    /// Moves the tree to its place.
    pub fn give_name(&self, dir: &Held, name: &OsStr) -> io::Result<()> {
        self.folder.move_entry(OsStr::new(TREE), dir, name)?;
        dir.open()?.sync_all()
    }
}
