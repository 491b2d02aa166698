//! What holds between the records of a file system at rest, and the function that checks all of it.
//!
//! 1. The root is a directory and its own parent.
//! 2. A name lies where a look-up searches it and points to an inode of the kind that it says.
//! 3. A file has as many names as its link count. A directory has one, in the directory that it takes for its
//!    parent, and going up from it one arrives at the root.
//! 4. A directory counts its entries; its link count is 2 and one for each subdirectory.
//! 5. An inode has an orphan record if and only if its link count is 0.
//! 6. A symbolic link has one target, as long as its size; nothing else has one.
//! 7. An inode counts its extended attributes, and each of them belongs to an inode.
//! 8. A map belongs to one regular file, which counts its blocks.
//! 9. Every inode number lies below the lease.
//! 10. Every record can be decoded and has a key of a known form.
//! 11. What the engine is told of how a file is deduplicated is what the file's attribute and its usage say, and is
//!     told of no other map.
//! 12. A file that the rank queues know has a place in one of them, unless it is cold.
//!
//! An audit reads every record once. Those that are keyed by inode are read side by side, in the order of inodes;
//! names, which are keyed by directory, are sorted by what they point to, and inodes by their map
//! (`oncefs_engine::Sorter`). So its memory is bounded however many files there are.

mod inodes;
mod maps;
mod names;
mod queues;
mod records;
mod tree;

use oncefs_engine::{Sorter, Store};

use crate::format::lease;
use crate::fsck::fault::Fault;
use crate::names::seed::name_seed;
use crate::{FileSystem, Ino, Result};

/// What an audit of names does just now, and in what unit it says how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePhase {
    /// Reading names: numbers of directories passed of those that were handed out.
    Names,
    /// Reading inodes: numbers passed of those that were handed out.
    Inodes,
    /// Comparing inodes with their maps: inodes compared of those that have one.
    Maps,
}

/// Told the phase, how much of it is done and how much it has.
pub type NameProgress<'a> = &'a mut dyn FnMut(NamePhase, u64, u64);

/// An audit under way.
struct Audit<'a> {
    store: &'a Store,
    name_seed: u64,
    /// Every inode number in use should be below.
    lease: u64,
    newest: u64,
    /// Names by what they point to: inode, directory, place with the kind in its low bits.
    targets: Sorter<3>,
    /// Directories: number, entries, subdirectories.
    directories: Sorter<3>,
    /// Regular files by map: map, inode, blocks, number of the policy.
    owners: Sorter<4>,
    owners_count: u64,
    /// Inodes by their places in queues.
    places: Sorter<1>,
    /// Files below have a place, if they are not cold.
    known_below: Ino,
    tree: tree::Tree,
    found: &'a mut dyn FnMut(Fault),
    progress: NameProgress<'a>,
}

/// Checks all names, inodes and their maps, on which nothing else happens meanwhile, and gives what contradicts.
pub fn audit(store: &Store, found: &mut dyn FnMut(Fault), progress: NameProgress<'_>) -> Result<()> {
    let lease = store.get(lease::KEY)?.and_then(|bytes| lease::decode(&bytes).ok());
    let mut audit = Audit {
        store,
        name_seed: name_seed(store),
        lease: lease.map_or(0, |Ino(next)| next),
        newest: Ino::ROOT.0,
        targets: Sorter::default(),
        directories: Sorter::default(),
        owners: Sorter::default(),
        owners_count: 0,
        places: Sorter::default(),
        known_below: Ino::ROOT,
        tree: tree::Tree::default(),
        found,
        progress,
    };
    audit.unknown_records()?;
    audit.queues()?;
    audit.names()?;
    audit.inodes()?;
    for (ino, parent) in std::mem::take(&mut audit.tree).cut_off() {
        (audit.found)(Fault::CutOff { ino, parent });
    }
    if lease.is_none_or(|Ino(next)| next <= audit.newest) {
        (audit.found)(Fault::Lease { stored: lease, newest: Ino(audit.newest) });
    }
    audit.maps()
}

impl FileSystem {
    /// Checks everything and reports each contradiction in one line. Nothing may change meanwhile.
    pub fn check(&self, report: &mut dyn FnMut(String)) -> Result<()> {
        audit(&self.store, &mut |fault| report(fault.to_string()), &mut |_, _, _| ())
    }
}
