//! Walks a tree and sends its entries: a directory before what is in it, names ascending.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;

use oncefs_stream::{Flags, Name, Record, Totals, TreePath};

use super::body::Body;
use super::older::OlderTree;
use super::outgoing::Outgoing;
use super::resume::{Left, left_of};
use crate::failure::{Failure, OrFail, Outcome, exit};
use crate::files::held::{Entry, Held};
use crate::files::reserved;
use crate::files::{attributes, flags};
use crate::names::shown;

/// Directories held open at a time, so that no tree is too deep for the limit of open files.
const HELD_MAX: usize = 64;

/// Sends a tree.
pub struct Sender<'a> {
    outgoing: Outgoing<'a>,
    older: Option<OlderTree>,
    /// The first name of each inode that has several.
    links: HashMap<u64, TreePath>,
}

/// A directory whose entries are being sent.
struct Directory {
    held: Option<Held>,
    about: Metadata,
    entries: std::vec::IntoIter<Entry>,
    /// Everything in it has arrived with an earlier stream.
    has_arrived: bool,
}

impl<'a> Sender<'a> {
    /// Will send what is in the top, and of the older tree only where its contents are.
    pub fn new(outgoing: Outgoing<'a>, older: Option<OlderTree>) -> Self {
        Self { outgoing, older, links: HashMap::new() }
    }

    /// Sends everything. Returns what the stream holds, and its length.
    pub fn send(mut self) -> Outcome<(Totals, u64)> {
        let mut above = Vec::new();
        let held = self.outgoing.top.held.below([]).map_err(|e| self.outgoing.failed(&e))?;
        above.push(self.directory(held, false)?);
        while let Some(directory) = above.last_mut() {
            match directory.entries.next() {
                Some(entry) => {
                    let (name, has_arrived) = (entry.name, directory.has_arrived);
                    let found = self.hold(&mut above, &name)?;
                    if let Some(held) = found
                        && let Some(inner) = self.entry(&name, held, has_arrived)?
                    {
                        above.push(inner);
                        let holding = above.len().saturating_sub(HELD_MAX);
                        if holding > 1 {
                            above[holding - 1].held = None;
                        }
                    }
                }
                None => self.leave(&mut above)?,
            }
        }
        let bytes = self.outgoing.out.bytes();
        let finished = self.outgoing.out.finish().or_fail_doing(exit::FAILED, "cannot write the stream");
        finished.map(|(totals, _)| (totals, bytes))
    }

    /// Holds an entry of the innermost directory. None: it is gone, or another file system is mounted there.
    fn hold(&self, above: &mut [Directory], name: &OsStr) -> Outcome<Option<Held>> {
        let directory = self.innermost(above)?;
        match directory.below([name]) {
            Ok(held) => Ok(Some(held)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EXDEV) => {
                let path = self.outgoing.shown_path().join(name);
                tell!("oncefs: {} is another file system, which is left out", shown(&path));
                Ok(None)
            }
            Err(e) => Err(self.outgoing.failed(&e)),
        }
    }

    fn innermost<'b>(&self, above: &'b mut [Directory]) -> Outcome<&'b Held> {
        let directory = above.last_mut().expect("the walk is in a directory");
        if directory.held.is_none() {
            let names = self.outgoing.path.names().iter().map(|name| OsStr::from_bytes(name.bytes()));
            directory.held = Some(self.outgoing.top.held.below(names).map_err(|e| self.outgoing.failed(&e))?);
        }
        Ok(directory.held.as_ref().expect("it was held just now"))
    }

    fn directory(&self, held: Held, has_arrived: bool) -> Outcome<Directory> {
        let listed = held.about().and_then(|about| Ok((about, held.entries()?)));
        let (about, mut entries) = listed.map_err(|e| self.outgoing.failed(&e))?;
        if self.is_root_of_mount() {
            entries.retain(|entry| entry.name != reserved::NAME);
        }
        Ok(Directory { held: Some(held), about, entries: entries.into_iter(), has_arrived })
    }

    /// Whether the directory at the present path is the root of the mount, which has folders of its own.
    fn is_root_of_mount(&self) -> bool {
        self.outgoing.path.names().is_empty() && self.outgoing.top.above.is_none()
    }

    fn leave(&mut self, above: &mut Vec<Directory>) -> Outcome {
        self.innermost(above)?;
        let directory = above.pop().expect("the walk is in a directory");
        if !directory.has_arrived {
            let held = directory.held.expect("the innermost directory is held");
            let flags = held.open().and_then(|open| flags::of(&open));
            let attributes = flags.and_then(|flags| attributes::of(&held, &directory.about, flags));
            let attributes = attributes.map_err(|e| self.outgoing.failed(&e))?;
            self.outgoing.record(&Record::Leave { attributes })?;
        }
        self.outgoing.path.pop();
        Ok(())
    }

    /// Sends an entry. Returns a directory, whose entries follow.
    fn entry(&mut self, name: &OsStr, held: Held, has_arrived: bool) -> Outcome<Option<Directory>> {
        let doing = || format!("cannot send {}", shown(&self.outgoing.shown_path().join(name)));
        let name = Name::new(name.as_bytes()).map_err(|e| Failure::new(exit::FAILED, format!("{}: {e}", doing())))?;
        self.outgoing.path.push(name.clone());
        let left = if has_arrived {
            Left::Nothing
        } else {
            left_of(&self.outgoing.path, self.outgoing.header.resumed.as_ref())
        };
        let about = held.about().map_err(|e| self.outgoing.failed(&e))?;
        if about.is_dir() {
            if left != Left::Nothing {
                self.outgoing.record(&Record::Enter { name })?;
            }
            return self.directory(held, left == Left::Nothing).map(Some);
        }
        let linked = self.first_name(&about);
        match (left, linked) {
            (Left::Nothing, _) => {}
            (_, Some(target)) => self.outgoing.record(&Record::Link { name, target })?,
            (left, None) => self.inode(name, &held, &about, left)?,
        }
        self.outgoing.path.pop();
        Ok(None)
    }

    /// The first name of an inode that has come already under another one.
    fn first_name(&mut self, about: &Metadata) -> Option<TreePath> {
        if about.nlink() < 2 {
            return None;
        }
        match self.links.entry(about.ino()) {
            std::collections::hash_map::Entry::Occupied(first) => Some(first.get().clone()),
            std::collections::hash_map::Entry::Vacant(place) => {
                place.insert(self.outgoing.path.clone());
                None
            }
        }
    }

    fn inode(&mut self, name: Name, held: &Held, about: &Metadata, left: Left) -> Outcome {
        let with = |flags| attributes::of(held, about, flags).map_err(|e| self.outgoing.failed(&e));
        match about.mode() & libc::S_IFMT {
            libc::S_IFREG => {
                let file = held.open_unnoticed().map_err(|e| self.outgoing.failed(&e))?;
                let attributes = with(flags::of(&file).map_err(|e| self.outgoing.failed(&e))?)?;
                let start = match left {
                    Left::Rest(part) if part.size == about.len() && part.modified == attributes.modified => part.bytes,
                    _ => 0,
                };
                self.outgoing.record(&Record::File { name, attributes, size: about.len(), start })?;
                let older = self.older.as_ref().map(|older| older.file(&self.outgoing.path, about)).transpose();
                let older = older.map_err(|e| self.outgoing.failed(&e))?.flatten();
                Body::new(&mut self.outgoing, &file, about, older).send(start)?;
                self.outgoing.record(&Record::FileEnd)
            }
            libc::S_IFLNK => {
                let attributes = with(Flags::default())?;
                let target = held.link_target().map_err(|e| self.outgoing.failed(&e))?;
                self.outgoing.record(&Record::Symlink { name, attributes, target })
            }
            _ => {
                let attributes = with(Flags::default())?;
                self.outgoing.record(&Record::Special { name, attributes, device: about.rdev() })
            }
        }
    }
}
