//! The files to read below some paths: regular files, each once however many names it has, and block devices.

use std::fs::Metadata;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::seen::Seen;
use crate::files::held::Held;
use crate::files::walk::{Step, walk};

/// What a path leads to.
pub enum Met<'a> {
    /// A file or a block device.
    Data(&'a Held, Length),
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
    fn of(about: &Metadata) -> Self {
        Self { bytes: about.len(), stored_bytes: (about.blocks() * SECTOR).min(about.len()) }
    }
}

/// Calls `each` for every file and device, with a function that returns its path. Remembers files with further names in
/// at most `memory_bytes_max`. Returns the number of files that did not fit: these come again at each of their names.
pub fn go_through(paths: &[PathBuf], memory_bytes_max: u64, each: &mut dyn FnMut(&dyn Fn() -> PathBuf, Met)) -> u64 {
    let mut seen = Seen::new(paths.len() > 1, memory_bytes_max);
    for path in paths {
        let place = || path.clone();
        match top(path).and_then(|held| Ok((held.about()?, held))) {
            Ok((about, held)) if about.is_dir() || about.is_file() => {
                walk(path, held, &mut |place, step| match step {
                    Step::Found(held, about) if about.is_file() && seen.is_new(about) => {
                        each(&|| place.path(), Met::Data(held, Length::of(about)));
                    }
                    Step::Found(..) => {}
                    Step::Refused(error) => each(&|| place.path(), Met::Refused(error)),
                });
            }
            Ok((about, held)) if about.file_type().is_block_device() => match device_bytes(&held) {
                Ok(bytes) if seen.is_new(&about) => {
                    each(&place, Met::Data(&held, Length { bytes, stored_bytes: bytes }));
                }
                Ok(_) => {}
                Err(error) => each(&place, Met::Refused(error)),
            },
            Ok(_) => each(&place, Met::Refused(io::Error::other("it is no file, directory or block device"))),
            Err(error) => each(&place, Met::Refused(error)),
        }
    }
    seen.forgotten()
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
        let mut names = Vec::new();
        let forgotten = go_through(paths, 1 << 20, &mut |place, met| {
            let name = place().file_name().unwrap().to_str().unwrap().to_owned();
            names.push(match met {
                Met::Data(_, length) => format!("{name} {}", length.bytes),
                Met::Refused(_) => format!("{name} refused"),
            });
        });
        assert_eq!(forgotten, 0);
        names
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
