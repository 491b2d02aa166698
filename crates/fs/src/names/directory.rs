//! Lookup and listing of names.

use std::sync::Arc;

use crate::format::codec::after;
use crate::format::dirent::{self, Dirent, Names, Place};
use crate::inodes::cache::Inode;
use crate::names::name_table::NameTable;
use crate::{Attributes, Error, FileKind, FileSystem, Ino, NAME_BYTES_MAX, Result};

/// Cookie of the entry `.`.
const DOT_COOKIE: u64 = 1;
/// Cookie of the entry `..`.
const DOT_DOT_COOKIE: u64 = 2;
const _: () = assert!(DOT_COOKIE < DOT_DOT_COOKIE && DOT_DOT_COOKIE < dirent::FIRST_COOKIE, "`.` and `..` come first");

/// The directory in the root that holds disks and snapshots. Listings of the root leave it out, so that a program that
/// walks the mount does not walk every snapshot of it. It is found by its name.
pub const RESERVED_NAME: &[u8] = b".oncefs";

/// The directories in it that commands find by their names.
const RESERVED_BELOW: [&[u8]; 3] = [b"disks", b"snapshots", b"receive"];

/// Records fetched at a time while listing.
const PAGE_RECORDS: usize = 128;

/// Whether an entry of a listing is a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// `.` or `..`, for which the kernel takes no reference to the inode.
    Dots,
    /// A name.
    Name,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The inode.
    pub ino: Ino,
    /// Cookie at which the next listing continues after this entry. Stays valid while other names come and go.
    pub cookie: u64,
    /// Kind of the inode.
    pub kind: FileKind,
    /// The name.
    pub name: &'a [u8],
    /// Whether this is a name, or `.` or `..`.
    pub entry_kind: EntryKind,
}

impl FileSystem {
    /// The attributes of the inode with the name `name` in the directory `parent`. `.` works on every inode and `..` on
    /// every directory, because the kernel turns NFS file handles into inodes that way.
    ///
    /// # Errors
    ///
    /// - `NotFound`: the directory has no such name.
    /// - `NotADirectory`: `parent` is not a directory, and `name` is not `.`.
    /// - `Stale`: `parent` does not exist; for `.` and `..` also if the inode has no name.
    /// - `NameTooLong`: `name` is longer than [`NAME_BYTES_MAX`].
    /// - `Invalid`: `name` is empty, or contains a slash or a NUL byte.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attributes> {
        if name == b"." {
            return self.named(parent);
        }
        let directory = self.directory(parent)?;
        if name == b".." {
            let above = directory.lock().parent;
            return self.named(above);
        }
        check_name(name)?;
        let found = self.find(parent, name)?.map(|dirent| dirent.ino);
        match self.getattr(found.ok_or(Error::NotFound)?) {
            // The file was deleted between the two lookups.
            Err(Error::Stale) => Err(Error::NotFound),
            result => result,
        }
    }

    /// The attributes of an inode that has a name.
    fn named(&self, ino: Ino) -> Result<Attributes> {
        Some(self.getattr(ino)?).filter(|attributes| attributes.nlink > 0).ok_or(Error::Stale)
    }

    /// The attributes of an inode, also of one without a name that is still in use.
    ///
    /// # Errors
    ///
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: its record cannot be read or is damaged.
    pub fn getattr(&self, ino: Ino) -> Result<Attributes> {
        Ok(self.inode(ino)?.lock().attributes(ino))
    }

    /// Passes the entries of a directory after `cookie` (0: from the start) to `sink` until it returns false. Sets the time
    /// of last access. An entry added or removed during a listing may or may not appear; all others appear once.
    ///
    /// # Errors
    ///
    /// - `NotADirectory`: the inode is not a directory.
    /// - `Stale`: the inode does not exist.
    /// - `Engine`: metadata cannot be read or is damaged.
    pub fn readdir(&self, ino: Ino, cookie: u64, sink: &mut dyn FnMut(&Entry) -> bool) -> Result<()> {
        let directory = self.directory(ino)?;
        self.touch_atime(&directory);
        let above = directory.lock().parent;
        for (dots, name, target) in [(DOT_COOKIE, &b"."[..], ino), (DOT_DOT_COOKIE, &b".."[..], above)] {
            let entry =
                Entry { ino: target, cookie: dots, kind: FileKind::Directory, name, entry_kind: EntryKind::Dots };
            if cookie < dots && !sink(&entry) {
                return Ok(());
            }
        }
        self.list_names(ino, cookie, sink)
    }

    /// Passes the names of a directory after `cookie` to `sink` until it returns false. The directory of oncefs itself
    /// is not among them.
    pub(crate) fn list_names(&self, ino: Ino, cookie: u64, sink: &mut dyn FnMut(&Entry) -> bool) -> Result<()> {
        let end = dirent::end(ino);
        let mut from = dirent::key(ino, Place::of_cookie(cookie));
        loop {
            let page = self.store.scan(&from, &end, PAGE_RECORDS)?;
            for (key, value) in &page {
                let (_, place) = dirent::parse_key(key).ok_or_else(|| damaged_key(ino))?;
                for dirent in Names::decode(ino, value)?.iter().filter(|dirent| dirent.cookie(place) > cookie) {
                    if ino == Ino::ROOT && self.is_reserved(dirent)? {
                        continue;
                    }
                    let Dirent { ino, kind, name, .. } = dirent;
                    let cookie = dirent.cookie(place);
                    if !sink(&Entry { ino: *ino, cookie, kind: *kind, name, entry_kind: EntryKind::Name }) {
                        return Ok(());
                    }
                }
            }
            match page.last() {
                Some((key, _)) if page.len() == PAGE_RECORDS => from = after(key),
                _ => return Ok(()),
            }
        }
    }

    /// Whether an entry of the root is the directory of oncefs itself: it has the name [`RESERVED_NAME`], and only root
    /// can change it. One that a user made is like any other directory.
    pub(super) fn is_reserved(&self, dirent: &Dirent) -> Result<bool> {
        if dirent.name != RESERVED_NAME || dirent.kind != FileKind::Directory {
            return Ok(false);
        }
        let inode = match self.inode(dirent.ino) {
            Err(Error::Stale) => return Ok(false),
            found => found?,
        };
        let record = inode.lock();
        Ok(record.uid == 0 && record.permissions & 0o022 == 0)
    }

    /// Whether an entry of `parent` is a directory that commands find by its name in the directory of oncefs itself.
    pub(super) fn is_reserved_below(&self, parent: Ino, dirent: &Dirent) -> Result<bool> {
        if dirent.kind != FileKind::Directory || !RESERVED_BELOW.contains(&&*dirent.name) {
            return Ok(false);
        }
        match self.find(Ino::ROOT, RESERVED_NAME)? {
            Some(above) if above.ino == parent => self.is_reserved(&above),
            _ => Ok(false),
        }
    }

    /// The inode `ino`, which must be a directory.
    pub(crate) fn directory(&self, ino: Ino) -> Result<Arc<Inode>> {
        let inode = self.inode(ino)?;
        if inode.lock().is_directory() { Ok(inode) } else { Err(Error::NotADirectory) }
    }

    /// All names, as they are stored.
    pub(crate) fn name_table(&self) -> NameTable<'_> {
        NameTable { store: &self.store, placement: &self.placement }
    }

    /// The entry `name` of `parent`.
    pub(crate) fn find(&self, parent: Ino, name: &[u8]) -> Result<Option<Dirent>> {
        self.name_table().find(parent, name)
    }
}

/// Refuses bytes that cannot be a name. (The kernel never sends an empty name or one with a slash.)
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Error::Invalid("invalid name: it is empty, or contains a slash or a NUL byte"));
    }
    Ok(())
}

/// Refuses bytes that cannot become a new name.
pub(crate) fn check_new_name(name: &[u8]) -> Result<()> {
    if name == b"." || name == b".." { Err(Error::Exists) } else { check_name(name) }
}

fn damaged_key(ino: Ino) -> Error {
    Error::corrupt(format!("directory {}", ino.0), "the key of an entry is malformed")
}
