//! The differences between two trees, a portion of two directories at a time: from inodes and maps, never from data.
//!
//! A file whose size and times of writing, change and creation are equal on both sides is unchanged. Otherwise its maps
//! tell whether its content is: equal addresses are equal contents. Equal contents at different addresses count as
//! different.

use oncefs_engine::{ComparedState, Lbn, MapId};

use crate::format::codec::after;
use crate::format::inode::{self, InodeRecord};
use crate::format::{symlink, xattr};
use crate::trees::snapshot::SNAPSHOT_ATTRIBUTE;
use crate::{FileFlags, FileKind, FileSystem, Ino, Result, Timestamp};

/// Names in one portion.
const NAMES_MAX: usize = 256;
/// Attributes fetched at a time.
const PAGE_RECORDS: usize = 64;

/// How a name differs between two directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Only the newer directory has it.
    Added,
    /// Only the older directory has it.
    Removed,
    /// Its content differs: data, target or device number.
    Modified,
    /// Its owner, permissions, flags, time of writing or extended attributes differ.
    Attributes,
    /// Two directories that may differ below.
    Same,
}

/// The identity of an inode across copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its number.
    pub ino: Ino,
    /// Its kind.
    pub kind: FileKind,
    /// Its size in bytes; 0 for a directory.
    pub size: u64,
    /// Time of the last write.
    pub mtime: Timestamp,
    /// Time of creation.
    pub btime: Timestamp,
}

/// A name that differs, or that of two directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameDiff {
    /// The name.
    pub name: Vec<u8>,
    /// How it differs.
    pub difference: Difference,
    /// Its inode in the older directory.
    pub older: Option<Stamp>,
    /// Its inode in the newer directory.
    pub newer: Option<Stamp>,
}

/// Where the next portion begins. The default is the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiffCursor {
    /// Whether the names of the newer directory are done.
    pub is_newer_done: bool,
    /// After which name to go on.
    pub cookie: u64,
}

/// Differences between two directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiffPortion {
    /// Names that differ, and those of directories on both sides.
    pub names: Vec<NameDiff>,
    /// The beginning of the next portion. None: this was the last.
    pub next: Option<DiffCursor>,
}

impl FileSystem {
    /// A portion of the differences between two directories. None for one of them: it does not exist, and the other is
    /// removed or added as a whole. None returned: `goes_on` ended the work.
    ///
    /// # Errors
    ///
    /// - `NotADirectory`: an inode is not a directory.
    /// - `Stale`: a directory does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn diff_directories(
        &self,
        older: Option<Ino>,
        newer: Option<Ino>,
        from: DiffCursor,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<DiffPortion>> {
        for directory in [older, newer].into_iter().flatten() {
            self.directory(directory)?;
        }
        let mut portion = DiffPortion::default();
        let listed = if from.is_newer_done { older } else { newer };
        let names = listed.map_or(Ok(Vec::new()), |listed| self.names_after(listed, from.cookie, NAMES_MAX))?;
        for name in &names {
            if !goes_on() {
                return Ok(None);
            }
            let found = self.record_of(name.ino)?.map(|record| (name.ino, record));
            let other = if from.is_newer_done { newer } else { older };
            let other = self.named_record(other, &name.name)?;
            match from.is_newer_done {
                false => self.add_differences(&mut portion, &name.name, other, found, goes_on)?,
                // The rest was compared with the names of the newer directory.
                true if other.is_none() => self.add_differences(&mut portion, &name.name, found, None, goes_on)?,
                true => {}
            }
        }
        portion.next = match (names.last(), from.is_newer_done) {
            (Some(last), _) if names.len() == NAMES_MAX => Some(DiffCursor { cookie: last.cookie, ..from }),
            (_, false) => Some(DiffCursor { is_newer_done: true, cookie: 0 }),
            (_, true) => None,
        };
        Ok(Some(portion))
    }

    pub(super) fn record_of(&self, ino: Ino) -> Result<Option<InodeRecord>> {
        self.store.get(&inode::key(ino))?.map(|bytes| InodeRecord::decode(ino, &bytes)).transpose()
    }

    fn named_record(&self, directory: Option<Ino>, name: &[u8]) -> Result<Option<(Ino, InodeRecord)>> {
        let Some(directory) = directory else { return Ok(None) };
        let Some(found) = self.find(directory, name)? else { return Ok(None) };
        Ok(self.record_of(found.ino)?.map(|record| (found.ino, record)))
    }

    fn add_differences(
        &self,
        portion: &mut DiffPortion,
        name: &[u8],
        older: Option<(Ino, InodeRecord)>,
        newer: Option<(Ino, InodeRecord)>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut add = |difference, older: Option<&(Ino, InodeRecord)>, newer: Option<&(Ino, InodeRecord)>| {
            let (older, newer) = (older.map(stamp_of), newer.map(stamp_of));
            portion.names.push(NameDiff { name: name.to_vec(), difference, older, newer });
        };
        match (&older, &newer) {
            (Some(old), Some(new)) if old.1.kind == new.1.kind => {
                if let Some(difference) = self.difference(old, new, goes_on)? {
                    add(difference, Some(old), Some(new));
                }
            }
            (old, new) => {
                if old.is_some() {
                    add(Difference::Removed, old.as_ref(), None);
                }
                if new.is_some() {
                    add(Difference::Added, None, new.as_ref());
                }
            }
        }
        Ok(())
    }

    /// How two inodes of one kind differ. None: they do not.
    fn difference(
        &self,
        (older, old): &(Ino, InodeRecord),
        (newer, new): &(Ino, InodeRecord),
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Difference>> {
        let moments = |record: &InodeRecord| (record.size, record.mtime, record.ctime, record.btime);
        if older == newer || !old.is_directory() && moments(old) == moments(new) {
            return Ok(None);
        }
        let is_modified = match old.kind {
            FileKind::Regular => old.size != new.size || !self.have_equal_blocks(old.map, new.map, goes_on)?,
            FileKind::Symlink => self.target_of(*older)? != self.target_of(*newer)?,
            _ => old.rdev != new.rdev,
        };
        // The flag of snapshots is no difference. A directory's time of writing tells of its names, which are listed.
        let seen = |record: &InodeRecord| {
            let mtime = if record.is_directory() { Timestamp::default() } else { record.mtime };
            (record.permissions, record.uid, record.gid, record.flags.without(FileFlags::SNAPSHOT), mtime)
        };
        Ok(if is_modified {
            Some(Difference::Modified)
        } else if seen(old) != seen(new) || self.attributes_of(*older, old)? != self.attributes_of(*newer, new)? {
            Some(Difference::Attributes)
        } else {
            old.is_directory().then_some(Difference::Same)
        })
    }

    fn target_of(&self, ino: Ino) -> Result<Option<Vec<u8>>> {
        self.store.get(&symlink::key(ino))?.map(|bytes| symlink::decode(ino, &bytes)).transpose()
    }

    /// Whether two maps refer to the same blocks at the same places.
    fn have_equal_blocks(&self, one: MapId, other: MapId, goes_on: &dyn Fn() -> bool) -> Result<bool> {
        for (map, beside) in [(one, other), (other, one)] {
            let mut from = Some(0);
            while let Some(lbn) = from.filter(|_| goes_on()) {
                let compared = self.store.compare(map, Some(beside), Lbn(lbn))?;
                if compared.runs.iter().any(|run| matches!(run.state, ComparedState::Shared | ComparedState::Own)) {
                    return Ok(false);
                }
                from = compared.next;
            }
        }
        Ok(true)
    }

    /// The digests of all attributes of an inode with their names, except what a snapshot tells of itself.
    fn attributes_of(&self, ino: Ino, record: &InodeRecord) -> Result<Vec<(Vec<u8>, u64)>> {
        let mut all = Vec::new();
        if record.xattrs == 0 {
            return Ok(all);
        }
        let (mut from, to) = xattr::range(ino);
        loop {
            let page = self.store.scan(&from, &to, PAGE_RECORDS)?;
            for (key, value) in &page {
                let Some((_, name)) = xattr::parse_key(key).filter(|(_, name)| *name != SNAPSHOT_ATTRIBUTE) else {
                    continue;
                };
                all.push((name.to_vec(), xxhash_rust::xxh3::xxh3_64(&xattr::decode(ino, value)?)));
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_RECORDS => from = after(key),
                _ => return Ok(all),
            }
        }
    }
}

fn stamp_of((ino, record): &(Ino, InodeRecord)) -> Stamp {
    let size = if record.is_directory() { 0 } else { record.size };
    Stamp { ino: *ino, kind: record.kind, size, mtime: record.mtime, btime: record.btime }
}
