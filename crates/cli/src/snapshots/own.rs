//! Blocks that only one snapshot has: the room that its removal would free at least.

use std::collections::HashSet;

use oncefs_engine::{BLOCK_BYTES, Compared, ComparedState};

use crate::control::answers::OwnPortion;
use crate::control::protocol::Request;
use crate::control::target::Daemon;
use crate::failure::Outcome;

/// Bytes of blocks to which nothing but the tree refers, and that it has once. The daemon reads maps and the block
/// table, no data, in portions of 128 names or 32 MiB of a file; the memory here grows with the directories on the way
/// and with the files that have several names.
pub fn own_bytes(daemon: &Daemon, top: u64) -> Outcome<u64> {
    let (mut blocks, mut directories, mut counted) = (0, vec![top], HashSet::new());
    while let Some(directory) = directories.pop() {
        let mut from = Some(0);
        while let Some(after) = from {
            let portion: OwnPortion = daemon.ask(Request::OwnBlocks { directory, from: after })?;
            blocks += portion.blocks;
            directories.extend(portion.directories);
            for (inode, names) in portion.apart {
                if names == 1 || counted.insert(inode) {
                    blocks += own_blocks_of(daemon, inode)?;
                }
            }
            from = portion.next;
        }
    }
    Ok(blocks * BLOCK_BYTES as u64)
}

/// Those of one file.
fn own_blocks_of(daemon: &Daemon, inode: u64) -> Outcome<u64> {
    let (mut blocks, mut from) = (0, Some(0));
    while let Some(lbn) = from {
        let compared: Compared = daemon.ask(Request::Compare { inode, older: None, lbn })?;
        let own = compared.runs.iter().filter(|run| run.state == ComparedState::Own);
        blocks += own.map(|run| run.blocks).sum::<u64>();
        from = compared.next;
    }
    Ok(blocks)
}
