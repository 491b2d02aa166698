//! How a file lies in the data area: explained, and defragmented.

use oncefs_engine::{BLOCK_BYTES, DefragOptions, DefragOutcome, Explained, ExplainedRun, Lbn, What, push_run};

use crate::content::map::with_map;
use crate::{FileSystem, Ino, Result};

impl FileSystem {
    /// A portion of a regular file from block `from` on, see [`oncefs_engine::Store::explain`]. Behind what is mapped
    /// last comes a hole up to the file's size.
    pub fn explain(&self, ino: Ino, from: Lbn) -> Result<Explained> {
        let inode = self.inode(ino)?;
        with_map(&inode, |map, size| {
            let mut explained = self.store.explain(map, from)?;
            if explained.next.is_none() {
                let end = explained.runs.last().map_or(from.0, |run| run.lbn + run.blocks);
                let blocks = size.div_ceil(BLOCK_BYTES as u64).saturating_sub(end);
                push_run(&mut explained.runs, ExplainedRun { lbn: end, blocks, what: What::Hole });
            }
            Ok(explained)
        })
    }

    /// Lays a regular file out again, from where the options say, and gives what became of it; see [`Store::relayout`].
    /// No time of the file changes.
    ///
    /// [`Store::relayout`]: oncefs_engine::Store::relayout
    pub fn defrag(&self, ino: Ino, options: &DefragOptions) -> Result<DefragOutcome> {
        if !options.dry_run {
            self.check_writable()?;
        }
        let inode = self.inode(ino)?;
        with_map(&inode, |map, _| Ok(self.store.defrag(map, options)?))
    }
}
