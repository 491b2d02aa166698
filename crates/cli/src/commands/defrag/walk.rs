//! The files below a path: regular ones of the same mount, each once whatever its names.

use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::text::shown;

/// A file to defragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// One of its names.
    pub path: PathBuf,
    /// Its inode number.
    pub inode: u64,
    /// Blocks that it has, reserved ones included.
    pub blocks: u64,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Found {
    /// The files, in the order of the directories.
    pub files: Vec<File>,
    /// What could not be read, and why.
    pub refused: Vec<String>,
    seen: HashSet<u64>,
}

impl Found {
    /// Adds a file, or everything below a directory. Skips other mounts, symbolic links and special files.
    pub fn add(&mut self, path: &Path) {
        let top = match path.symlink_metadata() {
            Ok(top) => top,
            Err(error) => return self.refuse(path, &error),
        };
        let mut directories = Vec::new();
        self.take(path.to_owned(), &top, top.dev(), &mut directories);
        while let Some(directory) = directories.pop() {
            if let Err(error) = self.add_directory(&directory, top.dev(), &mut directories) {
                self.refuse(&directory, &error);
            }
        }
    }

    fn add_directory(&mut self, directory: &Path, device: u64, directories: &mut Vec<PathBuf>) -> io::Result<()> {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
        entries.sort_unstable();
        for path in entries {
            match path.symlink_metadata() {
                Ok(metadata) => self.take(path, &metadata, device, directories),
                // Deleted since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => self.refuse(&path, &error),
            }
        }
        Ok(())
    }

    fn take(&mut self, path: PathBuf, metadata: &Metadata, device: u64, directories: &mut Vec<PathBuf>) {
        if metadata.dev() != device {
            return;
        }
        if metadata.is_dir() {
            directories.push(path);
        } else if metadata.is_file() && self.seen.insert(metadata.ino()) {
            self.files.push(File { path, inode: metadata.ino(), blocks: metadata.blocks() / 8 });
        }
    }

    fn refuse(&mut self, path: &Path, error: &io::Error) {
        self.refused.push(format!("{}: {error}", shown(path)));
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn each_file_is_found_once_and_nothing_else() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        for name in ["z", "a/one", "a/b/two"] {
            fs::write(at(name), name).unwrap();
        }
        fs::hard_link(at("a/one"), at("a/b/also-one")).unwrap();
        symlink(at("z"), at("a/link")).unwrap();
        symlink(top.path(), at("a/round")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("a/socket")).unwrap();
        let mut found = Found::default();
        found.add(top.path());
        found.add(&at("a/one"));
        found.add(&at("missing"));
        let names: Vec<_> =
            found.files.iter().map(|file| file.path.strip_prefix(top.path()).unwrap().display().to_string()).collect();
        assert_eq!(names, ["z", "a/one", "a/b/two"]);
        assert_eq!(found.refused.len(), 1, "{:?}", found.refused);
        assert!(found.refused[0].contains("missing"));
    }
}
