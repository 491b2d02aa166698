//! Inode numbers: handed out upwards and never reused.
//!
//! They are leased in batches, so that creating a file writes no counter; what a lease leaves over at the end of a
//! mount stays unused.

use oncefs_engine::{Change, Store};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::format::lease;
use crate::{Error, Ino, Result};

/// Numbers per lease: a counter write for every thousandth file.
const LEASE: u64 = 1024;

pub(crate) struct InodeNumbers {
    /// The first number of this mount's first lease. No other mount of the volume has the same.
    epoch: u64,
    free: Mutex<Free>,
    /// Held shared from taking a number until its inode is published.
    being_made: RwLock<()>,
}

/// Kept until the inode of a number is published, or will not be.
pub(crate) type BeingMade<'a> = RwLockReadGuard<'a, ()>;

/// Numbers from `next` up to `end`, exclusive.
struct Free {
    next: u64,
    end: u64,
}

impl InodeNumbers {
    /// Takes the first lease, unless the volume may not be changed.
    pub(crate) fn open(store: &Store, read_only: bool) -> Result<Self> {
        let bytes = store.get(lease::KEY)?.ok_or_else(|| {
            Error::corrupt("the volume", "it holds no file system (mkfs was interrupted: make it again)")
        })?;
        let Ino(epoch) = lease::decode(&bytes)?;
        let mut free = Free { next: epoch, end: epoch };
        if !read_only {
            free.extend(store)?;
        }
        Ok(Self { epoch, free: Mutex::new(free), being_made: RwLock::default() })
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// A number that was never used.
    pub(crate) fn take(&self, store: &Store) -> Result<(Ino, BeingMade<'_>)> {
        let being_made = self.being_made.read();
        let mut free = self.free.lock();
        if free.next == free.end {
            free.extend(store)?;
        }
        free.next += 1;
        Ok((Ino(free.next - 1), being_made))
    }

    /// No inode below this number is still to be published. None: some are just being made.
    pub(crate) fn made_below(&self) -> Option<Ino> {
        let _none = self.being_made.try_write()?;
        Some(Ino(self.free.lock().next))
    }
}

/// Inode numbers are never reused, so the generation only has to differ between volumes.
pub(crate) fn generation_of(store: &Store) -> u32 {
    let [a, b, c, d, ..] = store.volume_id();
    u32::from_le_bytes([a, b, c, d])
}

impl Free {
    /// The lease is published before any number of it is used, so it is durable whenever such a use is.
    fn extend(&mut self, store: &Store) -> Result<()> {
        let end = self.end.checked_add(LEASE);
        let end = end.ok_or_else(|| Error::corrupt("the inode number lease", "no numbers are left above it"))?;
        let mut change = Change::new();
        change.put(lease::KEY.to_vec(), lease::encode(Ino(end)));
        store.publish(change)?;
        self.end = end;
        Ok(())
    }
}
