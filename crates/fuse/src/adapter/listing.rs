//! Entries of a directory, each with the answer that a lookup of it would get.

use oncefs_fs::{Entry, EntryKind, Error, Ino};
use oncefs_transport::Reply;
use oncefs_transport::protocol::attributes::Entry as Found;
use oncefs_transport::protocol::listing::{Listed, Listing};

use super::Adapter;
use crate::convert::entry;
use crate::errno::errno;
use crate::reply::reply_with;

impl Adapter {
    pub(super) fn readdir(&self, ino: Ino, cookie: u64, size: u32, reply: Reply) {
        let mut listing = Listing::new(size);
        let listed = self.file_system.readdir(ino, cookie, &mut |entry| listing.add(&listed(entry)));
        reply_with(listed.map_err(|error| errno(&error)), reply, |reply, ()| reply.listing(listing));
    }

    pub(super) fn readdir_plus(&self, ino: Ino, cookie: u64, size: u32, reply: Reply) {
        let (mut listing, mut entries) = (Listing::new(size), 0_usize);
        let result = self.file_system.readdir(ino, cookie, &mut |entry| {
            entries += 1;
            self.add_with_attributes(&mut listing, entry)
        });
        match result {
            // The entries in the reply are already counted, so it must be sent. The kernel gets the error when it asks
            // again.
            Err(error) if entries == 0 => reply.error(errno(&error)),
            _ => reply.listing(listing),
        }
    }

    /// Adds an entry to a listing. False: it is full.
    fn add_with_attributes(&self, listing: &mut Listing, of: &Entry) -> bool {
        let attributes = match of.entry_kind {
            // The kernel shows their inode number and caches nothing.
            EntryKind::Dots => return listing.add_plus(&listed(of), &Found::default()),
            EntryKind::Name => match self.file_system.getattr(of.ino) {
                // Deleted since the directory was read.
                Err(Error::Stale) => return true,
                Err(error) => {
                    log::error!("cannot read the attributes of inode {}: {error}", of.ino.0);
                    return listing.add_plus(&listed(of), &Found::default());
                }
                Ok(attributes) => attributes,
            },
        };
        // Counted before the kernel can know the inode, and uncounted if the entry does not fit.
        self.lookups.add(of.ino);
        let has_room = listing.add_plus(&listed(of), &entry(&attributes));
        if !has_room && self.lookups.subtract(of.ino, 1) {
            self.delete(of.ino);
        }
        has_room
    }
}

fn listed<'a>(of: &Entry<'a>) -> Listed<'a> {
    Listed { inode: of.ino.0, cookie: of.cookie, mode: of.kind.mode_bits(), name: of.name }
}
