//! From maps to paths: the findings of a search, and the bound on its cost.

use super::*;
use crate::fsck::paths::{NAMES_OF_A_FILE_MAX, NamesFound, PATH_BYTES_MAX, names_of_maps};

#[test]
fn maps_lead_to_paths() {
    let volume = Volume::new();
    let store = volume.store();
    let map = |ino| InodeRecord::decode(ino, &store.get(&inode::key(ino)).unwrap().unwrap()).unwrap().map;
    let maps = [map(volume.b), map(volume.f)].into();
    let NamesFound { files, next, .. } = names_of_maps(&store, &maps, &|| true).unwrap().unwrap();
    assert_eq!(next, None);
    assert_eq!(files[&map(volume.f)].paths, [b"/d/e/f"]);
    let mut both = files[&map(volume.b)].paths.clone();
    both.sort();
    assert_eq!(both, [&b"/b"[..], b"/d/b2"]);
    store.close().unwrap();
}

fn map_of(store: &Store, ino: Ino) -> MapId {
    InodeRecord::decode(ino, &store.get(&inode::key(ino)).unwrap().unwrap()).unwrap().map
}

/// A chain of directories below `top`, with the deepest first.
fn chain(fs: &FileSystem, top: Ino, name: &[u8], depth: usize) -> Vec<Ino> {
    let mut chain = vec![top];
    (0..depth).for_each(|_| chain.insert(0, fs.mkdir(chain[0], name, 0o755, &USER).unwrap().ino));
    chain
}

/// The cost and the result of a search do not grow with the number of links times their depth.
#[test]
fn many_links_at_great_depth_cost_a_bounded_search() {
    const LINKS: usize = 300;
    const DEPTH: usize = 400;
    let volume = Volume::new();
    let store = volume.store_in_use();
    let fs = volume.file_system(store.clone());
    let deep = chain(&fs, Ino::ROOT, &[b'n'; 100], DEPTH);
    for n in 0..LINKS {
        fs.link(volume.a, deep[n % 7], format!("link {n}").as_bytes()).unwrap();
    }
    let flat = chain(&fs, Ino::ROOT, b"x", 1_500);
    fs.link(volume.f, flat[0], b"end").unwrap();
    let maps: BTreeSet<MapId> = [volume.a, volume.b, volume.f].map(|ino| map_of(&store, ino)).into();
    let found = names_of_maps(&store, &maps, &|| true).unwrap().unwrap();
    let a = &found.files[&map_of(&store, volume.a)];
    assert_eq!((a.paths.len(), a.more), (NAMES_OF_A_FILE_MAX, (LINKS + 1 - NAMES_OF_A_FILE_MAX) as u64));
    for path in &a.paths {
        assert!(path == b"/a" || path.starts_with(b"<directory "), "{path:?}");
        assert!(path.len() < PATH_BYTES_MAX + 30, "a path of {} bytes", path.len());
    }
    let whole = [&b"/x".repeat(1_500)[..], b"/end"].concat();
    assert!(found.files[&map_of(&store, volume.f)].paths.contains(&whole), "a path that open(2) takes is whole");
    // Inodes and names are read once, and names of directories once more.
    let inodes = (DEPTH + 1_500 + 10) as u64;
    let most = inodes + (inodes + LINKS as u64) + 2 * inodes;
    assert!(found.records <= most, "{} records were read, more than {most}", found.records);
    assert_eq!(names_of_maps(&store, &maps, &|| false).unwrap(), None, "nobody waits for it");
    fs.close().unwrap();
}

#[test]
fn names_of_many_files_come_in_portions_that_miss_none() {
    const FILES: usize = 4_300;
    let volume = Volume::new();
    let store = volume.store_in_use();
    let fs = volume.file_system(store.clone());
    let deep = chain(&fs, volume.d, &[b'n'; 200], 18);
    let mut expected = BTreeSet::new();
    for n in 0..FILES {
        let parent = deep[n % deep.len()];
        let ino = fs.mknod(parent, format!("{n}").as_bytes(), libc::S_IFREG | 0o644, 0, &USER).unwrap().ino;
        expected.insert(map_of(&store, ino));
    }
    let (mut left, mut named, mut portions) = (expected.clone(), BTreeSet::new(), 0);
    loop {
        let found = names_of_maps(&store, &left, &|| true).unwrap().unwrap();
        let bytes: usize = found.files.values().flat_map(|file| &file.paths).map(Vec::len).sum();
        assert!(!found.files.is_empty() && bytes <= 512 << 10, "{bytes} bytes");
        assert!(found.files.values().all(|file| file.paths.len() == 1 && file.paths[0].starts_with(b"/d/")));
        named.extend(found.files.into_keys());
        portions += 1;
        match found.next {
            Some(next) => left = left.split_off(&next),
            None => break,
        }
    }
    assert_eq!(named, expected);
    assert!((2..100).contains(&portions), "{portions} portions");
    fs.close().unwrap();
}
