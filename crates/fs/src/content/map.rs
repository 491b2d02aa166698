//! The map that holds a regular file's blocks. Truncating a file to zero detaches its map and gives it a new one.

use oncefs_engine::MapId;

use crate::inodes::cache::Inode;
use crate::{Error, FileKind, Result};

/// The map of a regular file, and its size in bytes.
pub(crate) fn map_and_size(inode: &Inode) -> Result<(MapId, u64)> {
    let record = inode.lock();
    match record.kind {
        FileKind::Regular => Ok((record.map, record.size)),
        FileKind::Directory => Err(Error::IsADirectory),
        _ => Err(Error::Invalid("not a regular file")),
    }
}

/// Calls `operation` with the map and the size of a regular file, and again if the map was detached meanwhile.
pub(crate) fn with_map<T>(inode: &Inode, mut operation: impl FnMut(MapId, u64) -> Result<T>) -> Result<T> {
    loop {
        let (map, size) = map_and_size(inode)?;
        match operation(map, size) {
            // A deleted file keeps its detached map, and trying again would never end.
            Err(Error::Stale) if map_and_size(inode)?.0 != map => {}
            result => return result,
        }
    }
}
