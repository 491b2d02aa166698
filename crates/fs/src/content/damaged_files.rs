//! The files that bad blocks belong to, by name, in an answer of bounded size.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use oncefs_engine::{BLOCK_BYTES, BadPlace, MapId};

use crate::format::inode::{self, InodeRecord};
use crate::fsck::paths::{FileNames, names_of_maps};
use crate::record_scan::for_each_record;
use crate::{FileSystem, Ino, Result};

/// Records fetched at a time.
const PAGE_RECORDS: usize = 512;
/// Bytes of all names in one answer. Further files are reported by inode number.
const NAMES_BYTES_MAX: usize = 512 << 10;

/// A range of a file that lies on bad blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedRange {
    /// Offset of the first byte.
    pub at: u64,
    /// Length in bytes, a multiple of the block size.
    pub len: u64,
    /// Whether reading the range fails. If not, reads use a replica of the bad block.
    pub is_lost: bool,
}

/// A file with bad blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedFile {
    /// Its inode. None: the file was deleted, and its blocks are being freed.
    pub ino: Option<Ino>,
    /// Some of its paths, see [`FileNames`]. Empty, with `more` 0: the file was deleted but is still open.
    pub paths: Vec<Vec<u8>>,
    /// How many more names it has.
    pub more: u64,
    /// Its damaged ranges, ascending.
    pub ranges: Vec<DamagedRange>,
}

impl FileSystem {
    /// The files that bad blocks belong to, for at most `places_max` places in them, and whether these are all. If the
    /// volume has a bad block, this reads all maps, inodes and names. None: `goes_on` ended the search.
    ///
    /// # Errors
    ///
    /// `Engine`: metadata cannot be read or is damaged.
    pub fn damaged_files(
        &self,
        places_max: usize,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<(Vec<DamagedFile>, bool)>> {
        let Some((places, are_all)) = self.store.bad_places(places_max, goes_on)? else { return Ok(None) };
        let mut ranges: BTreeMap<u64, Vec<DamagedRange>> = BTreeMap::new();
        places.iter().for_each(|place| add(ranges.entry(place.map.0).or_default(), place));
        if ranges.is_empty() {
            return Ok(Some((Vec::new(), are_all)));
        }
        let inodes = self.inodes_of_maps(&ranges)?;
        let Some(mut names) = self.some_names(&ranges, goes_on)? else { return Ok(None) };
        let file = |(map, ranges)| {
            let inode = inodes.get(&map).copied();
            let left_out = inode.map_or(0, |(_, names)| names);
            let (paths, more) = names.remove(&map).map_or((Vec::new(), left_out), |names| (names.paths, names.more));
            DamagedFile { ino: inode.map(|(ino, _)| ino), paths, more, ranges }
        };
        Ok(Some((ranges.into_iter().map(file).collect(), are_all)))
    }

    /// Inodes by map, with the number of their names.
    fn inodes_of_maps(&self, maps: &BTreeMap<u64, Vec<DamagedRange>>) -> Result<HashMap<u64, (Ino, u64)>> {
        let mut found = HashMap::new();
        let (from, to) = inode::range(Ino(0));
        for_each_record(&self.store, from, &to, PAGE_RECORDS, &mut |key, value| {
            let Some(ino) = inode::ino_of_key(key) else { return };
            if let Ok(InodeRecord { map: MapId(map), nlink, .. }) = InodeRecord::decode(ino, value)
                && maps.contains_key(&map)
            {
                found.insert(map, (ino, u64::from(nlink)));
            }
        })?;
        Ok(found)
    }

    /// Names of the first files, as many as an answer may have.
    fn some_names(
        &self,
        ranges: &BTreeMap<u64, Vec<DamagedRange>>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<HashMap<u64, FileNames>>> {
        let mut maps: BTreeSet<MapId> = ranges.keys().copied().map(MapId).collect();
        let (mut names, mut bytes) = (HashMap::new(), 0);
        loop {
            let Some(found) = names_of_maps(&self.store, &maps, goes_on)? else { return Ok(None) };
            for (MapId(map), file) in found.files {
                bytes += file.paths.iter().map(Vec::len).sum::<usize>();
                if bytes > NAMES_BYTES_MAX {
                    return Ok(Some(names));
                }
                names.insert(map, file);
            }
            let Some(next) = found.next else { return Ok(Some(names)) };
            maps = maps.split_off(&next);
        }
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
