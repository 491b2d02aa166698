//! The run's own directory, removed with everything in it.

use std::path::Path;

use crate::failure::{During, Result};

/// The directory; removed when dropped.
pub struct WorkDirectory(tempfile::TempDir);

impl WorkDirectory {
    /// Makes a new one in `dir`.
    pub fn create(dir: &Path) -> Result<WorkDirectory> {
        // A daemon is recognised by the mount point among its arguments, where symbolic links and dots are resolved.
        let dir = dir.canonicalize().during(|| format!("cannot find {} (see --dir)", dir.display()))?;
        let created = tempfile::Builder::new().prefix("oncefs-bench.").tempdir_in(&dir);
        created.map(WorkDirectory).during(|| format!("cannot create a directory in {} (see --dir)", dir.display()))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}
