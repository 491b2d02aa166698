//! The faults that an audit of names can find, as values, with their descriptions and remedies.

use std::fmt;

use oncefs_engine::{Blocks, MapId, Remedy};

use crate::{FileKind, Ino};

/// A number in an inode that must agree with other records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Names. For a directory: 2, and 1 for each subdirectory.
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

/// A fault. The numbers are those of the invariants in `audit.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// (1) The root is not a directory that is its own parent.
    Root,
    /// (2) A name where no lookup finds it.
    Place { parent: Ino, place: u64, name: Vec<u8> },
    /// (2) A place of a directory that counts more or fewer names than passed it.
    Passed { parent: Ino, place: u64, stored: u32, found: u32 },
    /// (10) The placement record is damaged or missing.
    Placement,
    /// (2) A name that states another kind than its inode has.
    NameKind { parent: Ino, place: u64, ino: Ino },
    /// (2) A name for an inode that does not exist.
    Dangling { parent: Ino, place: u64, ino: Ino },
    /// (3) A directory with another name.
    SecondName { parent: Ino, place: u64, ino: Ino },
    /// (3) A directory that records another parent than the one with its name.
    Parent { ino: Ino, stored: Ino, found: Ino },
    /// (3) An inode without a name that is not an orphan.
    Nameless { ino: Ino },
    /// (3) A directory whose path up does not reach the root.
    CutOff { ino: Ino, parent: Ino },
    /// (3) to (8) A wrong count.
    Count { ino: Ino, count: Count, stored: u64, found: u64 },
    /// (4) An inode with entries that is not a directory.
    NotADirectory { ino: Ino },
    /// (5) An orphan with a name. The next mount would delete it.
    NamedOrphan { ino: Ino },
    /// (6) A symbolic link without a target.
    NoTarget { ino: Ino },
    /// (6) A target of an inode that is not a symbolic link.
    StrayTarget { ino: Ino },
    /// (7) Attributes or an orphan record of an inode that does not exist.
    Attachments { ino: Ino },
    /// (4), (6) An inode that does not exist, but has entries or a target.
    Missing { ino: Ino, kind: FileKind },
    /// (8) A regular file without a map, or another inode with one.
    HasMap { ino: Ino, map: MapId },
    /// (8) A map that two files have.
    SharedMap { ino: Ino, other: Ino, map: MapId },
    /// (8) A file with fewer blocks than it had, and the parts of 1 MiB with holes where they may have been.
    LostContent { ino: Ino, map: MapId, lost: Blocks, parts: Vec<u64> },
    /// (8) A map that no file has. `blocks` is None if a part of it is damaged.
    UnownedMap { map: MapId, blocks: Option<Blocks> },
    /// (11) The engine's policy for a file differs from the file's attribute and usage.
    Policy { ino: Ino, map: MapId },
    /// (11) A policy for a map that no file has.
    UnownedPolicy { map: MapId },
    /// (12) A file without a place in a rank queue.
    NoPlace { ino: Ino },
    /// (9) The lease is missing, damaged or too low.
    Lease { stored: Option<Ino>, newest: Ino },
    /// (10) A record with a malformed key.
    Key { key: Vec<u8> },
    /// (10) A record that cannot be decoded.
    Record { key: Vec<u8>, error: String },
}

impl Fault {
    /// Which permission its fix needs.
    pub fn remedy(&self) -> Remedy {
        match self {
            Fault::NameKind { .. }
            | Fault::Passed { .. }
            | Fault::Placement
            | Fault::Parent { .. }
            | Fault::Count { .. }
            | Fault::NamedOrphan { .. }
            | Fault::Policy { .. }
            | Fault::UnownedPolicy { .. }
            | Fault::NoPlace { .. }
            | Fault::Lease { .. } => Remedy::Safe,
            // Part of the map is damaged, so its content is unknown.
            Fault::UnownedMap { blocks: None, .. } => Remedy::None,
            // Queue and ranking records are advice.
            Fault::Record { key, .. } | Fault::Key { key } if matches!(key.first(), Some(b'q' | b'r')) => Remedy::Safe,
            _ => Remedy::Asked,
        }
    }

    /// The number of the invariant that is broken.
    pub fn rule(&self) -> u8 {
        match self {
            Fault::Root => 1,
            Fault::Place { .. } | Fault::Passed { .. } | Fault::NameKind { .. } | Fault::Dangling { .. } => 2,
            Fault::SecondName { .. }
            | Fault::Parent { .. }
            | Fault::Nameless { .. }
            | Fault::CutOff { .. }
            | Fault::Count { count: Count::Links, .. } => 3,
            Fault::NotADirectory { .. }
            | Fault::Missing { kind: FileKind::Directory, .. }
            | Fault::Count { count: Count::Entries, .. } => 4,
            Fault::NamedOrphan { .. } => 5,
            Fault::NoTarget { .. }
            | Fault::StrayTarget { .. }
            | Fault::Missing { .. }
            | Fault::Count { count: Count::Size, .. } => 6,
            Fault::Attachments { .. } | Fault::Count { count: Count::Xattrs, .. } => 7,
            Fault::HasMap { .. }
            | Fault::SharedMap { .. }
            | Fault::LostContent { .. }
            | Fault::UnownedMap { .. }
            | Fault::Count { count: Count::Blocks, .. } => 8,
            Fault::Lease { .. } => 9,
            Fault::Placement | Fault::Key { .. } | Fault::Record { .. } => 10,
            Fault::Policy { .. } | Fault::UnownedPolicy { .. } => 11,
            Fault::NoPlace { .. } => 12,
        }
    }

    /// The order of fixes, lowest first. The audit finds a fault of one rank reliably only if none of a lower rank is
    /// left.
    pub fn rank(&self) -> u8 {
        match self {
            Fault::Root
            | Fault::Placement
            | Fault::Lease { .. }
            | Fault::Key { .. }
            | Fault::Record { .. }
            | Fault::Missing { .. } => 0,
            Fault::Nameless { .. } | Fault::CutOff { .. } => 2,
            Fault::SharedMap { .. } | Fault::UnownedMap { .. } | Fault::LostContent { .. } => 3,
            Fault::Count { .. } | Fault::Policy { .. } | Fault::UnownedPolicy { .. } | Fault::NoPlace { .. } => 4,
            _ => 1,
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Count::Links => "its link count",
            Count::Entries => "its number of entries",
            Count::Xattrs => "its number of extended attributes",
            Count::Size => "its size",
            Count::Blocks => "its number of blocks",
        })
    }
}

impl Fault {
    /// A description of the fault.
    fn describe(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Root => f.write_str("the root is not a directory that is its own parent"),
            Fault::Place { parent: Ino(parent), name, .. } => {
                write!(f, "directory {parent}: '{}' is stored where no lookup finds it", name.escape_ascii())
            }
            Fault::Passed { parent, stored, found, .. } => {
                write!(f, "directory {}: {found} names passed a full place, which counts {stored}", parent.0)
            }
            Fault::Placement => f.write_str("the record of how names are placed is damaged or missing"),
            Fault::NameKind { parent: Ino(parent), ino: Ino(ino), .. } => {
                write!(f, "directory {parent}: the name of inode {ino} states a kind that the inode does not have")
            }
            Fault::Dangling { parent: Ino(parent), ino: Ino(ino), .. } => {
                write!(f, "directory {parent} has a name for inode {ino}, which does not exist")
            }
            Fault::SecondName { parent: Ino(parent), ino: Ino(ino), .. } => {
                write!(f, "directory {ino} has an extra name, in directory {parent}")
            }
            Fault::Parent { ino, stored, found } => {
                write!(f, "directory {}: its parent should be {} and is {}", ino.0, found.0, stored.0)
            }
            Fault::Nameless { ino } => write!(f, "inode {} has no name and is not an orphan", ino.0),
            Fault::CutOff { ino, parent } => {
                write!(f, "directory {}, in directory {}, is not below the root", ino.0, parent.0)
            }
            Fault::Count { ino, count, stored, found } => {
                write!(f, "inode {}: {count} should be {found} and is {stored}", ino.0)
            }
            Fault::NotADirectory { ino } => write!(f, "inode {} has entries but is not a directory", ino.0),
            Fault::NamedOrphan { ino } => write!(f, "inode {} is an orphan but has a name", ino.0),
            Fault::NoTarget { ino } => write!(f, "symbolic link {} has no target", ino.0),
            Fault::StrayTarget { ino } => write!(f, "inode {} has a target but is not a symbolic link", ino.0),
            Fault::Attachments { ino } => {
                write!(f, "inode {} does not exist but has attributes or an orphan record", ino.0)
            }
            Fault::Missing { ino, kind: FileKind::Directory } => {
                write!(f, "inode {} does not exist but has entries", ino.0)
            }
            Fault::Missing { ino, .. } => write!(f, "inode {} does not exist but has a target", ino.0),
            Fault::HasMap { ino, map: MapId(0) } => write!(f, "file {} has no map", ino.0),
            Fault::HasMap { ino, map } => write!(f, "inode {} is not a file but has map {}", ino.0, map.0),
            Fault::SharedMap { ino, other, map } => {
                write!(f, "inode {}: its map {} also belongs to inode {}", ino.0, map.0, other.0)
            }
            Fault::LostContent { ino, lost, parts, .. } => {
                write!(
                    f,
                    "inode {}: {} blocks of its content are lost, somewhere in the holes of {} parts of 1 MiB: reading \
                     these becomes an error",
                    ino.0,
                    lost.0,
                    parts.len()
                )
            }
            Fault::UnownedMap { map, blocks: Some(blocks) } => {
                write!(f, "map {} with {} blocks belongs to no inode", map.0, blocks.0)
            }
            Fault::UnownedMap { map, blocks: None } => {
                write!(f, "map {}, part of which is damaged, belongs to no inode", map.0)
            }
            Fault::Policy { ino, map } => {
                let (ino, map) = (ino.0, map.0);
                write!(f, "inode {ino}: the policy of its map {map} differs from its attribute and its rank")
            }
            Fault::UnownedPolicy { map } => write!(f, "map {} belongs to no inode but has a policy", map.0),
            Fault::NoPlace { ino } => write!(f, "inode {} has no place in a rank queue", ino.0),
            Fault::Lease { stored: None, .. } => f.write_str("the inode number lease is missing or damaged"),
            Fault::Lease { stored: Some(stored), newest } => {
                write!(f, "inode {} exists, but the next new inode would be {}", newest.0, stored.0)
            }
            Fault::Key { key } => write!(f, "a record has the unknown key {key:02x?}"),
            Fault::Record { error, .. } => write!(f, "{error}"),
        }
    }
}

/// The fault, its object, and the broken rule in brackets.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.describe(f)?;
        write!(f, " [rule {}]", self.rule())
    }
}
