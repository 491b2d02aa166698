//! Work on trees under way: how far it is, and that the file system is not closed meanwhile.

use std::sync::atomic::AtomicU64;

use oncefs_engine::sync::{Condvar, LockRank, Mutex};

/// How far the work on a tree is. Another thread may read it.
#[derive(Debug, Default)]
pub struct TreeProgress {
    /// Names copied or removed.
    pub names: AtomicU64,
    /// Bytes of the copied files.
    pub bytes: AtomicU64,
}

/// Counts the work under way.
pub(crate) struct TreeWork {
    under_way: Mutex<u64>,
    ended: Condvar,
}

/// Work under way, until it is dropped.
pub(crate) struct UnderWay<'a>(&'a TreeWork);

impl Default for TreeWork {
    fn default() -> Self {
        Self { under_way: Mutex::new(LockRank::Leaf, 0), ended: Condvar::default() }
    }
}

impl TreeWork {
    pub(crate) fn begin(&self) -> UnderWay<'_> {
        *self.under_way.lock() += 1;
        UnderWay(self)
    }

    /// Waits until no work is under way. The caller has told all of it to end.
    pub(crate) fn wait(&self) {
        let mut under_way = self.under_way.lock();
        while *under_way > 0 {
            self.ended.wait(&mut under_way);
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut under_way = self.0.under_way.lock();
        *under_way = under_way.checked_sub(1).expect("work ends once");
        self.0.ended.notify_all();
    }
}
