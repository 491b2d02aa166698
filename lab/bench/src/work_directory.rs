//! The run's own directory, removed with everything in it, and what killed runs left in theirs.
//!
//! A run holds a lock in its directory, which ends with the process however it ends. So a directory whose lock is free
//! is left over: its daemons still serve, its mounts and loop devices are still there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::run;
use crate::failure::{During, Result, tell};
use crate::throttle;

/// Begins the name of every run's directory.
const PREFIX: &str = "oncefs-bench.";
/// Name of the file that is locked as long as the run lives.
const LOCK: &str = "lock";

/// The directory; removed when dropped.
pub struct WorkDirectory {
    directory: tempfile::TempDir,
    _lock: File,
}

impl WorkDirectory {
    /// Makes a new one in `dir`.
    pub fn create(dir: &Path) -> Result<WorkDirectory> {
        // A daemon is recognised by the mount point among its arguments, where symbolic links and dots are resolved.
        let dir = dir.canonicalize().during(|| format!("cannot find {} (see --dir)", dir.display()))?;
        let during = || format!("cannot create a directory in {} (see --dir)", dir.display());
        let directory = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&dir).during(during)?;
        let lock = File::create_new(directory.path().join(LOCK)).during(during)?;
        lock.lock().during(during)?;
        Ok(WorkDirectory { directory, _lock: lock })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

/// Undoes what runs that were killed left in `dir`: mounts, loop devices, their limits, and files.
pub fn clear_left_over(dir: &Path) -> Result<()> {
    let dir = dir.canonicalize().during(|| format!("cannot find {} (see --dir)", dir.display()))?;
    let during = || format!("cannot list {}", dir.display());
    for entry in fs::read_dir(&dir).during(during)? {
        let entry = entry.during(during)?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && is_left_over(&entry.path()) {
            tell(&format!("clearing {}, which a killed run left", entry.path().display()));
            clear(&entry.path())?;
        }
    }
    Ok(())
}

/// Whether nobody holds the directory's lock. One without a lock may be of another version that takes none.
fn is_left_over(directory: &Path) -> bool {
    File::open(directory.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok())
}

fn clear(directory: &Path) -> Result<()> {
    let table = fs::read_to_string("/proc/self/mounts").during(|| "cannot read the mounts")?;
    // Those that were mounted last first.
    for point in points_below(&table, directory).into_iter().rev() {
        if run(Command::new("umount").arg(&point)).is_err() {
            run(Command::new("umount").arg("--lazy").arg(&point))?;
        }
    }
    let listed = run(Command::new("losetup").args(["--list", "--noheadings", "--output", "NAME,MAJ:MIN,BACK-FILE"]))?;
    for (device, number) in devices_below(&listed, directory) {
        throttle::lift(&number);
        run(Command::new("losetup").arg("--detach").arg(device))?;
    }
    fs::remove_dir_all(directory).during(|| format!("cannot remove {}", directory.display()))
}

/// Mount points below a directory, in the order of the table. Names of ours need no escapes.
fn points_below(table: &str, directory: &Path) -> Vec<PathBuf> {
    let points = table.lines().filter_map(|line| line.split(' ').nth(1)).map(PathBuf::from);
    points.filter(|point| point.starts_with(directory)).collect()
}

/// Loop devices over files below a directory, with their numbers.
fn devices_below(listed: &str, directory: &Path) -> Vec<(String, String)> {
    let device = |line: &str| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let (name, number, file) = (words.next()?, words.next()?, words.next()?);
        Path::new(&file).starts_with(directory).then_some((name, number))
    };
    listed.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_directory_whose_run_has_ended_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let living = WorkDirectory::create(dir.path()).unwrap();
        let dead = dir.path().join("oncefs-bench.dead");
        let of_others = dir.path().join("oncefs-bench.of-another-version");
        let other = dir.path().join("else");
        [&dead, &of_others, &other].into_iter().for_each(|path| fs::create_dir(path).unwrap());
        [&dead, &other].into_iter().for_each(|path| drop(File::create(path.join(LOCK)).unwrap()));
        clear_left_over(dir.path()).unwrap();
        assert!(living.path().exists() && of_others.exists() && other.exists() && !dead.exists());
    }

    #[test]
    fn mounts_and_devices_are_those_below_the_directory() {
        let table = "/dev/loop1 /t/oncefs-bench.a/lower ext4 rw 0 0\nonce /t/oncefs-bench.a/upper fuse rw 0 0\n/dev/x /t ext4 rw 0 0\n";
        let directory = Path::new("/t/oncefs-bench.a");
        assert_eq!(points_below(table, directory), [directory.join("lower"), directory.join("upper")]);
        let listed =
            "/dev/loop1   7:1 /t/oncefs-bench.a/side0/device (deleted)\n/dev/loop2   7:2 /t/oncefs-bench.ab/device\n";
        assert_eq!(devices_below(listed, directory), [("/dev/loop1".to_owned(), "7:1".to_owned())]);
    }
}
