//! The invariants between the records of a file system that is not in use, and the audit that checks all of them.
//!
//! 1. The root is a directory and its own parent.
//! 2. A name is stored where a lookup finds it, and points to an inode of the kind that it states. A place counts the
//!    names that passed it.
//! 3. A file has as many names as its link count. A directory has one, in the directory that it records as its parent,
//!    and the way up from it leads to the root, or to an orphan that goes with everything below it.
//! 4. A directory counts its entries; its link count is 2 and one for each subdirectory.
//! 5. An inode has an orphan record if and only if its link count is 0.
//! 6. A symbolic link has one target, whose length is its size. No other inode has one.
//! 7. An inode counts its extended attributes, and each of them belongs to an inode.
//! 8. A map belongs to one regular file, which counts its blocks.
//! 9. Every inode number is below the lease.
//! 10. Every record has a well-formed key and can be decoded.
//! 11. The engine's policy for a map agrees with the attribute and the usage of its file. No other map has a policy.
//! 12. A file below the ranking record's number has a place in a rank queue, unless it is cold or has no name.
//!
//! An audit reads every record once. It reads records keyed by inode side by side, in the order of inodes. It sorts
//! names, which are keyed by directory, by their target inode, and inodes by their map (`oncefs_engine::Sorter`). So
//! its memory is bounded for any number of files.

mod inodes;
mod maps;
mod names;
mod queues;
mod records;
mod tree;

use oncefs_engine::{Sorter, Store};

use crate::format::lease;
use crate::fsck::fault::Fault;
use crate::names::placement::{Placement, RecordState};
use crate::{FileSystem, Ino, Result};

/// A phase of an audit of names, with the unit of its progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamePhase {
    /// Reading names. Progress: inode numbers of directories passed, of all numbers leased.
    Names,
    /// Reading inodes. Progress: inode numbers passed, of all numbers leased.
    Inodes,
    /// Comparing inodes with their maps. Progress: files compared, of all regular files.
    Maps,
}

/// Called with the phase, the progress in it, and its end.
pub type NameProgress<'a> = &'a mut dyn FnMut(NamePhase, u64, u64);

/// An audit under way.
struct Audit<'a> {
    store: &'a Store,
    placement: Placement,
    /// The lease: every inode number in use should be below it.
    lease: u64,
    /// The highest inode number found.
    newest: u64,
    /// Names by target: inode, directory, place with the kind in its low bits.
    targets: Sorter<3>,
    /// Names that passed a place (directory, place, 0), and the counts that places have (directory, place, count).
    passed: Sorter<3>,
    /// Directories: number, entries, subdirectories.
    directories: Sorter<3>,
    /// Regular files by map: map, inode, blocks, policy as a number.
    owners: Sorter<4>,
    owners_count: u64,
    /// Inodes with a place in a queue.
    places: Sorter<1>,
    /// Files below this number have a place, if they are not cold.
    known_below: Ino,
    tree: tree::Tree,
    found: &'a mut dyn FnMut(Fault),
    progress: NameProgress<'a>,
}

/// Checks all names, inodes and their maps, and passes every fault to `found`. Nothing may change meanwhile.
pub fn audit(store: &Store, found: &mut dyn FnMut(Fault), progress: NameProgress<'_>) -> Result<()> {
    let lease = store.get(lease::KEY)?.and_then(|bytes| lease::decode(&bytes).ok());
    let (placement, record) = Placement::read_or_tell(store)?;
    if record == RecordState::Lost {
        found(Fault::Placement);
    }
    let mut audit = Audit {
        store,
        placement,
        lease: lease.map_or(0, |Ino(next)| next),
        newest: Ino::ROOT.0,
        targets: Sorter::default(),
        passed: Sorter::default(),
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
    audit.passed()?;
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
    /// Audits all names, inodes and their maps, and reports each fault in one line. Nothing may change meanwhile.
    ///
    /// # Errors
    ///
    /// `Engine`: the store cannot be read, or there is no room for temporary files.
    pub fn check(&self, report: &mut dyn FnMut(String)) -> Result<()> {
        audit(&self.store, &mut |fault| report(fault.to_string()), &mut |_, _, _| ())
    }
}
