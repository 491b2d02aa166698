//! Inode numbers: handed out in ascending order, and never again once an inode with the number is durable.
//!
//! A mount leases them in batches, so that creating a file writes no counter. Numbers of a lease that are left when the
//! mount ends stay unused. A crash may take a lease and all its inodes: the next mount gives these numbers again, and
//! its generation tells its inodes from those that are gone.

use oncefs_engine::sync::{LockRank, Mutex, RwLock, RwLockReadGuard};
use oncefs_engine::{Change, Store};

use crate::format::lease;
use crate::{Error, Ino, Result};

/// Numbers per lease: one counter write for about a thousand files.
const LEASE: u64 = 1024;

pub(crate) struct InodeNumbers {
    /// The first number of this mount's first lease, which identifies the mount: no earlier one that left anything
    /// durable has it.
    epoch: u64,
    free: Mutex<Free>,
    /// Held shared from the moment a number is taken until its inode is published.
    being_made: RwLock<()>,
}

/// Marks a number as taken until its inode is published, or its creation fails.
pub(crate) type BeingMade<'a> = RwLockReadGuard<'a, ()>;

/// Numbers from `next` up to `end`, exclusive.
struct Free {
    next: u64,
    end: u64,
}

impl InodeNumbers {
    /// Takes the first lease, unless the mount is read-only.
    pub(crate) fn open(store: &Store, read_only: bool) -> Result<Self> {
        let bytes = store.get(lease::KEY)?.ok_or_else(|| {
            Error::corrupt(
                "the volume",
                "it has no file system, because mkfs was interrupted: remove it and make it again",
            )
        })?;
        let Ino(epoch) = lease::decode(&bytes)?;
        let mut free = Free { next: epoch, end: epoch };
        if !read_only {
            free.extend(store)?;
        }
        assert!(epoch > Ino::ROOT.0 && free.next <= free.end, "leased {} to {}, after {epoch}", free.next, free.end);
        Ok(Self {
            epoch,
            free: Mutex::new(LockRank::InodeNumbers, free),
            being_made: RwLock::new(LockRank::InodeBeingMade, ()),
        })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Takes a number that no inode has.
    pub(crate) fn take(&self, store: &Store) -> Result<(Ino, BeingMade<'_>)> {
        let being_made = self.being_made.read();
        let mut free = self.free.lock();
        if free.next == free.end {
            free.extend(store)?;
        }
        assert!(free.next < free.end, "number {} is not below the lease, {}", free.next, free.end);
        free.next += 1;
        Ok((Ino(free.next - 1), being_made))
    }

    /// As [`InodeNumbers::take`], for several inodes that are published together.
    pub(crate) fn take_some(&self, store: &Store, count: usize) -> Result<(Vec<Ino>, BeingMade<'_>)> {
        let being_made = self.being_made.read();
        let mut free = self.free.lock();
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            if free.next == free.end {
                free.extend(store)?;
            }
            taken.push(Ino(free.next));
            free.next += 1;
        }
        Ok((taken, being_made))
    }

    /// The number below which every inode is published. None: some are being created at this moment.
    pub(crate) fn made_below(&self) -> Option<Ino> {
        let _none = self.being_made.try_write()?;
        let next = self.free.lock().next;
        debug_assert!(next >= self.epoch, "the next number, {next}, is below the first of this mount, {}", self.epoch);
        Some(Ino(next))
    }
}

/// The generation of inodes that no mount makes, and of those of early versions. It differs between volumes.
pub(crate) fn generation_of(store: &Store) -> u32 {
    let [a, b, c, d, ..] = store.volume_id();
    u32::from_le_bytes([a, b, c, d])
}

impl Free {
    /// Takes a further lease. It is published before any of its numbers is used, so it becomes durable no later than
    /// they do.
    fn extend(&mut self, store: &Store) -> Result<()> {
        assert_eq!(self.next, self.end, "a new lease, though numbers are left of the old one");
        let end = self.end.checked_add(LEASE);
        let end = end.ok_or_else(|| Error::corrupt("the inode number lease", "it leaves no numbers for new files"))?;
        let mut change = Change::new();
        change.put(lease::KEY.to_vec(), lease::encode(Ino(end)));
        store.publish(change)?;
        self.end = end;
        Ok(())
    }
}
