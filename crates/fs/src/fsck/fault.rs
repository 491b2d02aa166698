//! What an audit can find wrong with names, as values: what is said of it, and whether it can be mended.

use std::fmt;

use oncefs_engine::{Blocks, MapId, Remedy};

use crate::{FileKind, Ino};

/// A number in an inode that something else determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Names; of a directory 2 and one for each subdirectory.
    Links,
    /// Names in a directory.
    Entries,
    /// Extended attributes.
    Xattrs,
    /// Bytes of a symbolic link.
    Size,
    /// Data and reserved blocks.
    Blocks,
}

/// A contradiction. The numbers are those of the invariants in `check.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// (1) The root is not a directory that is its own parent.
    Root,
    /// (2) A name where no look-up searches it: its directory, the place that it has, the name.
    Place { parent: Ino, place: u64, name: Vec<u8> },
    /// (2) A name for an inode of another kind.
    NameKind { parent: Ino, place: u64, ino: Ino },
    /// (2) A name for an inode that does not exist.
    Dangling { parent: Ino, place: u64, ino: Ino },
    /// (3) A further name of a directory.
    SecondName { parent: Ino, place: u64, ino: Ino },
    /// (3) A directory takes another for its parent than the one with its name.
    Parent { ino: Ino, stored: Ino, found: Ino },
    /// (3) An inode without a name that is no orphan.
    Nameless { ino: Ino },
    /// (3) A directory from which one does not arrive at the root.
    CutOff { ino: Ino, parent: Ino },
    /// (3) to (8) A count that is not what it counts.
    Count { ino: Ino, count: Count, stored: u64, found: u64 },
    /// (4) Names in what is no directory.
    NotADirectory { ino: Ino },
    /// (5) An orphan with a name, which would be deleted with it.
    NamedOrphan { ino: Ino },
    /// (6) A symbolic link without a target.
    NoTarget { ino: Ino },
    /// (6) A target of something else.
    StrayTarget { ino: Ino },
    /// (7) Attributes or an orphan record of an inode that does not exist.
    Attachments { ino: Ino },
    /// (4), (6) An inode that does not exist, while its entries or its target do.
    Missing { ino: Ino, kind: FileKind },
    /// (8) A regular file without a map, or something else with one.
    HasMap { ino: Ino, map: MapId },
    /// (8) A map of two files.
    SharedMap { ino: Ino, other: Ino, map: MapId },
    /// (8) A map of no file.
    NobodysMap { map: MapId, blocks: Option<Blocks> },
    /// (11) The engine is told something else of a file than its attribute and its usage say.
    Policy { ino: Ino, map: MapId },
    /// (11) The engine is told something of a map of no file.
    NobodysPolicy { map: MapId },
    /// (12) A file that has no place in a rank queue.
    NoPlace { ino: Ino },
    /// (9) The lease is missing, damaged or too low.
    Lease { stored: Option<Ino>, newest: Ino },
    /// (10) A record whose key has an unknown form.
    Key { key: Vec<u8> },
    /// (10) A record that cannot be decoded.
    Record { key: Vec<u8>, error: String },
}

impl Fault {
    /// What may be done about it.
    pub fn remedy(&self) -> Remedy {
        match self {
            Fault::NameKind { .. }
            | Fault::Parent { .. }
            | Fault::Count { .. }
            | Fault::NamedOrphan { .. }
            | Fault::Policy { .. }
            | Fault::NobodysPolicy { .. }
            | Fault::NoPlace { .. }
            | Fault::Lease { .. } => Remedy::Safe,
            // A part of it is damaged, so that it is not known what it holds.
            Fault::NobodysMap { blocks: None, .. } => Remedy::None,
            // Nothing but advice is lost.
            Fault::Record { key, .. } | Fault::Key { key } if matches!(key.first(), Some(b'q' | b'r')) => Remedy::Safe,
            _ => Remedy::Asked,
        }
    }

    /// Lower ones are mended first: each kind is found reliably only where there is none before it.
    pub fn rank(&self) -> u8 {
        match self {
            Fault::Root | Fault::Lease { .. } | Fault::Key { .. } | Fault::Record { .. } | Fault::Missing { .. } => 0,
            Fault::Nameless { .. } | Fault::CutOff { .. } => 2,
            Fault::SharedMap { .. } | Fault::NobodysMap { .. } => 3,
            Fault::Count { .. } | Fault::Policy { .. } | Fault::NobodysPolicy { .. } | Fault::NoPlace { .. } => 4,
            _ => 1,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Count::Links => "(3) its link count",
            Count::Entries => "(4) its number of entries",
            Count::Xattrs => "(7) its number of extended attributes",
            Count::Size => "(6) its size",
            Count::Blocks => "(8) its number of blocks",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Root => f.write_str("(1) the root is not a directory that is its own parent"),
            Fault::Place { parent: Ino(parent), name, .. } => {
                let name = String::from_utf8_lossy(name);
                write!(f, "(2) directory {parent}: '{name}' lies where no look-up finds it")
            }
            Fault::NameKind { parent: Ino(parent), ino: Ino(ino), .. } => {
                write!(f, "(2) directory {parent}: the name of inode {ino} says that it is of another kind")
            }
            Fault::Dangling { parent: Ino(parent), ino: Ino(ino), .. } => {
                write!(f, "(2) directory {parent} has a name for inode {ino}, which does not exist")
            }
            Fault::SecondName { parent: Ino(parent), ino: Ino(ino), .. } => {
                write!(f, "(3) directory {ino} has one more name, in directory {parent}")
            }
            Fault::Parent { ino, stored, found } => {
                write!(f, "(3) directory {}: its parent should be {} and is {}", ino.0, found.0, stored.0)
            }
            Fault::Nameless { ino } => write!(f, "(3) inode {} has no name and is no orphan", ino.0),
            Fault::CutOff { ino, parent } => {
                write!(f, "(3) directory {}, in directory {}, is not below the root", ino.0, parent.0)
            }
            Fault::Count { ino, count, stored, found } => {
                write!(f, "inode {}: {count} should be {found} and is {stored}", ino.0)
            }
            Fault::NotADirectory { ino } => write!(f, "(4) inode {} has entries and is no directory", ino.0),
            Fault::NamedOrphan { ino } => write!(f, "(5) inode {} is an orphan and has a name", ino.0),
            Fault::NoTarget { ino } => write!(f, "(6) the symbolic link {} has no target", ino.0),
            Fault::StrayTarget { ino } => write!(f, "(6) inode {} has a target and is no symbolic link", ino.0),
            Fault::Attachments { ino } => {
                write!(f, "(7) inode {} does not exist and has attributes or an orphan record", ino.0)
            }
            Fault::Missing { ino, kind: FileKind::Directory } => {
                write!(f, "(4) inode {} does not exist and has entries", ino.0)
            }
            Fault::Missing { ino, .. } => write!(f, "(6) inode {} does not exist and has a target", ino.0),
            Fault::HasMap { ino, map: MapId(0) } => write!(f, "(8) the file {} has no map", ino.0),
            Fault::HasMap { ino, map } => write!(f, "(8) inode {} is no file and has map {}", ino.0, map.0),
            Fault::SharedMap { ino, other, map } => {
                write!(f, "(8) inode {}: its map {} belongs to inode {} too", ino.0, map.0, other.0)
            }
            Fault::NobodysMap { map, blocks: Some(blocks) } => {
                write!(f, "(8) map {} with {} blocks belongs to no inode", map.0, blocks.0)
            }
            Fault::NobodysMap { map, blocks: None } => {
                write!(f, "(8) map {}, a part of which is damaged, belongs to no inode", map.0)
            }
            Fault::Policy { ino, map } => {
                let (ino, map) = (ino.0, map.0);
                write!(
                    f,
                    "(11) inode {ino}: its blocks, map {map}, are not deduplicated as its attribute and its rank say"
                )
            }
            Fault::NobodysPolicy { map } => write!(f, "(11) map {} belongs to no inode and has a policy", map.0),
            Fault::NoPlace { ino } => write!(f, "(12) inode {} has no place in a rank queue", ino.0),
            Fault::Lease { stored: None, .. } => f.write_str("(9) the inode number lease is missing or damaged"),
            Fault::Lease { stored: Some(stored), newest } => {
                write!(f, "(9) inode {} exists, but {} is the next to be handed out", newest.0, stored.0)
            }
            Fault::Key { key } => write!(f, "(10) a record has the unknown key {key:02x?}"),
            Fault::Record { error, .. } => write!(f, "(10) {error}"),
        }
    }
}
