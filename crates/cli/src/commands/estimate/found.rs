//! The files to read below some paths: regular files, each once however many names it has, and block devices.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::seen::Seen;
use crate::files::held::{Held, Status};
use crate::files::walk::{Place, Visit, visit};

/// The treatment of each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Its length is looked at.
    Look,
    /// It is opened.
    Open,
}

/// The thing that a path leads to.
pub enum Met {
    /// A file or a block device that was looked at.
    Found(Length),
    /// A file or a block device, open for reading.
    Data(File, Length),
    /// Something that cannot be read.
    Refused(io::Error),
}

/// How long a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Length {
    /// Bytes with holes.
    pub bytes: u64,
    /// Bytes that it takes at its present place, never more than `bytes`.
    pub stored_bytes: u64,
}

/// The unit of `st_blocks`.
const SECTOR: u64 = 512;

impl Length {
    fn of(status: Status) -> Self {
        Self { bytes: status.bytes, stored_bytes: (status.sectors * SECTOR).min(status.bytes) }
    }
}

/// Calls `each` for every file and device, with a function that returns its path. Remembers files with further names in
/// at most `memory_bytes_max`. Returns the number of files that did not fit: these come again at each of their names.
pub fn go_through(
    paths: &[PathBuf],
    memory_bytes_max: u64,
    way: Way,
    each: &mut dyn FnMut(&dyn Fn() -> PathBuf, Met),
) -> u64 {
    let mut files = Files { seen: Seen::new(paths.len() > 1, memory_bytes_max), way, each };
    for path in paths {
        if let Err(error) = files.top(path) {
            (files.each)(&|| path.clone(), Met::Refused(error));
        }
    }
    files.seen.forgotten()
}

struct Files<'a> {
    seen: Seen,
    way: Way,
    each: &'a mut dyn FnMut(&dyn Fn() -> PathBuf, Met),
}

impl Files<'_> {
    /// Takes a path of the command line, with everything below it.
    fn top(&mut self, path: &Path) -> io::Result<()> {
        let held = top(path)?;
        let about = held.about()?;
        let is_device = about.file_type().is_block_device();
        if about.is_dir() {
            visit(path, held, self);
        } else if is_device || about.is_file() {
            let device_bytes = if is_device { Some(device_bytes(&held)?) } else { None };
            let of_device = device_bytes.map(|bytes| Length { bytes, stored_bytes: bytes });
            let length = of_device.unwrap_or_else(|| Length::of(Status::from(&about)));
            self.held(&held, Status::from(&about), length, &|| path.to_owned());
        } else {
            return Err(io::Error::other("it is no file, directory or block device"));
        }
        Ok(())
    }

    fn held(&mut self, held: &Held, status: Status, length: Length, path: &dyn Fn() -> PathBuf) {
        if !self.seen.is_new(status) {
            return;
        }
        let met = match self.way {
            Way::Look => Met::Found(length),
            Way::Open => held.open_unnoticed().map_or_else(Met::Refused, |file| Met::Data(file, length)),
        };
        (self.each)(path, met);
    }

    /// Takes what the directory calls a regular file. None: it has to be held.
    fn at_once(&mut self, directory: &Held, place: &Place) -> io::Result<Option<Status>> {
        let file = match self.way {
            Way::Look => None,
            Way::Open => match directory.open_at_once(place.name()) {
                Ok(file) => Some(file),
                Err(_) => return Ok(None),
            },
        };
        let status = match &file {
            None => directory.status_of(place.name())?,
            Some(file) => Status::from(&file.metadata()?),
        };
        if status.is_file() && self.seen.is_new(status) {
            let length = Length::of(status);
            (self.each)(&|| place.path(), file.map_or(Met::Found(length), |file| Met::Data(file, length)));
        }
        Ok(Some(status))
    }
}

impl Visit for Files<'_> {
    fn entry(&mut self, directory: &Held, place: &Place, is_file: bool) -> io::Result<bool> {
        if is_file && let Some(status) = self.at_once(directory, place)? {
            return Ok(status.is_dir());
        }
        let held = directory.below([place.name()])?;
        let status = Status::from(&held.about()?);
        if status.is_file() {
            self.held(&held, status, Length::of(status), &|| place.path());
        }
        Ok(status.is_dir())
    }

    fn refused(&mut self, place: &Place, error: io::Error) {
        (self.each)(&|| place.path(), Met::Refused(error));
    }
}

/// Opens a path from the command line. A link there stands for its target.
fn top(path: &Path) -> io::Result<Held> {
    Held::at(&path.canonicalize()?)
}

fn device_bytes(device: &Held) -> io::Result<u64> {
    device.open_unnoticed()?.seek(SeekFrom::End(0))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(paths: &[PathBuf]) -> Vec<String> {
        let [looked, opened] = [Way::Look, Way::Open].map(|way| {
            let mut names = Vec::new();
            let forgotten = go_through(paths, 1 << 20, way, &mut |place, met| {
                let name = place().file_name().unwrap().to_str().unwrap().to_owned();
                names.push(match met {
                    Met::Found(length) | Met::Data(_, length) => format!("{name} {}", length.bytes),
                    Met::Refused(_) => format!("{name} refused"),
                });
            });
            assert_eq!(forgotten, 0);
            names
        });
        assert_eq!(looked, opened, "both ways meet the same files");
        opened
    }

    #[test]
    fn each_file_comes_once_and_links_only_where_they_are_named() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/one"), "1").unwrap();
        fs::hard_link(at("a/one"), at("a/b/also-one")).unwrap();
        fs::write(at("a/b/two"), "22").unwrap();
        symlink(at("a/b"), at("a/link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("a/socket")).unwrap();
        assert_eq!(names(&[at("a")]), ["one 1", "two 2"]);
        assert_eq!(names(&[at("a/link")]), ["also-one 1", "two 2"]);
        assert_eq!(names(&[at("a/b/two"), at("a"), at("a")]), ["two 2", "one 1"]);
        assert_eq!(names(&[at("a/socket"), at("missing")]), ["socket refused", "missing refused"]);
    }
}
