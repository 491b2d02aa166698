//! The files that bad blocks belong to, by name.
//!
//! No record leads from a map to its inode, or from an inode to its names. So a search reads all inodes and all names
//! once, but only if there is a bad block. It may miss names that change meanwhile.

use std::collections::{BTreeMap, HashMap};

use oncefs_engine::{BLOCK_BYTES, BadPlace, MapId};

use crate::format::dirent::{self, Names, Place};
use crate::format::inode::{self, InodeRecord};
use crate::scan::for_each_record;
use crate::{FileSystem, Ino, Result};

/// Records fetched at a time.
const PAGE_RECORDS: usize = 512;
/// Names listed for one file, at most.
const NAMES_MAX: usize = 8;
/// Directories on the way to the root, at most. A longer way means that damage made a cycle.
const DEPTH_MAX: usize = 4_096;

/// A range of a file that lies on bad blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Offset of the first byte.
    pub at: u64,
    /// Length in bytes, a multiple of the block size.
    pub len: u64,
    /// Whether reading the range fails. If not, a replica serves in place of the bad block.
    pub is_lost: bool,
}

/// A file with blocks on bad places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its inode. None: the file was deleted, and its blocks are being freed.
    pub ino: Option<Ino>,
    /// Its paths from the root, at most eight. Empty: the file was deleted but is still open.
    pub paths: Vec<Vec<u8>>,
    /// Its damaged ranges, ascending.
    pub ranges: Vec<DamagedRange>,
}

impl FileSystem {
    /// The files that bad blocks belong to, from at most `places_max` places in them, and whether these are all. Reads all
    /// maps, inodes and names if there is a bad block.
    ///
    /// # Errors
    ///
    /// - `Stale`: a directory on the way to a file was deleted meanwhile.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn damaged_files(&self, places_max: usize) -> Result<(Vec<DamagedFile>, bool)> {
        let (places, are_all) = self.store.bad_places(places_max)?;
        let mut ranges: BTreeMap<u64, Vec<DamagedRange>> = BTreeMap::new();
        places.iter().for_each(|place| add(ranges.entry(place.map.0).or_default(), place));
        if ranges.is_empty() {
            return Ok((Vec::new(), are_all));
        }
        let inodes = self.inodes_of_maps(&ranges)?;
        let mut names = self.names_of_inodes(&inodes)?;
        let file = |(map, ranges)| {
            let ino = inodes.get(&map).copied();
            DamagedFile { ino, paths: ino.and_then(|ino| names.remove(&ino)).unwrap_or_default(), ranges }
        };
        Ok((ranges.into_iter().map(file).collect(), are_all))
    }

    fn inodes_of_maps(&self, maps: &BTreeMap<u64, Vec<DamagedRange>>) -> Result<HashMap<u64, Ino>> {
        let mut found = HashMap::new();
        let (from, to) = inode::range(Ino(0));
        for_each_record(&self.store, from, &to, PAGE_RECORDS, &mut |key, value| {
            let Some(ino) = inode::ino_of_key(key) else { return };
            if let Ok(InodeRecord { map: MapId(map), .. }) = InodeRecord::decode(ino, value)
                && maps.contains_key(&map)
            {
                found.insert(map, ino);
            }
        })?;
        Ok(found)
    }

    fn names_of_inodes(&self, inodes: &HashMap<u64, Ino>) -> Result<HashMap<Ino, Vec<Vec<u8>>>> {
        let wanted: std::collections::HashSet<Ino> = inodes.values().copied().collect();
        let mut found: HashMap<Ino, Vec<(Ino, Vec<u8>)>> = HashMap::new();
        let (from, to) = (dirent::key(Ino(0), Place::of_cookie(0)), dirent::end(Ino(u64::MAX)));
        for_each_record(&self.store, from, &to, PAGE_RECORDS, &mut |key, value| {
            let Some((parent, _)) = dirent::parse_key(key) else { return };
            let Ok(names) = Names::decode(parent, value) else { return };
            for name in names.iter().filter(|name| wanted.contains(&name.ino)) {
                let names = found.entry(name.ino).or_default();
                if names.len() < NAMES_MAX {
                    names.push((parent, name.name.clone()));
                }
            }
        })?;
        debug_assert!(found.values().all(|names| names.len() <= NAMES_MAX), "more than {NAMES_MAX} names of a file");
        let mut above = HashMap::new();
        let path = |(parent, name): (Ino, Vec<u8>)| Ok([self.path_of(parent, &mut above)?, name].join(&b'/'));
        let mut path = path;
        found
            .into_iter()
            .map(|(ino, names)| Ok((ino, names.into_iter().map(&mut path).collect::<Result<_>>()?)))
            .collect()
    }

    /// The path of a directory. Keeps parents and names found on the way to the root in `above`.
    fn path_of(&self, mut directory: Ino, above: &mut HashMap<Ino, (Ino, Vec<u8>)>) -> Result<Vec<u8>> {
        let mut names = Vec::new();
        while directory != Ino::ROOT && names.len() < DEPTH_MAX {
            if let std::collections::hash_map::Entry::Vacant(entry) = above.entry(directory) {
                let parent = self.directory(directory)?.lock().parent;
                entry.insert((parent, self.name_in(parent, directory)?));
            }
            let (parent, name) = above[&directory].clone();
            names.push(name);
            directory = parent;
        }
        names.push(Vec::new());
        names.reverse();
        Ok(names.join(&b'/'))
    }

    /// The name of an inode in a directory; `?` if it was moved meanwhile.
    fn name_in(&self, parent: Ino, ino: Ino) -> Result<Vec<u8>> {
        let mut found = b"?".to_vec();
        let (from, to) = dirent::range(parent);
        for_each_record(&self.store, from, &to, PAGE_RECORDS, &mut |_, value| {
            let Ok(names) = Names::decode(parent, value) else { return };
            if let Some(name) = names.iter().find(|name| name.ino == ino) {
                found.clone_from(&name.name);
            }
        })?;
        Ok(found)
    }
}

/// Adds a place to the ranges of its file. Places come in ascending order.
fn add(ranges: &mut Vec<DamagedRange>, place: &BadPlace) {
    let (at, len) = (place.lbn.0 * BLOCK_BYTES as u64, BLOCK_BYTES as u64);
    debug_assert!(ranges.last().is_none_or(|last| last.at <= at), "a bad place at {at} follows {:?}", ranges.last());
    match ranges.last_mut() {
        Some(last) if last.at + last.len == at && last.is_lost == place.is_lost => last.len += len,
        _ => ranges.push(DamagedRange { at, len, is_lost: place.is_lost }),
    }
}

#[cfg(test)]
mod tests {
    use oncefs_engine::{Lbn, Pbn};

    use super::*;

    #[test]
    fn neighbouring_blocks_in_the_same_state_are_one_range() {
        let mut ranges = Vec::new();
        for (lbn, is_lost) in [(3, true), (4, true), (5, false), (9, false)] {
            add(&mut ranges, &BadPlace { map: MapId(1), lbn: Lbn(lbn), pbn: Pbn(7), is_lost });
        }
        let range = |at: u64, len: u64, is_lost| DamagedRange { at: at * 4096, len: len * 4096, is_lost };
        assert_eq!(ranges, [range(3, 2, true), range(5, 1, false), range(9, 1, false)]);
    }
}
