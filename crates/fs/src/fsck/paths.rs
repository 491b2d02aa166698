//! From maps to paths: the files that a finding about blocks concerns.

use std::collections::{BTreeMap, HashMap, HashSet};

use oncefs_engine::{MapId, Store};

use crate::format::dirent::{self, Names};
use crate::format::inode::{self, InodeRecord};
use crate::scan::for_each_record;
use crate::{Ino, Result};

/// Records fetched at a time.
const PAGE_RECORDS: usize = 512;
/// Names in a path, at most: a cycle of directories has no end.
const DEPTH_MAX: usize = 4096;

/// The paths of files from the root, by map. A file without a name is described by its inode number.
pub type Paths = BTreeMap<MapId, Vec<Vec<u8>>>;

/// The paths of the files that some maps belong to. Reads all inodes and all names once.
///
/// # Errors
///
/// `Engine`: the store cannot be read. Damaged records are skipped.
pub fn paths_of_maps(store: &Store, maps: &HashSet<MapId>) -> Result<Paths> {
    let mut paths = Paths::new();
    if maps.is_empty() {
        return Ok(paths);
    }
    let mut files: HashMap<Ino, MapId> = HashMap::new();
    let (from, to) = inode::range(Ino(0));
    for_each_record(store, from, &to, PAGE_RECORDS, &mut |key, value| {
        let Some(ino) = inode::ino_of_key(key) else { return };
        if let Ok(record) = InodeRecord::decode(ino, value)
            && maps.contains(&record.map)
        {
            files.insert(ino, record.map);
        }
    })?;
    let mut names: Vec<(Ino, Ino, Vec<u8>)> = Vec::new();
    let (from, to) = (dirent::range(Ino(0)).0, dirent::end(Ino(u64::MAX)));
    for_each_record(store, from, &to, PAGE_RECORDS, &mut |key, value| {
        let Some((parent, _)) = dirent::parse_key(key) else { return };
        let Ok(decoded) = Names::decode(parent, value) else { return };
        let wanted = decoded.iter().filter(|dirent| files.contains_key(&dirent.ino));
        names.extend(wanted.map(|dirent| (dirent.ino, parent, dirent.name.clone())));
    })?;
    for (ino, parent, name) in names {
        let path = [path_of_directory(store, parent)?, name].join(&b'/');
        paths.entry(files[&ino]).or_default().push(path);
    }
    for (ino, map) in files {
        paths.entry(map).or_insert_with(|| vec![format!("inode {}, which has no name", ino.0).into_bytes()]);
    }
    Ok(paths)
}

/// The path of a directory, empty for the root.
fn path_of_directory(store: &Store, mut ino: Ino) -> Result<Vec<u8>> {
    let mut path = Vec::new();
    for _ in 0..DEPTH_MAX {
        if ino == Ino::ROOT {
            return Ok(path);
        }
        let record = store.get(&inode::key(ino))?.and_then(|bytes| InodeRecord::decode(ino, &bytes).ok());
        let Some(parent) = record.map(|record| record.parent) else { break };
        let mut name = None;
        let (from, to) = dirent::range(parent);
        for_each_record(store, from, &to, PAGE_RECORDS, &mut |_, value| {
            let Ok(names) = Names::decode(parent, value) else { return };
            let own = names.iter().find(|dirent| dirent.ino == ino);
            name = name.take().or_else(|| own.map(|dirent| dirent.name.clone()));
        })?;
        let Some(name) = name else { break };
        path = [b"/", &name[..], &path].concat();
        ino = parent;
    }
    Ok([format!("<directory {}>", ino.0).into_bytes(), path].concat())
}
