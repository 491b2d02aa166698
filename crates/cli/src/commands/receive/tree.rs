//! A tree on its way in. Nothing outside it is touched: names are single components, and no link is followed.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use oncefs_stream::{Attributes, Digest, Flags, Name, Position, Record, TreePath};

use super::file::{OpenFile, OpenSources, Sources};
use super::late_flags::LateFlags;
use crate::files::held::Held;
use crate::files::{attributes, flags};

/// The tree.
pub struct Tree {
    top: Held,
    /// The directory that is being filled, and its path.
    at: Held,
    path: TreePath,
    file: Option<(Name, OpenFile)>,
    sources: OpenSources,
    /// The last entry that has arrived with everything in it.
    last: Option<TreePath>,
    resuming: Option<Resuming>,
    late_flags: LateFlags,
}

/// The beginning of a resumed stream: the directories on the way to its position.
struct Resuming {
    position: Position,
    /// How many of them have come.
    entered: usize,
}

impl Tree {
    /// An empty tree at `top`, or one that was received up to a position.
    pub fn new(top: Held, sources: Sources, resumed: Option<Position>, late_flags: LateFlags) -> io::Result<Self> {
        let at = top.below([])?;
        if let Some(position) = &resumed {
            remove_behind(&top, &position.path)?;
        }
        let sources = OpenSources::new(top.below([])?, sources);
        let last = resumed.as_ref().filter(|position| position.partial.is_none()).map(|position| position.path.clone());
        let resuming = resumed.map(|position| Resuming { position, entered: 0 });
        Ok(Self { top, at, path: TreePath::default(), file: None, sources, last, resuming, late_flags })
    }

    /// Applies a record.
    pub fn take(&mut self, record: Record) -> io::Result<()> {
        if self.resuming.is_some() && !matches!(record, Record::Data { .. } | Record::Share { .. }) {
            return self.take_at_seam(record);
        }
        self.apply(record, 0)
    }

    /// Applies a record that comes before everything new.
    fn take_at_seam(&mut self, record: Record) -> io::Result<()> {
        let Some(Resuming { position, entered }) = &mut self.resuming else { return self.apply(record, 0) };
        let names = position.path.names();
        let (last, above) = names.split_last().ok_or_else(|| io::Error::other("a position without a path"))?;
        if let Some(expected) = above.get(*entered) {
            return match record {
                Record::Enter { name } if name == *expected => {
                    *entered += 1;
                    self.enter(name)
                }
                _ => {
                    Err(io::Error::other("the tree was changed since it was interrupted: receive it again, all of it"))
                }
            };
        }
        let (last, partial) = (last.clone(), position.partial);
        self.resuming = None;
        match (&record, partial) {
            (Record::File { name, start, .. }, Some(partial)) if *name == last && *start > 0 => {
                match *start == partial.bytes {
                    true => self.apply(record, partial.bytes),
                    false => Err(io::Error::other("the rest of the file begins elsewhere than its first part ends")),
                }
            }
            (_, Some(_)) => {
                // The file was changed since, and comes again or is gone.
                match self.at.remove_all(os(&last)) {
                    Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
                    _ => self.apply(record, 0),
                }
            }
            (_, None) => self.apply(record, 0),
        }
    }

    /// Applies a record. `arrived`: the bytes of a file that are here already.
    fn apply(&mut self, record: Record, arrived: u64) -> io::Result<()> {
        match record {
            Record::Enter { name } => {
                self.at.create_directory(os(&name)).map_err(twice)?;
                self.enter(name)
            }
            Record::Leave { attributes } => self.leave(&attributes),
            Record::File { start, .. } if start != arrived => Err(io::Error::other("the first part of it is not here")),
            Record::File { name, attributes, size, start } => {
                let file = match start {
                    0 => self.at.create_file(os(&name)).map_err(twice)?,
                    _ => self.at.open_to_write(os(&name))?,
                };
                self.file = Some((name, OpenFile::begin(file, attributes, size, start)?));
                Ok(())
            }
            Record::Data { at, bytes, .. } => self.open_file()?.write(at, &bytes),
            Record::Share { at, length, source, source_at } => {
                let (_, file) = self.file.as_mut().ok_or_else(outside_file)?;
                file.share(at, length, self.sources.find(&source)?, source_at)
            }
            Record::Reserve { at, length } => self.open_file()?.reserve(at, length),
            Record::FileEnd => {
                let (name, file) = self.file.take().ok_or_else(outside_file)?;
                let flags = file.end()?;
                self.late_flags.note(&self.path.with(&name), flags)?;
                self.arrived(&name);
                Ok(())
            }
            Record::Link { name, target } => {
                let (target, above) =
                    target.names().split_last().ok_or_else(|| io::Error::other("a link to the top"))?;
                let above = self.top.below(above.iter().map(os))?;
                self.at.create_link(os(&name), &above, os(target)).map_err(twice)?;
                self.arrived(&name);
                Ok(())
            }
            Record::Symlink { name, attributes, target } => {
                self.at.create_symlink(os(&name), &target).map_err(twice)?;
                self.created(&name, &attributes)
            }
            Record::Special { name, attributes, device } => {
                self.at.create_special(os(&name), attributes.mode, device).map_err(twice)?;
                self.created(&name, &attributes)
            }
            Record::Ask { .. } | Record::End { .. } => Ok(()),
        }
    }

    fn enter(&mut self, name: Name) -> io::Result<()> {
        self.at = self.at.below([os(&name)])?;
        if !self.at.about()?.is_dir() {
            return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
        }
        self.path.push(name);
        Ok(())
    }

    /// Sets the attributes of the directory when it is full, because filling it changes its times.
    fn leave(&mut self, attributes: &Attributes) -> io::Result<()> {
        attributes::set(&self.at, attributes)?;
        self.late_flags.note(&self.path, attributes.flags)?;
        if self.path.names().is_empty() {
            return Ok(());
        }
        self.last = Some(self.path.clone());
        self.path.pop();
        self.at = self.top.below(self.path.names().iter().map(os))?;
        Ok(())
    }

    fn created(&mut self, name: &Name, attributes: &Attributes) -> io::Result<()> {
        attributes::set(&self.at.below([os(name)])?, attributes)?;
        self.arrived(name);
        Ok(())
    }

    fn arrived(&mut self, name: &Name) {
        self.last = Some(self.path.with(name));
    }

    fn open_file(&mut self) -> io::Result<&mut OpenFile> {
        self.file.as_mut().map(|(_, file)| file).ok_or_else(outside_file)
    }

    /// How far the tree has arrived. None: nothing has.
    pub fn position(&self) -> Option<Position> {
        if let Some(resuming) = &self.resuming {
            return Some(resuming.position.clone());
        }
        let partial = self.file.as_ref().and_then(|(name, file)| Some((self.path.with(name), file.partial()?)));
        match partial {
            Some((path, partial)) => Some(Position { path, partial: Some(partial) }),
            None => Some(Position { path: self.last.clone()?, partial: None }),
        }
    }

    /// Notes on the tree which one it is a copy of.
    pub fn mark(&self, source: &Digest) -> io::Result<()> {
        self.top.set_attribute(attributes::RECEIVED, Some(&source.to_string()))
    }

    /// Sets the flags that forbid changes, except those of the top, which it returns.
    pub fn set_late_flags(&mut self) -> io::Result<Flags> {
        self.late_flags.set(&self.top)
    }

    /// Sets the flags of the top.
    pub fn set_flags_of_top(&self, of_top: Flags) -> io::Result<()> {
        flags::set(&self.top, of_top)
    }

    /// The path of the present entry, below `top`, for messages.
    pub fn shown_path(&self, top: &Path) -> PathBuf {
        let mut path = top.to_owned();
        path.extend(self.path.names().iter().map(os));
        path.extend(self.file.iter().map(|(name, _)| os(name)));
        path
    }
}

/// Removes everything that comes after a path in the order of a walk: it arrived after the position was saved, and comes
/// again.
fn remove_behind(top: &Held, path: &TreePath) -> io::Result<()> {
    let mut at = top.below([])?;
    for (depth, name) in path.names().iter().enumerate() {
        for entry in at.entries()?.into_iter().filter(|entry| entry.name.as_bytes() > name.bytes()) {
            at.remove_all(&entry.name)?;
        }
        if depth + 1 < path.names().len() {
            at = at.below([os(name)])?;
        }
    }
    Ok(())
}

fn os(name: &Name) -> &OsStr {
    OsStr::from_bytes(name.bytes())
}

fn twice(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::AlreadyExists => io::Error::new(error.kind(), "the stream has two entries of one name"),
        _ => error,
    }
}

fn outside_file() -> io::Error {
    io::Error::other("contents outside a file")
}
