//! A tree of small files like a source tree: generated in memory, copied in, read and deleted.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::content::{Random, expand};
use crate::failure::{During, Failure, Result};
use crate::measure::Latencies;

const FILES_PER_DIRECTORY: usize = 25;
const DIRECTORIES_PER_PARENT: usize = 12;
/// Sizes are 2^(MIN..MAX), evenly in the exponent: median 2 KiB, mean about 8 KiB, as in header trees.
const SIZE_EXPONENT_MIN: f64 = 6.0;
const SIZE_EXPONENT_MAX: f64 = 16.0;

/// A tree in memory.
pub struct Tree {
    directories: Vec<PathBuf>,
    files: Vec<(PathBuf, Vec<u8>)>,
}

impl Tree {
    /// `count` files of unique content.
    pub fn generate(seed: u64, count: usize) -> Tree {
        let mut random = Random::new(seed);
        let directories: Vec<PathBuf> = (0..count.div_ceil(FILES_PER_DIRECTORY)).map(directory_path).collect();
        let files = (0..count)
            .map(|index| {
                let path = directories[index / FILES_PER_DIRECTORY].join(format!("file-{index:05}.h"));
                let mut content = vec![0; file_bytes(&mut random).next_multiple_of(8)];
                expand(seed, index as u64, &mut content);
                (path, content)
            })
            .collect();
        Tree { directories, files }
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|(_, content)| content.len() as u64).sum()
    }

    /// Copies the tree below `root` as `cp -a` would and makes it durable; times each file.
    pub fn copy_to(&self, root: &Path, latencies: &mut Latencies) -> Result<()> {
        for directory in &self.directories {
            let path = root.join(directory);
            fs::create_dir_all(&path).during(|| format!("cannot create {}", path.display()))?;
        }
        latencies.each(self.files.len(), |index| {
            let (path, content) = &self.files[index];
            let path = root.join(path);
            copy_file(&path, content).during(|| format!("cannot write {}", path.display()))
        })?;
        make_durable(root)
    }

    /// Walks the tree below `root`, reading every file; fails unless all contents are right.
    pub fn read_from(&self, root: &Path, latencies: &mut Latencies) -> Result<()> {
        let mut buffer = Vec::new();
        latencies.each(self.files.len(), |index| {
            let (path, content) = &self.files[index];
            let path = root.join(path);
            buffer.clear();
            let read = File::open(&path).and_then(|mut file| file.read_to_end(&mut buffer));
            read.during(|| format!("cannot read {}", path.display()))?;
            match buffer == *content {
                true => Ok(()),
                false => Err(Failure::new(format!("WRONG CONTENT in {}", path.display()))),
            }
        })
    }

    /// Lists every directory below `root` and asks for the attributes of every file, as `find` and `git status` do; times
    /// each file, with the listing of its directory where it is the first of it.
    pub fn walk_in(&self, root: &Path, latencies: &mut Latencies) -> Result<()> {
        let mut names = Vec::new();
        latencies.each(self.files.len(), |index| {
            let directory = root.join(&self.directories[index / FILES_PER_DIRECTORY]);
            if index.is_multiple_of(FILES_PER_DIRECTORY) {
                names = names_in(&directory).during(|| format!("cannot list {}", directory.display()))?;
                names.sort_unstable();
            }
            let (path, content) = &self.files[index];
            let found = names.get(index % FILES_PER_DIRECTORY).map(|name| directory.join(name));
            let path = found.filter(|found| *found == root.join(path));
            let path = path.ok_or_else(|| Failure::new(format!("A FILE IS MISSING in {}", directory.display())))?;
            let bytes = fs::symlink_metadata(&path).during(|| format!("cannot look at {}", path.display()))?.len();
            match bytes == content.len() as u64 {
                true => Ok(()),
                false => Err(Failure::new(format!("WRONG SIZE of {}", path.display()))),
            }
        })
    }

    /// Deletes the tree below `root` and makes that durable; times each file.
    pub fn delete_from(&self, root: &Path, latencies: &mut Latencies) -> Result<()> {
        latencies.each(self.files.len(), |index| {
            let path = root.join(&self.files[index].0);
            fs::remove_file(&path).during(|| format!("cannot delete {}", path.display()))
        })?;
        let directories = root.join(TOP);
        fs::remove_dir_all(&directories).during(|| format!("cannot delete {}", directories.display()))?;
        make_durable(root)
    }
}

const TOP: &str = "tree";

fn directory_path(index: usize) -> PathBuf {
    let parent = index / DIRECTORIES_PER_PARENT;
    Path::new(TOP).join(format!("part-{parent:03}")).join(format!("directory-{index:04}"))
}

fn names_in(directory: &Path) -> std::io::Result<Vec<OsString>> {
    fs::read_dir(directory)?.map(|entry| Ok(entry?.file_name())).collect()
}

fn file_bytes(random: &mut Random) -> usize {
    let share = random.index(1 << 20) as f64 / f64::from(1 << 20);
    (SIZE_EXPONENT_MIN + (SIZE_EXPONENT_MAX - SIZE_EXPONENT_MIN) * share).exp2() as usize
}

fn copy_file(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(content)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
}

/// syncfs for the kernel's file systems; fsync of the directory for those on FUSE, which syncfs does not reach.
pub fn make_durable(root: &Path) -> Result<()> {
    let directory = File::open(root).during(|| format!("cannot open {}", root.display()))?;
    // SAFETY: the descriptor is open during the call, which touches no memory of ours.
    if unsafe { libc::syncfs(directory.as_raw_fd()) } != 0 {
        return Err(std::io::Error::last_os_error()).during(|| "syncfs failed");
    }
    directory.sync_all().during(|| "fsync of the root directory failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_copied_read_and_deleted() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Tree::generate(5, 60);
        let latencies = || Latencies::with_capacity(60);
        tree.copy_to(directory.path(), &mut latencies()).unwrap();
        tree.read_from(directory.path(), &mut latencies()).unwrap();
        tree.walk_in(directory.path(), &mut latencies()).unwrap();
        let (path, _) = &tree.files[42];
        fs::write(directory.path().join(path), "other").unwrap();
        assert!(tree.read_from(directory.path(), &mut latencies()).is_err());
        assert!(tree.walk_in(directory.path(), &mut latencies()).is_err());
        tree.delete_from(directory.path(), &mut latencies()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn file_sizes_are_those_of_small_files() {
        let tree = Tree::generate(1, 4000);
        let mean = tree.bytes() / 4000;
        assert!((6_000..13_000).contains(&mean), "mean size is {mean}");
    }
}
