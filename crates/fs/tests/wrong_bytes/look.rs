//! The view of a volume: everything below its root, or the error in its place.

use std::collections::BTreeMap;

use oncefs_fs::{Attributes, Error, FileKind, FileSystem, Ino, Result};

use super::truth::{BLOCK, Path, Xattrs, text};

/// The view of a thing.
#[derive(Debug)]
pub struct Shown {
    /// Attributes of the inode.
    pub attributes: Attributes,
    /// Extended attributes that can be read.
    pub xattrs: Xattrs,
    /// A file's blocks, or the target of a symbolic link. None: an error.
    pub blocks: Vec<Option<Vec<u8>>>,
}

/// The view of a volume.
#[derive(Debug, Default)]
pub struct View {
    /// The things.
    pub things: BTreeMap<Ino, Shown>,
    /// Their names.
    pub names: BTreeMap<Path, Ino>,
    /// Answers that no damage excuses.
    pub wrong: Vec<String>,
}

impl View {
    /// Reads everything, and looks these names up too. On a sound volume a listing has them all.
    pub fn of<'a>(fs: &FileSystem, asked: impl Iterator<Item = &'a Path>) -> Self {
        let mut view = Self::default();
        view.list(fs, Ino::ROOT, b"");
        for path in asked {
            view.ask(fs, path);
        }
        view
    }

    /// The answer. None: an error. Keeps an error that damage does not excuse.
    fn excused<T>(&mut self, what: &str, path: &[u8], answer: Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(Error::Engine(_) | Error::NotFound | Error::Stale | Error::NoData | Error::NotADirectory) => None,
            Err(error) => {
                self.wrong.push(format!("{what} of {}: {error}", text(path)));
                None
            }
        }
    }

    fn list(&mut self, fs: &FileSystem, directory: Ino, path: &[u8]) {
        let mut names = Vec::new();
        let listed = fs.readdir(directory, 2, &mut |entry| {
            names.push(entry.name.to_vec());
            true
        });
        self.excused("listing", path, listed);
        for name in names {
            let below = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
            if let Some(attributes) = self.excused("looking up", &below, fs.lookup(directory, &name)) {
                self.show(fs, &below, attributes);
                // A damaged parent could make a cycle.
                if attributes.kind == FileKind::Directory && below.split(|byte| *byte == b'/').count() < 8 {
                    self.list(fs, attributes.ino, &below);
                }
            }
        }
    }

    fn ask(&mut self, fs: &FileSystem, path: &[u8]) {
        if self.names.contains_key(path) {
            return;
        }
        let mut at = Ino::ROOT;
        let mut attributes = None;
        for name in path.split(|byte| *byte == b'/') {
            attributes = self.excused("looking up", path, fs.lookup(at, name));
            let Some(Attributes { ino, .. }) = attributes else { return };
            at = ino;
        }
        if let Some(attributes) = attributes {
            self.show(fs, path, attributes);
        }
    }

    fn show(&mut self, fs: &FileSystem, path: &[u8], attributes: Attributes) {
        self.names.insert(path.to_vec(), attributes.ino);
        if self.things.contains_key(&attributes.ino) {
            return;
        }
        let (ino, kind) = (attributes.ino, attributes.kind);
        let listed = fs.listxattr(ino);
        let names = self.excused("listing attributes", path, listed).unwrap_or_default();
        let mut xattrs = Xattrs::new();
        for name in names.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            if let Some(value) = self.excused("an attribute", path, fs.getxattr(ino, name)) {
                xattrs.insert(name.to_vec(), value);
            }
        }
        let blocks = match kind {
            FileKind::Regular => match fs.read(ino, 0, attributes.size as usize, false) {
                Ok(whole) => whole.chunks(BLOCK).map(|block| Some(block.to_vec())).collect(),
                Err(_) => {
                    let starts = (0..attributes.size).step_by(BLOCK);
                    let bytes = |at| fs.read(ino, at, BLOCK, false).map(|bytes| bytes.to_vec());
                    starts.map(|at| self.excused("reading", path, bytes(at))).collect()
                }
            },
            FileKind::Symlink => vec![self.excused("the target", path, fs.readlink(ino))],
            _ => Vec::new(),
        };
        self.things.insert(ino, Shown { attributes, xattrs, blocks });
    }
}
