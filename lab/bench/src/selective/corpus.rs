//! The files written to the mounts: those of a synthetic workload, or copies of those below a directory.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use super::workload::Workload;
use crate::aligned::{AlignedBuffer, BLOCK_BYTES};
use crate::content::Random;
use crate::failure::{During, Failure, Result};
use crate::files;
use crate::signal;

/// Bytes of a write.
const WRITE_BYTES: usize = 1 << 20;

/// Files by their numbers, from 0 on.
pub trait Corpus {
    /// How many.
    fn files(&self) -> usize;
    /// Bytes of a file.
    fn bytes(&self, file: usize) -> u64;
    /// Writes a new file, which is not made durable.
    fn write(&self, file: usize, path: &Path) -> Result<()>;
    /// Compares every byte.
    fn verify(&self, file: usize, path: &Path) -> Result<()>;
}

/// Where a file of a corpus is on a mount: a hundred to a directory.
pub fn place(root: &Path, file: usize) -> PathBuf {
    root.join(format!("{:03}", file / FILES_PER_DIRECTORY)).join(format!("file{file:06}"))
}

const FILES_PER_DIRECTORY: usize = 100;

/// Makes the directories of the corpus.
pub fn make_directories(root: &Path, corpus: &dyn Corpus) -> Result<()> {
    for first in (0..corpus.files()).step_by(FILES_PER_DIRECTORY) {
        let path = place(root, first);
        let directory = path.parent().unwrap_or(root);
        fs::create_dir_all(directory).during(|| format!("cannot create {}", directory.display()))?;
    }
    Ok(())
}

impl Corpus for Workload {
    fn files(&self) -> usize {
        self.plan.parts.len()
    }

    fn bytes(&self, file: usize) -> u64 {
        (self.plan.parts[file].indexes.len() * BLOCK_BYTES) as u64
    }

    fn write(&self, file: usize, path: &Path) -> Result<()> {
        signal::check()?;
        let during = || format!("cannot write {}", path.display());
        let mut to = BufWriter::with_capacity(WRITE_BYTES, files::open(path, true)?);
        let mut scratch = AlignedBuffer::new(BLOCK_BYTES);
        for index in self.plan.parts[file].indexes.clone() {
            to.write_all(self.content.block(index, &mut scratch)).during(during)?;
        }
        to.flush().during(during)
    }

    fn verify(&self, file: usize, path: &Path) -> Result<()> {
        let indexes = &self.plan.parts[file].indexes;
        files::verify(path, indexes.len(), |place| (&self.content, indexes.start + place))
    }
}

/// Regular files below a directory.
pub struct Tree {
    files: Vec<(PathBuf, u64)>,
}

impl Tree {
    /// All files that are not empty, or a random choice of them with at most `bytes_max` bytes.
    pub fn below(directory: &Path, bytes_max: u64, seed: u64) -> Result<Tree> {
        let mut found = Vec::new();
        find(directory, &mut found)?;
        found.sort();
        let mut tree = Tree { files: Vec::new() };
        let mut bytes_left = bytes_max;
        for index in Random::new(seed).permutation(found.len()) {
            let (path, bytes) = &found[index];
            if *bytes <= bytes_left {
                bytes_left -= bytes;
                tree.files.push((path.clone(), *bytes));
            }
        }
        if tree.files.is_empty() {
            return Err(Failure::new(format!("no file below {} is as small as --bytes", directory.display())));
        }
        Ok(tree)
    }
}

impl Tree {
    /// Where the files are.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|(path, _)| path.as_path())
    }
}

fn find(directory: &Path, found: &mut Vec<(PathBuf, u64)>) -> Result<()> {
    let during = || format!("cannot list {}", directory.display());
    for entry in fs::read_dir(directory).during(during)? {
        signal::check()?;
        let entry = entry.during(during)?;
        let kind = entry.file_type().during(during)?;
        if kind.is_dir() {
            find(&entry.path(), found)?;
        } else if kind.is_file() {
            let bytes = entry.metadata().during(during)?.len();
            found.extend((bytes > 0).then(|| (entry.path(), bytes)));
        }
    }
    Ok(())
}

impl Corpus for Tree {
    fn files(&self) -> usize {
        self.files.len()
    }

    fn bytes(&self, file: usize) -> u64 {
        self.files[file].1
    }

    fn write(&self, file: usize, path: &Path) -> Result<()> {
        signal::check()?;
        let (from, _) = &self.files[file];
        let during = || format!("cannot copy {} to {}", from.display(), path.display());
        let mut to = files::open(path, true)?;
        std::io::copy(&mut File::open(from).during(during)?, &mut to).during(during).map(drop)
    }

    fn verify(&self, file: usize, path: &Path) -> Result<()> {
        files::compare(&self.files[file].0, path)
    }
}

#[cfg(test)]
mod tests {
    use super::super::workload::Duplicates;
    use super::*;

    #[test]
    fn files_are_written_as_they_are_verified_and_counted() {
        let directory = tempfile::tempdir().unwrap();
        let workload = Workload::new(Duplicates::High, 8 << 20, 5);
        make_directories(directory.path(), &workload).unwrap();
        for file in 0..workload.files() {
            let path = place(directory.path(), file);
            workload.write(file, &path).unwrap();
            workload.verify(file, &path).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().len(), workload.bytes(file));
        }
        let [one, other] = [0, 1].map(|file| place(directory.path(), file));
        fs::copy(other, &one).unwrap();
        assert!(workload.verify(0, &one).is_err());
    }

    #[test]
    fn a_tree_has_its_files_up_to_the_asked_bytes() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("below")).unwrap();
        for (name, bytes) in [("a", 100), ("below/b", 200), ("c", 0), ("d", 5_000)] {
            fs::write(directory.path().join(name), vec![1; bytes]).unwrap();
        }
        std::os::unix::fs::symlink("a", directory.path().join("link")).unwrap();
        assert_eq!(Tree::below(directory.path(), 1 << 20, 1).unwrap().files(), 3);
        let tree = Tree::below(directory.path(), 1_000, 1).unwrap();
        assert_eq!((tree.files(), tree.bytes(0) + tree.bytes(1)), (2, 300));
        let copy = directory.path().join("copy");
        tree.write(0, &copy).unwrap();
        tree.verify(0, &copy).unwrap();
        assert!(tree.verify(1, &copy).is_err());
    }
}
