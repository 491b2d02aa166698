//! Blocks that only one tree has: those to which nothing else refers, counted a portion of a directory at a time.
//!
//! A block that is in the tree twice and nowhere else has two references, so it is not counted. To tell it from one that
//! another tree has too, all references of the tree would have to be remembered.

use oncefs_engine::{ComparedState, Lbn};

use crate::{Error, FileKind, FileSystem, Ino, Result};

/// Names in one portion.
const NAMES_MAX: usize = 128;
/// A larger file has several leaves, and is counted by itself.
const COUNTED_BYTES_MAX: u64 = 1 << 20;

/// The room that only a portion of a directory takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnPortion {
    /// Blocks of its files to which nothing else refers.
    pub blocks: u64,
    /// Directories in it.
    pub directories: Vec<Ino>,
    /// Files that are large or have several names, with the number of names. They are not counted in `blocks`.
    pub apart: Vec<(Ino, u32)>,
    /// After which name the next portion begins. None: this was the last.
    pub next: Option<u64>,
}

impl FileSystem {
    /// Counts what the names of a directory after the cookie `from` have for themselves: 128 names and as many leaves
    /// at most. None: `goes_on` ended the work.
    ///
    /// # Errors
    ///
    /// - `NotADirectory`, `Stale`: the inode is not a directory, or does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn own_blocks(&self, directory: Ino, from: u64, goes_on: &dyn Fn() -> bool) -> Result<Option<OwnPortion>> {
        self.directory(directory)?;
        let mut portion = OwnPortion::default();
        let names = self.names_after(directory, from, NAMES_MAX)?;
        for name in &names {
            if !goes_on() {
                return Ok(None);
            }
            // Without a record the name is being removed.
            let Some(record) = self.record_of(name.ino)? else { continue };
            match record.kind {
                FileKind::Directory => portion.directories.push(name.ino),
                FileKind::Regular if record.blocks == 0 => {}
                FileKind::Regular if record.nlink > 1 || record.size > COUNTED_BYTES_MAX => {
                    portion.apart.push((name.ino, record.nlink));
                }
                FileKind::Regular => portion.blocks += self.own_blocks_of(name.ino)?,
                _ => {}
            }
        }
        portion.next = names.last().filter(|_| names.len() == NAMES_MAX).map(|last| last.cookie);
        Ok(Some(portion))
    }

    /// Blocks of a small file to which nothing else refers.
    fn own_blocks_of(&self, ino: Ino) -> Result<u64> {
        match self.compare(ino, None, Lbn(0)) {
            Ok(compared) => {
                let own = compared.runs.iter().filter(|run| run.state == ComparedState::Own);
                Ok(own.map(|run| run.blocks).sum())
            }
            // It was deleted after its name was read.
            Err(Error::Stale) => Ok(0),
            Err(error) => Err(error),
        }
    }
}
