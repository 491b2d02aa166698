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
//!
//! Memory is bounded: inodes are checked in windows of their numbers, with one pass over all names for each.

use std::ops::Range;

use crate::directory::after;
use crate::format::dirent::{self, Dirent, Names, Place};
use crate::format::inode::{self, InodeRecord};
use crate::format::{lease, orphan, symlink, xattr};
use crate::{Error, FileKind, FileSystem, Ino, Result};

/// Inodes checked in one pass: 40 MB.
const WINDOW_INODES: u64 = 1 << 20;

/// Maps checked in one pass: at most 16 MB.
const WINDOW_MAPS: u64 = 1 << 20;

/// Records fetched at a time.
const PAGE_RECORDS: usize = 512;

/// What the records besides the inode's own say about it.
#[derive(Clone, Default)]
struct Seen {
    names: u32,
    subdirectories: u32,
    entries: u64,
    /// The directory that the last name was found in.
    parent: u64,
    xattrs: u32,
    target_bytes: Option<u64>,
    orphan: bool,
    exists: bool,
}

/// The inodes with numbers in `range`.
struct Window {
    range: Range<u64>,
    seen: Vec<Seen>,
}

/// The inode that a map belongs to, 0 if none was seen, and the blocks that it counts and that were not found yet.
#[derive(Clone, Copy, Default)]
struct Owner {
    ino: u64,
    blocks: u64,
}

impl Window {
    fn seen(&mut self, ino: Ino) -> Option<&mut Seen> {
        let at = ino.0.checked_sub(self.range.start)?;
        self.seen.get_mut(usize::try_from(at).ok()?)
    }
}

impl FileSystem {
    /// Checks everything and reports each contradiction in one line. Nothing may change meanwhile.
    pub fn check(&self, report: &mut dyn FnMut(String)) -> Result<()> {
        let bytes = self.store.get(lease::KEY)?;
        let Ino(end) = lease::decode(&bytes.ok_or_else(|| Error::corrupt("inode number lease", "it is missing"))?)?;
        self.check_root(report);
        for start in (0..end).step_by(WINDOW_INODES as usize) {
            self.check_window(start..end.min(start + WINDOW_INODES), report)?;
        }
        self.check_maps(report)?;
        let (from, to) = inode::range(Ino(end));
        self.for_each(from, &to, &mut |key, _| {
            report(format!("inode {} was never handed out", inode::ino_of_key(key).map_or(0, |ino| ino.0)));
        })
    }

    fn check_root(&self, report: &mut dyn FnMut(String)) {
        match self.inode(Ino::ROOT) {
            Ok(root) => {
                let root = root.lock();
                if !root.is_directory() || root.parent != Ino::ROOT {
                    report("the root is not a directory that is its own parent".to_owned());
                }
            }
            Err(error) => report(format!("the root cannot be read: {error}")),
        }
    }

    fn check_window(&self, range: Range<u64>, report: &mut dyn FnMut(String)) -> Result<()> {
        let mut window = Window { seen: vec![Seen::default(); (range.end - range.start) as usize], range };
        let (from, to) = dirent::range();
        self.for_each(from, &to, &mut |key, value| self.see_names(&mut window, key, value, report))?;
        self.see_attachments(&mut window, report)?;
        let (from, to) = (inode::key(Ino(window.range.start)), inode::key(Ino(window.range.end)));
        self.for_each(from, &to, &mut |key, value| {
            let Some(ino) = inode::ino_of_key(key) else { return };
            let Some(seen) = window.seen(ino) else { return };
            seen.exists = true;
            match InodeRecord::decode(ino, value) {
                Ok(record) => self.check_inode(ino, &record, seen, report),
                Err(error) => report(error.to_string()),
            }
        })?;
        for (at, seen) in window.seen.iter().enumerate().filter(|(_, seen)| !seen.exists) {
            let ino = window.range.start + at as u64;
            if seen.names > 0 {
                report(format!("directory {} has a name for inode {ino}, which does not exist", seen.parent));
            }
            if seen.entries > 0 || seen.xattrs > 0 || seen.target_bytes.is_some() || seen.orphan {
                report(format!("inode {ino} does not exist and has entries, attributes, a target or an orphan record"));
            }
        }
        Ok(())
    }

    /// Notes the names in one record. Those of the first window also get checked themselves.
    fn see_names(&self, window: &mut Window, key: &[u8], value: &[u8], report: &mut dyn FnMut(String)) {
        let first = window.range.start == 0;
        let Some((parent, place)) = dirent::parse_key(key) else {
            return if first {
                report("the key of a directory entry has the wrong form".to_owned())
            };
        };
        let names = match Names::decode(parent, value) {
            Ok(names) => names,
            Err(error) => {
                return if first {
                    report(error.to_string())
                };
            }
        };
        for Dirent { ino, kind, name, .. } in names.iter() {
            if let Some(directory) = window.seen(parent) {
                directory.entries += 1;
                directory.subdirectories += u32::from(*kind == FileKind::Directory);
            }
            if let Some(target) = window.seen(*ino) {
                target.names += 1;
                target.parent = parent.0;
                self.check_name(parent, place, name, *ino, *kind, report);
            }
        }
    }

    fn check_name(
        &self,
        parent: Ino,
        place: Place,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
        report: &mut dyn FnMut(String),
    ) {
        let shown = String::from_utf8_lossy(name);
        if self.place(name) != place {
            report(format!("directory {}: '{shown}' lies where no look-up finds it", parent.0));
        }
        // What cannot be read is reported when the inodes are gone through.
        if let Ok(inode) = self.inode(ino)
            && inode.lock().kind != kind
        {
            report(format!("directory {}: '{shown}' is not of the kind that its entry says", parent.0));
        }
    }

    fn see_attachments(&self, window: &mut Window, report: &mut dyn FnMut(String)) -> Result<()> {
        let (first, end) = (Ino(window.range.start), Ino(window.range.end));
        self.for_each(xattr::key(first, b""), &xattr::key(end, b""), &mut |key, value| {
            let Some((ino, _)) = xattr::parse_key(key) else { return };
            if let Err(error) = xattr::decode(ino, value) {
                report(error.to_string());
            }
            if let Some(seen) = window.seen(ino) {
                seen.xattrs += 1;
            }
        })?;
        self.for_each(symlink::key(first), &symlink::key(end), &mut |key, value| {
            let Some(ino) = symlink::ino_of_key(key) else { return };
            match symlink::decode(ino, value) {
                Err(error) => report(error.to_string()),
                Ok(target) => {
                    if let Some(seen) = window.seen(ino) {
                        seen.target_bytes = Some(target.len() as u64);
                    }
                }
            }
        })?;
        self.for_each(orphan::key(first), &orphan::key(end), &mut |key, value| {
            let Some(ino) = orphan::ino_of_key(key) else { return };
            if let Err(error) = orphan::decode(ino, value) {
                report(error.to_string());
            }
            if let Some(seen) = window.seen(ino) {
                seen.orphan = true;
            }
        })
    }

    fn check_inode(&self, ino: Ino, record: &InodeRecord, seen: &Seen, report: &mut dyn FnMut(String)) {
        let mut expect = |what: &str, stored: u64, found: u64| {
            if stored != found {
                report(format!("inode {}: {what} should be {found} and is {stored}", ino.0));
            }
        };
        expect("its number of extended attributes", record.xattrs.into(), seen.xattrs.into());
        expect("its number of orphan records", u64::from(record.nlink == 0), seen.orphan.into());
        expect("its number of entries", record.entries, seen.entries);
        let is_symlink = record.kind == FileKind::Symlink;
        expect("its number of targets", is_symlink.into(), seen.target_bytes.is_some().into());
        expect("its size", record.size, seen.target_bytes.unwrap_or(record.size));
        expect("whether it has a map", (record.map.0 != 0).into(), (record.kind == FileKind::Regular).into());
        if !record.is_directory() {
            expect("its link count", record.nlink.into(), seen.names.into());
            return;
        }
        expect("its number of names", seen.names.into(), u64::from(record.nlink > 0 && ino != Ino::ROOT));
        if record.nlink > 0 {
            expect("its link count", record.nlink.into(), 2 + u64::from(seen.subdirectories));
        }
        if seen.names > 0 {
            expect("its parent", record.parent.0, seen.parent);
        }
        if record.nlink > 0 && !self.leads_to_root(record.parent) {
            report(format!("directory {} is not below the root", ino.0));
        }
    }

    /// Goes up from `above`. A cycle is noticed because it comes back to a directory marked on the way; the mark
    /// moves on at growing distances (Brent's algorithm), so no memory is needed.
    fn leads_to_root(&self, mut above: Ino) -> bool {
        let (mut mark, mut steps, mut steps_max) = (Ino(0), 0_u64, 1_u64);
        while above != Ino::ROOT {
            if above == mark {
                return false;
            }
            if steps == steps_max {
                (mark, steps, steps_max) = (above, 0, steps_max * 2);
            }
            steps += 1;
            match self.directory(above) {
                Ok(directory) => above = directory.lock().parent,
                Err(_) => return false,
            }
        }
        true
    }

    fn check_maps(&self, report: &mut dyn FnMut(String)) -> Result<()> {
        let mut start = Some(1);
        while let Some(first) = start {
            start = self.check_map_window(first, report)?;
        }
        Ok(())
    }

    /// Compares the maps from `first` on with the inodes. Returns the first one that is left for another window.
    fn check_map_window(&self, first: u64, report: &mut dyn FnMut(String)) -> Result<Option<u64>> {
        let mut owners: Vec<Owner> = Vec::new();
        let mut next: Option<u64> = None;
        let mut place = |map: u64| {
            let at = map.checked_sub(first)?;
            if at >= WINDOW_MAPS {
                next = Some(next.map_or(map, |least| least.min(map)));
            }
            (at < WINDOW_MAPS).then_some(at as usize)
        };
        let (from, to) = inode::range(Ino(0));
        self.for_each(from, &to, &mut |key, value| {
            let Some(ino) = inode::ino_of_key(key) else { return };
            // What cannot be decoded was reported when the inodes were gone through.
            let Ok(InodeRecord { map, blocks, .. }) = InodeRecord::decode(ino, value) else { return };
            let Some(at) = place(map.0) else { return };
            if owners.len() <= at {
                owners.resize(at + 1, Owner::default());
            }
            let owner = &mut owners[at];
            if owner.ino != 0 {
                report(format!("inode {}: its map {} belongs to inode {} too", ino.0, map.0, owner.ino));
            }
            *owner = Owner { ino: ino.0, blocks };
        })?;
        self.store.for_each_map(&mut |map, blocks| {
            let Some(at) = place(map.0) else { return };
            let Some(owner) = owners.get_mut(at).filter(|owner| owner.ino != 0) else {
                return report(format!("map {} with {} blocks belongs to no inode", map.0, blocks.0));
            };
            if owner.blocks != blocks.0 {
                report(format!("inode {}: it counts {} blocks and its map has {}", owner.ino, owner.blocks, blocks.0));
            }
            owner.blocks = 0;
        })?;
        for owner in owners.iter().filter(|owner| owner.blocks > 0) {
            report(format!("inode {}: it counts {} blocks and its map has none", owner.ino, owner.blocks));
        }
        Ok(next)
    }

    /// Calls `each` with every record with `from <= key < to`.
    fn for_each(&self, mut from: Vec<u8>, to: &[u8], each: &mut dyn FnMut(&[u8], &[u8])) -> Result<()> {
        loop {
            let page = self.store.scan(&from, to, PAGE_RECORDS)?;
            page.iter().for_each(|(key, value)| each(key, value));
            match page.last() {
                Some((key, _)) if page.len() == PAGE_RECORDS => from = after(key),
                _ => return Ok(()),
            }
        }
    }
}
