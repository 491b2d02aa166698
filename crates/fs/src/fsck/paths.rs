//! From maps to the names of their files, for findings about blocks and for the files that share a block.
//!
//! No record leads from a map to its inode, or from an inode to its names. A search reads all inodes once, all names
//! once, and the names of each directory above a file at most once more. Its memory is bounded for any volume: the
//! numbers of files, names of a file, directories and bytes of paths have limits, and the rest is left to the next
//! search. A path that open(2) takes is complete. A longer path is cut to its end, below a directory that is given as a
//! number.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::ControlFlow;

use oncefs_engine::{MapId, Store};

use crate::format::dirent::{self, Names};
use crate::format::inode::{self, InodeRecord};
use crate::record_scan::{EachRecord, for_each_record_while};
use crate::{Ino, Result};

/// Records fetched at a time.
const PAGE_RECORDS: usize = 512;
/// Files that one search names.
const FILES_MAX: usize = 4_096;
/// Names given of one file.
pub const NAMES_OF_A_FILE_MAX: usize = 8;
/// Bytes of a complete path: PATH_MAX.
pub const PATH_BYTES_MAX: usize = 4_096;
/// Most directories above a file in such a path: each takes at least two bytes.
const DEPTH_MAX: usize = PATH_BYTES_MAX / 2;
/// Directories that one search names. Those of one file fit.
const DIRECTORIES_MAX: usize = NAMES_OF_A_FILE_MAX * DEPTH_MAX;
/// Bytes of all paths that one search returns, unless the first file has more. Escaped, they fit into one answer.
const PATHS_BYTES_MAX: usize = 512 << 10;
const _: () = assert!(PATHS_BYTES_MAX > NAMES_OF_A_FILE_MAX * PATH_BYTES_MAX, "the names of one file fit");

/// The names of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileNames {
    /// Its inode.
    pub ino: Ino,
    /// Paths. A complete path begins with `/`, a cut one with `<directory N>/`. Empty: the file has no name.
    pub paths: Vec<Vec<u8>>,
    /// How many more names it has.
    pub more: u64,
}

/// The result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesFound {
    /// Names by map, without the maps that have no file.
    pub files: BTreeMap<MapId, FileNames>,
    /// The first map that is left to the next search. None: no map is left.
    pub next: Option<MapId>,
    /// Records read.
    pub records: u64,
}

/// Searches for the names of the files that some maps belong to, in the order of maps. None: `goes_on` ended it.
///
/// # Errors
///
/// `Engine`: the store cannot be read. Damaged records are skipped.
pub fn names_of_maps(store: &Store, maps: &BTreeSet<MapId>, goes_on: &dyn Fn() -> bool) -> Result<Option<NamesFound>> {
    let mut search =
        Search { store, goes_on, is_ended: false, records: 0, parents: HashMap::new(), names: HashMap::new() };
    let wanted: BTreeSet<MapId> = maps.iter().copied().take(FILES_MAX).collect();
    let inodes = search.inodes_of(&wanted)?;
    let mut entries = search.entries_of(&inodes)?;
    let mut next = maps.iter().nth(FILES_MAX).copied();
    let files: Vec<(MapId, Ino)> = {
        let mut files: Vec<(MapId, Ino)> = inodes.into_iter().map(|(ino, map)| (map, ino)).collect();
        files.sort_unstable();
        files
    };
    let reached = search.find_directories(&files, &entries)?;
    next = files.get(reached).map(|(map, _)| *map).or(next);
    search.find_names()?;
    let mut found = NamesFound { next, records: search.records, ..NamesFound::default() };
    let mut bytes = 0;
    for (map, ino) in &files[..reached] {
        let Entries { places, more } = entries.remove(ino).unwrap_or_default();
        let paths: Vec<Vec<u8>> = places.into_iter().map(|(parent, name)| search.path(parent, name)).collect();
        debug_assert!(paths.len() <= NAMES_OF_A_FILE_MAX, "{} names of a file", paths.len());
        bytes += paths.iter().map(Vec::len).sum::<usize>();
        if bytes > PATHS_BYTES_MAX {
            found.next = Some(*map);
            break;
        }
        found.files.insert(*map, FileNames { ino: *ino, paths, more });
    }
    Ok((!search.is_ended).then_some(found))
}

/// The first few places of a file's names, each a directory and the name in it, and how many more there are.
#[derive(Default)]
struct Entries {
    places: Vec<(Ino, Vec<u8>)>,
    more: u64,
}

struct Search<'a> {
    store: &'a Store,
    goes_on: &'a dyn Fn() -> bool,
    is_ended: bool,
    records: u64,
    /// The directory above each; None: unknown.
    parents: HashMap<Ino, Option<Ino>>,
    /// The names of directories.
    names: HashMap<Ino, Vec<u8>>,
}

impl Search<'_> {
    /// Reads records until `each` has enough or `goes_on` ends the search.
    fn read(&mut self, (from, to): (Vec<u8>, Vec<u8>), each: &mut EachRecord<'_>) -> Result<()> {
        let (records, is_ended, goes_on) = (&mut self.records, &mut self.is_ended, self.goes_on);
        for_each_record_while(self.store, from, &to, PAGE_RECORDS, &mut |key, value| {
            if records.is_multiple_of(PAGE_RECORDS as u64) && !goes_on() {
                *is_ended = true;
            }
            if *is_ended {
                return ControlFlow::Break(());
            }
            *records += 1;
            each(key, value)
        })
    }

    fn inodes_of(&mut self, maps: &BTreeSet<MapId>) -> Result<HashMap<Ino, MapId>> {
        let mut found = HashMap::new();
        if maps.is_empty() {
            return Ok(found);
        }
        self.read(inode::range(Ino(0)), &mut |key, value| {
            if let Some(ino) = inode::ino_of_key(key)
                && let Ok(record) = InodeRecord::decode(ino, value)
                && maps.contains(&record.map)
            {
                found.insert(ino, record.map);
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    fn entries_of(&mut self, inodes: &HashMap<Ino, MapId>) -> Result<HashMap<Ino, Entries>> {
        let mut found: HashMap<Ino, Entries> = HashMap::new();
        if inodes.is_empty() {
            return Ok(found);
        }
        self.read((dirent::range(Ino(0)).0, dirent::end(Ino(u64::MAX))), &mut |key, value| {
            let Some((parent, _)) = dirent::parse_key(key) else { return ControlFlow::Continue(()) };
            let Ok(names) = Names::decode(parent, value) else { return ControlFlow::Continue(()) };
            for dirent in names.iter().filter(|dirent| inodes.contains_key(&dirent.ino)) {
                let entries = found.entry(dirent.ino).or_default();
                match entries.places.len() < NAMES_OF_A_FILE_MAX {
                    true => entries.places.push((parent, dirent.name.clone())),
                    false => entries.more += 1,
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Finds the directories above some files. Returns for how many of the files it found all of them.
    fn find_directories(&mut self, files: &[(MapId, Ino)], entries: &HashMap<Ino, Entries>) -> Result<usize> {
        for (reached, (_, ino)) in files.iter().enumerate() {
            if self.is_ended || self.parents.len() >= DIRECTORIES_MAX {
                return Ok(reached);
            }
            for (parent, _) in entries.get(ino).into_iter().flat_map(|entries| &entries.places) {
                self.find_above(*parent)?;
            }
        }
        debug_assert!(self.parents.len() <= 2 * DIRECTORIES_MAX, "{} directories are kept", self.parents.len());
        Ok(files.len())
    }

    fn find_above(&mut self, mut directory: Ino) -> Result<()> {
        for _ in 0..DEPTH_MAX {
            if directory == Ino::ROOT {
                break;
            }
            let parent = match self.parents.get(&directory) {
                Some(parent) => *parent,
                None => {
                    self.records += 1;
                    let record = self.store.get(&inode::key(directory))?;
                    let record = record.and_then(|bytes| InodeRecord::decode(directory, &bytes).ok());
                    let parent = record.map(|record| record.parent);
                    self.parents.insert(directory, parent);
                    parent
                }
            };
            match parent {
                Some(parent) => directory = parent,
                None => break,
            }
        }
        Ok(())
    }

    /// Reads each directory that has some of the directories, until it has the names of all of them.
    fn find_names(&mut self) -> Result<()> {
        let mut wanted: BTreeMap<Ino, BTreeSet<Ino>> = BTreeMap::new();
        for (directory, parent) in &self.parents {
            if let Some(parent) = parent {
                wanted.entry(*parent).or_default().insert(*directory);
            }
        }
        let mut found = HashMap::new();
        for (parent, mut children) in wanted {
            self.read(dirent::range(parent), &mut |_, value| {
                let Ok(names) = Names::decode(parent, value) else { return ControlFlow::Continue(()) };
                for dirent in names.iter().filter(|dirent| children.remove(&dirent.ino)) {
                    found.insert(dirent.ino, dirent.name.clone());
                }
                if children.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
        }
        self.names = found;
        Ok(())
    }

    /// The path of a name in a directory.
    fn path(&self, mut directory: Ino, name: Vec<u8>) -> Vec<u8> {
        let mut bytes = 1 + name.len();
        let mut parts: Vec<&[u8]> = vec![&name];
        while directory != Ino::ROOT {
            let above = self.parents.get(&directory).copied().flatten().zip(self.names.get(&directory));
            match above {
                Some((parent, name)) if bytes + 1 + name.len() < PATH_BYTES_MAX => {
                    bytes += 1 + name.len();
                    parts.push(name);
                    directory = parent;
                }
                _ => break,
            }
        }
        let top = if directory == Ino::ROOT { String::new() } else { format!("<directory {}>", directory.0) };
        parts.push(top.as_bytes());
        parts.reverse();
        let path = parts.join(&b'/');
        debug_assert!(path.len() < PATH_BYTES_MAX + top.len(), "a path of {} bytes", path.len());
        path
    }
}
