//! A file on its way in, and the files that contents are taken from.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use oncefs_stream::{Attributes, BLOCK_BYTES, Flags, Partial, Source};
use rustix::fs::{FallocateFlags, copy_file_range, fallocate};

use crate::files::attributes;
use crate::files::held::Held;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// A file that is being written.
pub struct OpenFile {
    file: File,
    attributes: Attributes,
    size: u64,
    /// Everything before this byte has arrived.
    arrived: u64,
    /// The size that the file has so far.
    length: u64,
}

impl OpenFile {
    /// Begins a file, or goes on after its first `start` bytes.
    pub fn begin(file: File, attributes: Attributes, size: u64, start: u64) -> io::Result<Self> {
        if start > 0 {
            if file.metadata()?.len() < start {
                return Err(io::Error::other("the first part of it is not here"));
            }
            // Everything after the first part arrives again.
            file.set_len(start)?;
        }
        Ok(Self { file, attributes, size, arrived: start, length: start })
    }

    /// Everything before this byte has arrived, and the file reaches to it.
    fn has_arrived(&mut self, end: u64) {
        self.arrived = end;
        self.length = self.length.max(end);
    }

    /// Writes contents.
    pub fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)?;
        self.has_arrived(at + bytes.len() as u64);
        Ok(())
    }

    /// Takes contents from a file that has them. The volume stores them once.
    pub fn share(&mut self, at: u64, length: u64, source: &File, source_at: u64) -> io::Result<()> {
        if source.metadata()?.len().saturating_sub(source_at) < length {
            return Err(io::Error::other("the stream takes contents from behind the end of a file"));
        }
        let (mut from, mut to, mut left) = (source_at, at, length);
        while left > 0 {
            let count = left.min(1 << 30) as usize;
            match copy_file_range(source, Some(&mut from), &self.file, Some(&mut to), count)? {
                0 => return Err(io::Error::other("the file that contents are taken from was cut meanwhile")),
                copied => left = left.saturating_sub(copied as u64),
            }
        }
        self.has_arrived(at + length);
        Ok(())
    }

    /// Reserves room.
    pub fn reserve(&mut self, at: u64, length: u64) -> io::Result<()> {
        fallocate(&self.file, FallocateFlags::KEEP_SIZE, at, length)?;
        self.arrived = at + length;
        // A file that is continued reaches to where it begins again.
        self.extend_to(self.arrived.min(self.size))
    }

    fn extend_to(&mut self, length: u64) -> io::Result<()> {
        if length > self.length {
            self.file.set_len(length)?;
            self.length = length;
        }
        Ok(())
    }

    /// Sets size and attributes. Returns the flags, of which those that forbid changes are not set.
    pub fn end(mut self) -> io::Result<Flags> {
        self.extend_to(self.size)?;
        attributes::set(&Held::from(self.file), &self.attributes)?;
        Ok(self.attributes.flags)
    }

    /// The part of it that has arrived. None: nothing.
    pub fn partial(&self) -> Option<Partial> {
        let bytes = self.arrived.min(self.size) / BLOCK * BLOCK;
        (bytes > 0).then_some(Partial { bytes, size: self.size, modified: self.attributes.modified })
    }
}

/// Where contents may be taken from, beside the tree itself.
pub struct Sources {
    /// The older tree that the stream refers to.
    pub older: Option<Held>,
    /// The contents that the sender was told are here.
    pub known: Option<File>,
}

/// The files that contents are taken from.
pub struct OpenSources {
    top: Held,
    beside: Sources,
    /// The one used last: contents that follow each other mostly come from one file.
    last: Option<(Source, File)>,
}

impl OpenSources {
    /// Files of this tree, and what is beside it.
    pub fn new(top: Held, beside: Sources) -> Self {
        Self { top, beside, last: None }
    }

    /// The file that a stream names.
    ///
    /// # Errors
    /// There is no such file, or it is not what the stream says.
    pub fn find(&mut self, source: &Source) -> io::Result<&File> {
        if *source == Source::Known {
            return self
                .beside
                .known
                .as_ref()
                .ok_or_else(|| io::Error::other("the stream takes contents from nowhere"));
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != source) {
            self.last = Some((source.clone(), self.open(source)?));
        }
        self.last.as_ref().map(|(_, file)| file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(&self, source: &Source) -> io::Result<File> {
        let (top, path) = match source {
            Source::Here { path } => (Some(&self.top), path),
            Source::Older { path, .. } => (self.beside.older.as_ref(), path),
            Source::Known => return Err(io::ErrorKind::NotFound.into()),
        };
        let top = top.ok_or_else(|| io::Error::other("the stream does not say which older tree it refers to"))?;
        let held = top.below(path.names().iter().map(|name| OsStr::from_bytes(name.bytes())))?;
        let about = held.about()?;
        if !about.is_file() {
            return Err(io::Error::other("the stream takes contents from what is not a file"));
        }
        if let Source::Older { size, modified, .. } = source
            && (*size, *modified) != (about.len(), attributes::modified(&about))
        {
            return Err(io::Error::other("a file of the older tree was changed since it was received"));
        }
        held.open_unnoticed()
    }
}
