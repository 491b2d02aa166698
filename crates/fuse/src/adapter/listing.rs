//! Entries of a listing with their attributes (readdirplus).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use fuser::{FileAttr, Generation, INodeNo, ReplyDirectoryPlus};
use oncefs_fs::{EntryKind, Error};

use super::Adapter;
use crate::convert::{file_attr, generation, no_inode};
use crate::reply::FOREVER;

impl Adapter {
    /// Adds an entry to a reply. False: it is full.
    pub(super) fn readdir_plus_entry(&self, reply: &mut ReplyDirectoryPlus, entry: &oncefs_fs::Entry) -> bool {
        let (number, name) = (INodeNo(entry.ino.0), OsStr::from_bytes(entry.name));
        let found = match entry.entry_kind {
            // The kernel shows their number and keeps nothing of them.
            EntryKind::Dots => Err(FileAttr { ino: number, ..no_inode(entry.kind) }),
            EntryKind::Name => match self.file_system.getattr(entry.ino) {
                // Deleted since the directory was read.
                Err(Error::Stale) => return true,
                found => found.map_err(|error| {
                    log::error!("cannot read the attributes of inode {}: {error}", entry.ino.0);
                    no_inode(entry.kind)
                }),
            },
        };
        let attributes = match found {
            Ok(attributes) => attributes,
            Err(attr) => return !reply.add(number, entry.cookie, name, &Duration::ZERO, &attr, Generation(0)),
        };
        // Counted before the kernel can know it, and taken back if the buffer was full.
        self.lookups.add(entry.ino);
        let full = reply.add(number, entry.cookie, name, &FOREVER, &file_attr(&attributes), generation(&attributes));
        if full && self.lookups.subtract(entry.ino, 1) {
            self.delete(entry.ino);
        }
        !full
    }
}
