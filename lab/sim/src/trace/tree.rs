//! Reads directory trees as if they were a trace: each file is written when it was modified last and, if it was
//! accessed after that, read when it was accessed last; both from its beginning to its end.
//!
//! What a tree cannot tell, it does not: no earlier writes, no other reads. Nothing is changed by it, access times
//! neither.

use std::collections::HashSet;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use oncefs_dedup::BLOCK_BYTES;
use xxhash_rust::xxh3::xxh3_128;

use super::request::{Content, Event, Place, Read, Source, TraceError, Write};

/// Blocks of a request at most, 128 KiB.
const REQUEST_BLOCKS_MAX: u64 = 32;

/// The regular files of directory trees, ready to be played.
///
/// A file is numbered by its place in the walk, which takes names in order. One with several names counts once. What
/// cannot be read is left out and named in [`Tree::left_out`]. Only the next request is kept in memory, and some 100
/// bytes and its path for each file.
pub struct Tree {
    files: Vec<TreeFile>,
    accesses: Vec<Access>,
    /// The access that is being played, and how far it is.
    at: usize,
    lbn: u64,
    open: Option<File>,
    bytes: Vec<u8>,
    contents: Vec<Content>,
    left_out: Vec<String>,
}

struct TreeFile {
    path: PathBuf,
    /// Blocks seen when it was written.
    blocks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Access {
    time: Duration,
    file: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Write,
    Read,
}

impl Tree {
    /// Looks at all files below these directories, and stays on the file systems that they are on. Fails if one of the
    /// directories cannot be looked at.
    pub fn below(roots: &[PathBuf]) -> io::Result<Self> {
        let mut walk = Walk::default();
        for root in roots {
            let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", root.display()));
            let metadata = fs::metadata(root).map_err(named)?;
            fs::read_dir(root).map_err(named)?;
            walk.look_at(root, metadata.dev());
        }
        walk.accesses.sort_unstable();
        let Walk { files, accesses, left_out, .. } = walk;
        let bytes = vec![0; REQUEST_BLOCKS_MAX as usize * BLOCK_BYTES];
        Ok(Self { files, accesses, at: 0, lbn: 0, open: None, bytes, contents: Vec::new(), left_out })
    }

    /// Files found.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// What could not be read so far: its path and why.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// The contents of the next write and their bytes. None: everything was written.
    pub fn next_written(&mut self) -> Option<(&[Content], &[u8])> {
        while let Some((Access { kind, .. }, _, blocks)) = self.advance() {
            if kind == Kind::Write {
                return Some((&self.contents, &self.bytes[..blocks as usize * BLOCK_BYTES]));
            }
        }
        None
    }

    /// The next request's access, first block and number of blocks; `contents` are those that are written.
    fn advance(&mut self) -> Option<(Access, u64, u64)> {
        loop {
            let access = *self.accesses.get(self.at)?;
            let first = self.lbn;
            let blocks = match access.kind {
                Kind::Write => self.take_contents(access.file),
                Kind::Read => (self.files[access.file].blocks - first).min(REQUEST_BLOCKS_MAX),
            };
            if blocks > 0 {
                self.lbn += blocks;
                return Some((access, first, blocks));
            }
            (self.at, self.lbn, self.open) = (self.at + 1, 0, None);
        }
    }

    /// The next blocks of the file that is being written; none at its end, or if it cannot be read on.
    fn take_contents(&mut self, file: usize) -> u64 {
        match self.read_on(file) {
            Ok(read) => {
                let blocks = self.bytes[..read.next_multiple_of(BLOCK_BYTES)].chunks_exact(BLOCK_BYTES);
                self.contents.clear();
                self.contents.extend(blocks.map(content_of));
                self.files[file].blocks += self.contents.len() as u64;
                self.contents.len() as u64
            }
            Err(error) => {
                self.left_out.push(format!("{}: {error}", self.files[file].path.display()));
                0
            }
        }
    }

    /// Fills the buffer from the file, with zeros after its end. Returns bytes read; less than there is room for only at
    /// the end.
    fn read_on(&mut self, file: usize) -> io::Result<usize> {
        let open = match &mut self.open {
            Some(open) => open,
            closed => closed.insert(open_untouched(&self.files[file].path)?),
        };
        let mut read = 0;
        while read < self.bytes.len() {
            match open.read(&mut self.bytes[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
        self.bytes[read..].fill(0);
        Ok(read)
    }
}

impl Source for Tree {
    fn next(&mut self) -> Result<Option<Event<'_>>, TraceError> {
        let Some((Access { time, file, kind }, lbn, blocks)) = self.advance() else { return Ok(None) };
        let place = Place { file: file as u64, lbn };
        Ok(Some(match kind {
            Kind::Write => Event::Write(Write { time, place, contents: &self.contents }),
            Kind::Read => Event::Read(Read { time, place, blocks }),
        }))
    }
}

/// What is found while directories are walked.
#[derive(Default)]
struct Walk {
    files: Vec<TreeFile>,
    accesses: Vec<Access>,
    /// Device and inode of the files that have several names.
    linked: HashSet<(u64, u64)>,
    left_out: Vec<String>,
}

impl Walk {
    /// Takes all that is below a directory on this device.
    fn look_at(&mut self, root: &Path, device: u64) {
        let mut dirs = vec![root.to_owned()];
        while let Some(dir) = dirs.pop() {
            let mut entries = match fs::read_dir(&dir).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
                Ok(entries) => entries,
                Err(error) => {
                    self.left_out.push(format!("{}: {error}", dir.display()));
                    continue;
                }
            };
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                match entry.metadata() {
                    Ok(metadata) if metadata.dev() != device => (),
                    Ok(metadata) if metadata.is_dir() => dirs.push(entry.path()),
                    Ok(metadata) if metadata.is_file() => self.take(entry.path(), &metadata),
                    Ok(_) => (),
                    Err(error) => self.left_out.push(format!("{}: {error}", entry.path().display())),
                }
            }
        }
    }

    fn take(&mut self, path: PathBuf, metadata: &Metadata) {
        if metadata.nlink() > 1 && !self.linked.insert((metadata.dev(), metadata.ino())) {
            return;
        }
        let file = self.files.len();
        let written = since_1970(metadata.mtime(), metadata.mtime_nsec());
        let accessed = since_1970(metadata.atime(), metadata.atime_nsec());
        self.accesses.push(Access { time: written, file, kind: Kind::Write });
        if accessed > written {
            self.accesses.push(Access { time: accessed, file, kind: Kind::Read });
        }
        self.files.push(TreeFile { path, blocks: 0 });
    }
}

/// Times before 1970 count as 1970.
fn since_1970(seconds: i64, nanoseconds: i64) -> Duration {
    u64::try_from(seconds).map_or(Duration::ZERO, |seconds| Duration::new(seconds, nanoseconds as u32))
}

/// Opens without changing the access time, where that is allowed: to the file's owner and to root.
fn open_untouched(path: &Path) -> io::Result<File> {
    let untouched = OpenOptions::new().read(true).custom_flags(libc::O_NOATIME).open(path);
    untouched.or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => File::open(path),
        _ => Err(error),
    })
}

/// A block's identity: XXH3 of 128 bits, which serves for an MD5 where nobody makes collisions on purpose.
fn content_of(block: &[u8]) -> Content {
    if block.iter().all(|byte| *byte == 0) { Content::ZERO } else { Content(xxh3_128(block)) }
}

#[cfg(test)]
mod tests {
    use std::fs::FileTimes;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::trace::Recording;

    /// A directory that vanishes.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("oncefs-sim-tree-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn file(&self, name: &str, bytes: &[u8], modified: u64, accessed: u64) {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
            let times = FileTimes::new().set_modified(at(modified)).set_accessed(at(accessed));
            File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Second, file, first block, and the contents or the number of blocks read.
    type Played = (u64, u64, u64, Result<Vec<Content>, u64>);

    fn played(tree: &mut Tree) -> Vec<Played> {
        let mut played = Vec::new();
        while let Some(event) = tree.next().unwrap() {
            let seconds = event.time().as_secs();
            played.push(match event {
                Event::Write(Write { place, contents, .. }) => (seconds, place.file, place.lbn, Ok(contents.to_vec())),
                Event::Read(Read { place, blocks, .. }) => (seconds, place.file, place.lbn, Err(blocks)),
            });
        }
        played
    }

    #[test]
    fn files_are_written_and_read_whole_in_the_order_of_their_times() {
        let dir = Dir::new("order");
        dir.file("b", &[7; 4_097], 50, 90);
        dir.file("a/c", &[0; 4_096], 60, 60);
        dir.file("a/empty", &[], 10, 99);
        let mut tree = Tree::below(std::slice::from_ref(&dir.0)).unwrap();
        assert_eq!(tree.files(), 3);
        let full = content_of(&[7; 4_096]);
        let last = content_of(&[&[7][..], &[0; 4_095]].concat());
        // Names in order: b, and then what is below a.
        assert_eq!(
            played(&mut tree),
            [(50, 0, 0, Ok(vec![full, last])), (60, 1, 0, Ok(vec![Content::ZERO])), (90, 0, 0, Err(2))]
        );
        assert!(tree.left_out().is_empty() && full != last);
    }

    #[test]
    fn long_files_come_in_requests_and_equal_blocks_are_equal() {
        let dir = Dir::new("long");
        let bytes: Vec<u8> = (0..70_u8).flat_map(|block| [block % 35 + 1; 4_096]).collect();
        dir.file("long", &bytes, 5, 6);
        let mut tree = Tree::below(std::slice::from_ref(&dir.0)).unwrap();
        let played = played(&mut tree);
        let firsts: Vec<(u64, u64)> = played.iter().map(|(seconds, _, lbn, _)| (*seconds, *lbn)).collect();
        assert_eq!(firsts, [(5, 0), (5, 32), (5, 64), (6, 0), (6, 32), (6, 64)]);
        let written = played.iter().filter_map(|(.., what)| what.as_ref().ok()).flatten().collect::<Vec<_>>();
        assert_eq!(written[..35], written[35..]);
        assert_eq!(written.iter().collect::<HashSet<_>>().len(), 35);
    }

    #[test]
    fn a_file_of_several_names_counts_once_and_links_and_pipes_do_not() {
        let dir = Dir::new("names");
        dir.file("one", &[1; 10], 5, 5);
        fs::hard_link(dir.0.join("one"), dir.0.join("two")).unwrap();
        std::os::unix::fs::symlink("one", dir.0.join("three")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(dir.0.join("four")).unwrap();
        let mut tree = Tree::below(std::slice::from_ref(&dir.0)).unwrap();
        assert_eq!((tree.files(), Recording::of(&mut tree).unwrap().blocks()), (1, 1));
    }

    #[test]
    fn access_times_stay_as_they_are() {
        let dir = Dir::new("untouched");
        dir.file("one", &[1; 10], 2_000_000, 1_000_000);
        let mut tree = Tree::below(std::slice::from_ref(&dir.0)).unwrap();
        assert_eq!(played(&mut tree).len(), 1, "it was not accessed after it was written");
        assert_eq!(fs::metadata(dir.0.join("one")).unwrap().atime(), 1_000_000);
    }

    #[test]
    fn what_vanishes_before_it_is_read_is_left_out_by_name() {
        let dir = Dir::new("vanishing");
        dir.file("one", &[1; 10], 5, 6);
        dir.file("two", &[2; 10], 7, 8);
        let mut tree = Tree::below(std::slice::from_ref(&dir.0)).unwrap();
        fs::remove_file(dir.0.join("one")).unwrap();
        let files: Vec<u64> = played(&mut tree).iter().map(|(_, file, ..)| *file).collect();
        assert_eq!(files, [1, 1]);
        assert!(matches!(tree.left_out(), [told] if told.contains("/one: ")), "{:?}", tree.left_out());
    }

    #[test]
    fn a_root_that_is_no_directory_is_refused_by_name() {
        let dir = Dir::new("root");
        dir.file("one", &[1; 10], 5, 6);
        for root in [dir.0.join("one"), dir.0.join("none")] {
            let error = Tree::below(std::slice::from_ref(&root)).err().unwrap().to_string();
            assert!(error.starts_with(root.to_str().unwrap()), "{error}");
        }
    }
}
