//! A memory cgroup, of whichever version the machine has.

use std::fs;
use std::path::{Path, PathBuf};

/// A memory cgroup with a limit, removed when dropped (its processes must be gone by then).
pub struct MemoryCgroup {
    dir: PathBuf,
}

impl MemoryCgroup {
    /// Makes a cgroup limited to `bytes`.
    pub fn new(bytes: u64) -> Self {
        let unified = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let (parent, limit) = if unified {
            fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory").unwrap();
            ("/sys/fs/cgroup", "memory.max")
        } else {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        };
        let dir = Path::new(parent).join(format!("oncefs-test-{}", std::process::id()));
        fs::create_dir(&dir).unwrap_or_else(|error| panic!("a memory cgroup is needed; {}: {error}", dir.display()));
        let cgroup = MemoryCgroup { dir };
        fs::write(cgroup.dir.join(limit), bytes.to_string()).unwrap();
        cgroup
    }

    /// The file that takes the ids of processes to move in; "0" stands for the writer.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.dir);
    }
}
