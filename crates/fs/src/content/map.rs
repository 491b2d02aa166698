//! The map of a regular file, which a truncation to zero replaces.

use oncefs_engine::MapId;

use crate::inodes::cache::Inode;
use crate::{Error, FileKind, Result};

/// Map and size of a regular file.
pub(crate) fn map_and_size(inode: &Inode) -> Result<(MapId, u64)> {
    let record = inode.lock();
    match record.kind {
        FileKind::Regular => Ok((record.map, record.size)),
        FileKind::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

/// Calls `operation` with map and size of a regular file, again if the map was detached in between.
pub(crate) fn with_map<T>(inode: &Inode, mut operation: impl FnMut(MapId, u64) -> Result<T>) -> Result<T> {
    loop {
        let (map, size) = map_and_size(inode)?;
        match operation(map, size) {
            // A deleted file keeps its detached map: that is no reason to try again.
            Err(Error::Stale) if map_and_size(inode)?.0 != map => {}
            result => return result,
        }
    }
}
